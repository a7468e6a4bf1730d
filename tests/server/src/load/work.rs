//! What a worker does, step by step, until it is told to stop or the server goes away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_api::v1;
use belljar_client::{Client, Failure, Status};
use bytes::Bytes;

use super::{MAX_RUNNING, MAX_SANDBOXES, Owned, Task, Worker, Writer};
use crate::requests::{Written, shell};

/// No step takes longer unless something hangs.
const STEP: Duration = Duration::from_secs(90);

type Answer<T = ()> = Result<T, Failure>;

impl Worker {
    /// Works until `stop` is set; the first failure ends it early.
    ///
    /// # Errors
    /// What the server, or the way to it, said.
    pub async fn work(&mut self, client: &Client, stop: &AtomicBool) -> Answer {
        while !stop.load(Ordering::Relaxed) {
            let step = tokio::time::timeout(STEP, self.step(client));
            step.await.unwrap_or_else(|_| panic!("worker {} hangs", self.index))?;
        }
        Ok(())
    }

    async fn step(&mut self, client: &Client) -> Answer {
        let roll = self.random.u8(..100);
        let Some(name) = self.pick() else { return self.create(client).await };
        match roll {
            0..20 if self.sandboxes.len() < MAX_SANDBOXES => self.create(client).await,
            0..50 => self.start(client, &name).await,
            50..75 => self.stream(client, &name).await,
            75..88 => self.files(client, &name).await,
            _ => self.destroy(client, &name).await,
        }
    }

    async fn create(&mut self, client: &Client) -> Answer {
        let name = self.next_name();
        self.sandboxes.insert(name.clone(), Owned { id: None, leaving: false, tasks: Vec::new() });
        self.ask_for_sandbox(client, &name).await
    }

    /// The same words each time, so that asking again is the same request.
    pub(super) async fn ask_for_sandbox(&mut self, client: &Client, name: &str) -> Answer {
        let request = v1::CreateSandboxRequest {
            name: Some(name.to_owned()),
            idempotency_key: Some(format!("create-{name}")),
            idle_timeout_secs: Some(0.0),
            ..v1::CreateSandboxRequest::default()
        };
        let sandbox = client.sandboxes.clone().create_sandbox(request).await?.into_inner();
        self.owned(name).id = Some(sandbox.sandbox_id);
        self.counts.created += 1;
        Ok(())
    }

    async fn start(&mut self, client: &Client, name: &str) -> Answer {
        if self.owned(name).tasks.iter().filter(|task| !task.verified).count() >= MAX_RUNNING {
            return self.wait_for_one(client, name).await;
        }
        let place = self.new_task(name);
        self.ask_for_process(client, name, place).await?;
        self.owned(name).tasks[place].confirmed = true;
        Ok(())
    }

    pub(super) async fn ask_for_process(
        &mut self,
        client: &Client,
        name: &str,
        place: usize,
    ) -> Answer {
        let (sandbox, key, command) = self.words(name, place);
        let request = v1::StartProcessRequest { sandbox, command, idempotency_key: Some(key) };
        let process = client.processes.clone().start_process(request).await?.into_inner();
        self.owned(name).tasks[place].id = Some(process.process_id);
        self.counts.processes += 1;
        Ok(())
    }

    /// Runs a writer and compares what arrives with what it writes.
    async fn stream(&mut self, client: &Client, name: &str) -> Answer {
        let place = self.new_task(name);
        let (sandbox, key, command) = self.words(name, place);
        let request = v1::ExecStreamRequest { sandbox, command, idempotency_key: Some(key) };
        let mut stream = client.processes.clone().exec_stream(request).await?.into_inner();
        let mut written = Written::default();
        while let Some(mut output) = stream.message().await? {
            if let Some(process) = output.started.take() {
                let task = &mut self.owned(name).tasks[place];
                (task.id, task.confirmed) = (Some(process.process_id), true);
            } else {
                written.add(output);
            }
        }
        let writer = self.owned(name).tasks[place].writer.clone();
        assert!(written.ended.is_some(), "a stream ended without the end of {writer:?}");
        self.counts.verified_bytes += writer.compare(&written);
        self.owned(name).tasks[place].verified = true;
        self.counts.streamed += 1;
        Ok(())
    }

