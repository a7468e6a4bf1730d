//! Containers that exist: found by name and label, paused, waited for, ended, listed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use belljar_backend::{Orphan, Result};
use belljar_policy::SandboxId;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    InspectContainerOptions, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;

use crate::backend::Docker;
use crate::failure::{failed, is_conflict, is_missing};
use crate::labels::Installation;

/// How often it is looked whether a container that is being removed is gone, and for how long.
const REMOVAL_STEP: Duration = Duration::from_millis(20);
const REMOVAL_LIMIT: Duration = Duration::from_secs(30);
/// A container that was made this long ago and never started will not be: several times what any request may take.
const UNSTARTED_SECONDS: u64 = 600;
/// How long clearing up may hold up who opens the engine.
const CLEARING_LIMIT: Duration = Duration::from_secs(5);

impl Docker {
    /// The container of a sandbox; `None` where there is none, or one that is not ours.
    pub(crate) async fn inspect(&self, id: &SandboxId) -> Result<Option<ContainerInspectResponse>> {
        let installation = self.installation().await?;
        let name = installation.container(id);
        let client = &self.daemon().await?.client;
        match client.inspect_container(&name, None::<InspectContainerOptions>).await {
            Ok(found) => {
                let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
                Ok((installation.sandbox(labels).as_ref() == Some(id)).then_some(found))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(format!("the engine does not tell of sandbox `{id}`"), error)),
        }
    }

    /// The whole id of a sandbox's container and the number of its first process, while it runs.
    pub(crate) async fn running(&self, id: &SandboxId) -> Result<Option<(String, i32)>> {
        Ok(self.inspect(id).await?.and_then(first_process))
    }

    /// Returns once it does not run.
    pub(crate) async fn await_end(&self, id: &SandboxId) -> Result<()> {
        while let Some((container, _)) = self.running(id).await? {
            let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
            let client = &self.daemon().await?.client;
            // However this ends, whether it is gone is asked for again.
            let _ = client.wait_container(&container, Some(options)).next().await;
        }
        Ok(())
    }

    /// Removes it, from whatever state.
    pub(crate) async fn remove(&self, id: &SandboxId) -> Result<()> {
        let deadline = Instant::now() + REMOVAL_LIMIT;
        while let Some(found) = self.inspect(id).await? {
            let container = found.id.unwrap_or_default();
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            let client = &self.daemon().await?.client;
            match client.remove_container(&container, Some(options)).await {
                Ok(()) => return Ok(()),
                Err(error) if is_missing(&error) => return Ok(()),
                // It is being removed already, perhaps because its agent has just ended.
                Err(error) if is_conflict(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(REMOVAL_STEP).await;
                }
                Err(error) => return Err(failed(format!("sandbox `{id}` does not end"), error)),
            }
        }
        Ok(())
    }

    pub(crate) async fn freeze(&self, id: &SandboxId) -> Result<()> {
        let name = self.installation().await?.container(id);
        match self.daemon().await?.client.pause_container(&name).await {
            // Engines have answers of their own to that.
            Err(_) if self.paused(id).await? == Some(true) => Ok(()),
            answer => {
                answer.map_err(|error| failed(format!("sandbox `{id}` cannot be paused"), error))
            }
        }
    }

    pub(crate) async fn thaw(&self, id: &SandboxId) -> Result<()> {
        if self.paused(id).await? != Some(true) {
            return Ok(());
        }
        let name = self.installation().await?.container(id);
        match self.daemon().await?.client.unpause_container(&name).await {
            // Somebody else was first.
            Err(_) if self.paused(id).await? == Some(false) => Ok(()),
            answer => {
                answer.map_err(|error| failed(format!("sandbox `{id}` cannot be resumed"), error))
            }
        }
    }

    /// `None`: there is no such sandbox.
    async fn paused(&self, id: &SandboxId) -> Result<Option<bool>> {
        Ok(self.inspect(id).await?.and_then(|found| found.state?.paused))
    }

    /// Removes containers of this installation that were made and never started: their maker was killed, and the engine
    /// may have made them after everybody had looked.
    pub(crate) async fn remove_unstarted(&self) -> Result<()> {
        // Where no engine was ever used there is nothing, and none is asked.
        if !Installation::exists(self.machine.state_dir()) {
            return Ok(());
        }
        let clearing = tokio::time::timeout(CLEARING_LIMIT, self.clear_unstarted());
        clearing.await.unwrap_or(Ok(())) // the next one tries again
    }

    async fn clear_unstarted(&self) -> Result<()> {
        let installation = self.installation().await?;
        let Ok(daemon) = self.daemon().await else { return Ok(()) };
        let mut filter = installation.filter();
        filter.insert("status".to_owned(), vec!["created".to_owned()]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filter).build();
        let found = daemon.client.list_containers(Some(options)).await;
        let found = found.map_err(|error| failed("the engine does not list containers", error))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for container in found {
            let made = container.created.and_then(|made| u64::try_from(made).ok());
            let is_old = made.is_some_and(|made| made + UNSTARTED_SECONDS < now);
            if let (true, Some(id)) = (is_old, container.id) {
                let options = RemoveContainerOptionsBuilder::new().v(true).build();
                // Without force: one that runs after all stays.
                let _ = daemon.client.remove_container(&id, Some(options)).await;
            }
        }
        Ok(())
    }

    /// Those of this installation that belong to none of the known sandboxes.
    pub(crate) async fn left_over(&self, known: &[SandboxId]) -> Result<Vec<Orphan>> {
        let installation = self.installation().await?;
        // Where no engine ever answered there is nothing of ours on it.
        let Ok(daemon) = self.daemon().await else { return Ok(Vec::new()) };
        let filter = installation.filter();
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filter).build();
        let found = daemon.client.list_containers(Some(options)).await;
        let found = found.map_err(|error| failed("the engine does not list containers", error))?;
        Ok(found
            .into_iter()
            .map(|container| Orphan {
                kind: "container".to_owned(),
                name: container.names.unwrap_or_default().join(" "),
                sandbox: installation.sandbox(container.labels.as_ref()),
            })
            .filter(|orphan| orphan.sandbox.as_ref().is_none_or(|id| !known.contains(id)))
            .collect())
    }
}

/// The whole id of a container and the number of its first process, if it runs.
pub(crate) fn first_process(found: ContainerInspectResponse) -> Option<(String, i32)> {
    let state = found.state?;
    let pid = i32::try_from(state.pid?).ok().filter(|pid| *pid > 0)?;
    (state.running == Some(true)).then_some((found.id?, pid))
}
