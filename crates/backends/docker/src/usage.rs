//! What a sandbox has used, from the kernel where the engine is on this host.

use belljar_backend::{Counters, Result};
use belljar_policy::SandboxId;
use bollard::query_parameters::StatsOptionsBuilder;
use futures_util::StreamExt;

use crate::backend::Docker;
use crate::counters::{self, Cgroup};

impl Docker {
    pub(crate) async fn count(&self, id: &SandboxId) -> Result<Counters> {
        let known = self.lock_cgroups().get(id).cloned();
        if let Some(counters) = known.and_then(|cgroup| cgroup.read()) {
            return Ok(counters);
        }
        let Some((container, pid)) = self.running(id).await? else {
            return Ok(Counters::default());
        };
        let daemon = self.daemon().await?;
        if daemon.facts.near
            && let Some(cgroup) = Cgroup::of(pid)
            && let Some(counters) = cgroup.read()
        {
            self.lock_cgroups().insert(id.clone(), cgroup);
            return Ok(counters);
        }
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let stats = daemon.client.stats(&container, Some(options)).next().await;
        let killed = self.inspect(id).await?.and_then(|found| found.state?.oom_killed);
        let stats = stats.and_then(std::result::Result::ok).unwrap_or_default();
        Ok(counters::from_engine(&stats, killed == Some(true)))
    }
}
