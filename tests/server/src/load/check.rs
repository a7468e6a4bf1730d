//! What a worker knows, compared with what the server has.

use std::collections::BTreeSet;

use belljar_api::v1;
use belljar_client::{Client, Failure};

use super::Worker;
use super::work::is_not_found;
use crate::requests::{get, read_log, try_wait};

type Answer<T = ()> = Result<T, Failure>;

impl Worker {
    /// Asks again for everything that was asked for and not answered.
    ///
    /// # Errors
    /// What the server said.
    pub async fn resolve(&mut self, client: &Client) -> Answer {
        let names: Vec<String> = self.sandboxes.keys().cloned().collect();
        for name in names {
            if self.owned(&name).id.is_none() {
                self.ask_for_sandbox(client, &name).await?;
            }
            if self.owned(&name).leaving {
                self.ask_for_the_end(client, &name).await?;
                continue;
            }
            for place in 0..self.owned(&name).tasks.len() {
                if self.owned(&name).tasks[place].id.is_none() {
                    self.ask_for_process(client, &name, place).await?;
                }
            }
        }
        Ok(())
    }

    /// Ids of the sandboxes that must be there, and no others.
    #[must_use]
    pub fn living(&self) -> BTreeSet<String> {
        self.sandboxes.values().filter_map(|owned| owned.id.clone()).collect()
    }

    /// Compares every sandbox and process with what the server has. After [`Worker::resolve`].
    ///
    /// # Errors
    /// What the server said.
    pub async fn verify(&mut self, client: &Client) -> Answer {
        let names: Vec<String> = self.sandboxes.keys().cloned().collect();
        for name in names {
            let id = self.id(&name);
            let request = v1::GetSandboxRequest { sandbox: name.clone() };
            let sandbox = client.sandboxes.clone().get_sandbox(request).await?.into_inner();
            assert_eq!((&sandbox.sandbox_id, sandbox.state()), (&id, v1::SandboxState::Ready));
            self.verify_no_duplicates(client, &name).await?;
            for place in 0..self.owned(&name).tasks.len() {
                self.verify_so_far(client, &name, place).await?;
            }
        }
        Ok(())
    }

    /// Waits for every process, compares its whole log, and destroys the sandboxes.
    ///
    /// # Errors
    /// What the server said.
    pub async fn finish(&mut self, client: &Client) -> Answer {
        let names: Vec<String> = self.sandboxes.keys().cloned().collect();
        for name in names {
            for place in 0..self.owned(&name).tasks.len() {
                self.verify_complete(client, &name, place).await?;
            }
            self.owned(&name).leaving = true;
            self.ask_for_the_end(client, &name).await?;
        }
        Ok(())
    }

    /// As many processes as were asked for, each once.
    async fn verify_no_duplicates(&mut self, client: &Client, name: &str) -> Answer {
        let known = self.owned(name).tasks.iter().filter_map(|task| task.id.clone());
        let known: BTreeSet<String> = known.collect();
        assert_eq!(known.len(), self.owned(name).tasks.len(), "two keys, one process");
        let request = v1::ListProcessesRequest {
            sandbox: Some(self.id(name)),
            page_size: Some(1000),
            ..v1::ListProcessesRequest::default()
        };
        let listed = client.processes.clone().list_processes(request).await?.into_inner();
        let listed: Vec<String> =
            listed.processes.into_iter().map(|process| process.process_id).collect();
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), known, "processes of {name}");
        assert_eq!(listed.len(), known.len(), "{name}: a process is listed twice");
        Ok(())
    }

    /// An ended process has its whole log and its true exit; a running one has the beginning of it.
    async fn verify_so_far(&mut self, client: &Client, name: &str, place: usize) -> Answer {
        let task = &self.owned(name).tasks[place];
        if task.verified {
            return Ok(());
        }
        let id = task.id.clone().expect("resolved");
        let process = get(client, &id).await?;
        if process.finished_at.is_some() {
            return self.verify_complete(client, name, place).await;
        }
        let written = read_log(client, &id, false).await?;
        let task = &self.owned(name).tasks[place];
        let (stdout, stderr) = task.writer.output();
        assert!(
            stdout.starts_with(&written.stdout) && stderr.starts_with(&written.stderr),
            "what {:?} has written so far is not the beginning of it",
            task.writer
        );
        Ok(())
    }

    pub(super) async fn verify_complete(
        &mut self,
        client: &Client,
        name: &str,
        place: usize,
    ) -> Answer {
        let task = &self.owned(name).tasks[place];
        if task.verified {
            return Ok(());
        }
        let (id, confirmed) = (task.id.clone().expect("resolved"), task.confirmed);
        let process = try_wait(client, &id).await?;
        assert!(process.finished_at.is_some(), "a writer does not end: {process:?}");
        let mut written = read_log(client, &id, false).await?;
        let task = &self.owned(name).tasks[place];
        // One that was recorded but never began, because everything died between, is told as lost.
        let never_began = !confirmed && process.reason() == v1::Reason::Lost;
        if !never_began {
            written.ended = Some(process);
            let bytes = task.writer.compare(&written);
            self.counts.verified_bytes += bytes;
        }
        self.owned(name).tasks[place].verified = true;
        Ok(())
    }

    /// A destroyed sandbox is not found by its name, is told as destroyed by its id, and nothing runs in it.
    pub(super) async fn verify_ended(&mut self, client: &Client, name: &str) -> Answer {
        let request = v1::GetSandboxRequest { sandbox: name.to_owned() };
        let by_name = client.sandboxes.clone().get_sandbox(request).await;
        match by_name {
            Ok(found) => panic!("{name} was destroyed and is there: {found:?}"),
            Err(status) if is_not_found(status.clone()) => {}
            Err(status) => return Err(status.into()),
        }
        let request = v1::GetSandboxRequest { sandbox: self.id(name) };
        let by_id = client.sandboxes.clone().get_sandbox(request).await?.into_inner();
        assert_eq!(by_id.state(), v1::SandboxState::Destroyed, "{by_id:?}");
        let request = v1::ListProcessesRequest {
            sandbox: Some(self.id(name)),
            statuses: vec![v1::ProcessStatus::Running.into(), v1::ProcessStatus::Starting.into()],
            ..v1::ListProcessesRequest::default()
        };
        let running = client.processes.clone().list_processes(request).await?.into_inner();
        assert!(running.processes.is_empty(), "run in a destroyed sandbox: {running:?}");
        Ok(())
    }
}