    /// Writes a file in pieces, reads it back, removes it.
    async fn files(&mut self, client: &Client, name: &str) -> Answer {
        let sandbox = self.id(name);
        let path = format!("/tmp/f{}", self.random.u32(..));
        let content: Vec<u8> = (0..self.random.usize(1..200_000)).map(|n| n as u8).collect();
        let mut head = Some((sandbox.clone(), path.clone()));
        let pieces = content.chunks(64 << 10).map(Bytes::copy_from_slice).map(|data| {
            let (sandbox, path) = head.take().unwrap_or_default();
            v1::WriteFileRequest { sandbox, path, data, ..v1::WriteFileRequest::default() }
        });
        let pieces: Vec<_> = pieces.collect();
        let mut files = client.files.clone();
        files.write_file(tokio_stream::iter(pieces)).await?;
        let request = v1::ReadFileRequest {
            sandbox: sandbox.clone(),
            path: path.clone(),
            ..v1::ReadFileRequest::default()
        };
        let mut stream = files.read_file(request).await?.into_inner();
        let mut read = Vec::new();
        while let Some(chunk) = stream.message().await? {
            read.extend_from_slice(&chunk.data);
        }
        assert!(read == content, "a file of {} bytes came back as {}", content.len(), read.len());
        files.remove_file(v1::RemoveFileRequest { sandbox, path, recursive: false }).await?;
        self.counts.files += 1;
        Ok(())
    }

    async fn destroy(&mut self, client: &Client, name: &str) -> Answer {
        self.owned(name).leaving = true;
        self.ask_for_the_end(client, name).await
    }

    pub(super) async fn ask_for_the_end(&mut self, client: &Client, name: &str) -> Answer {
        let request = v1::DestroySandboxRequest { sandbox: self.id(name) };
        client.sandboxes.clone().destroy_sandbox(request).await?;
        self.verify_ended(client, name).await?;
        self.sandboxes.remove(name);
        self.counts.destroyed += 1;
        Ok(())
    }

    /// Waits for the end of a process that nobody has looked at yet.
    async fn wait_for_one(&mut self, client: &Client, name: &str) -> Answer {
        let waiting = self.owned(name).tasks.iter().position(|task| !task.verified);
        let Some(place) = waiting else { return Ok(()) };
        self.verify_complete(client, name, place).await
    }

    fn new_task(&mut self, name: &str) -> usize {
        self.made += 1;
        let key = format!("{name}-{}", self.made);
        let writer = Writer::choose(&mut self.random, &key);
        let task = Task { key, writer, id: None, confirmed: false, verified: false };
        let tasks = &mut self.owned(name).tasks;
        tasks.push(task);
        tasks.len() - 1
    }

    fn words(&mut self, name: &str, place: usize) -> (String, String, Option<v1::Command>) {
        let sandbox = self.id(name);
        let task = &self.owned(name).tasks[place];
        (sandbox, task.key.clone(), Some(shell(&task.writer.line())))
    }

    pub(super) fn owned(&mut self, name: &str) -> &mut Owned {
        self.sandboxes.get_mut(name).expect("it is ours")
    }

    pub(super) fn id(&mut self, name: &str) -> String {
        self.owned(name).id.clone().expect("it was confirmed")
    }
}

/// Whether a failure is the way to the server breaking, and not the server's answer.
#[must_use]
pub fn is_broken(failure: &Failure) -> bool {
    use belljar_codes::Code;
    matches!(failure.code, Code::ServerUnreachable | Code::ServerStopping | Code::Interrupted)
}

impl Writer {
    /// Fails unless everything was written, and the end is the true one. The number of bytes.
    #[track_caller]
    pub(super) fn compare(&self, written: &Written) -> u64 {
        let (stdout, stderr) = self.output();
        let lengths = (written.stdout.len(), written.stderr.len());
        assert_eq!(lengths, (stdout.len(), stderr.len()), "bytes of {self:?}");
        assert!(written.stdout == stdout && written.stderr == stderr, "bytes of {self:?}");
        if let Some(ended) = &written.ended {
            let found = (ended.reason(), ended.exit_code);
            assert_eq!(found, (v1::Reason::Exited, Some(self.exit_code)), "{self:?}: {ended:?}");
        }
        (stdout.len() + stderr.len()) as u64
    }
}

/// The same question under another name, for what must not be there any more.
pub(super) fn is_not_found(status: Status) -> bool {
    status.code() as i32 == 5
}
