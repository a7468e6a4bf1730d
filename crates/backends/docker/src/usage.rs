//! What a sandbox has used, from the kernel where the engine is on this host.

use belljar_backend::{Counters, Result};
use belljar_policy::SandboxId;
use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt;

use crate::backend::Docker;
use crate::counters::{self, Cgroup};
use crate::{disks, network};

/// What is remembered of a container on this host, so that counting needs no engine.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    container: String,
    pid: i32,
    cgroup: Cgroup,
}

impl Known {
    pub(crate) fn of(container: &str, pid: i32) -> Option<Self> {
        Some(Self { container: container.to_owned(), pid, cgroup: Cgroup::of(pid)? })
    }

    /// `None`: it is gone.
    fn read(&self) -> Option<Counters> {
        let counters = self.cgroup.read()?;
        let root = network::root(&self.container, self.pid).ok();
        let free = root.and_then(|root| disks::free(&root));
        Some(Counters {
            disk_free_bytes: free.map(|free| free.bytes),
            disk_free_inodes: free.map(|free| free.inodes),
            ..counters
        })
    }
}

impl Docker {
    pub(crate) async fn count(&self, id: &SandboxId) -> Result<Counters> {
        let known = self.lock_known().get(id).cloned();
        if let Some(counters) = known.and_then(|known| known.read()) {
            return Ok(counters);
        }
        let Some((container, pid)) = self.running(id).await? else {
            return Ok(Counters::default());
        };
        let daemon = self.daemon().await?;
        if daemon.facts.near
            && let Some(known) = Known::of(&container, pid)
            && let Some(counters) = known.read()
        {
            self.lock_known().insert(id.clone(), known);
            return Ok(counters);
        }
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let stats = daemon.client.stats(&container, Some(options)).next().await;
        let killed = self.inspect(id).await?.and_then(|found| found.state?.oom_killed);
        let stats = stats.and_then(std::result::Result::ok).unwrap_or_default();
        Ok(counters::from_engine(&stats, killed == Some(true)))
    }
}
