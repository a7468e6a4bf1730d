//! Streams to the agents of containers: straight through their network on this host, else by way of the engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backend::{Error, IsolationClass, Result, Stream};
use belljar_codes::Code;
use belljar_policy::SandboxId;

use crate::backend::Docker;
use crate::daemon::class;
use crate::life::first_process;
use crate::{network, relay};

/// How often an agent that does not listen yet is tried, and for how long.
const AGENT_STEP: Duration = Duration::from_millis(2);
const AGENT_LIMIT: Duration = Duration::from_secs(20);

impl Docker {
    /// A stream to the agent of a container that runs.
    pub(crate) async fn reach(&self, container: &str, pid: i32) -> Result<Stream> {
        let daemon = self.daemon().await?;
        if !daemon.facts.is_reachable() {
            return relay::connect(&daemon.client, container, false).await;
        }
        let namespace = Arc::new(network::namespace(container, pid)?);
        let deadline = Instant::now() + AGENT_LIMIT;
        loop {
            if let Some(stream) = self.machine.connect_of(&namespace).await? {
                return Ok(stream);
            }
            if Instant::now() > deadline {
                return Err(Error::new(Code::AgentFailed, "the agent does not listen")
                    .with_remedy("the machine may be busy; try again"));
            }
            tokio::time::sleep(AGENT_STEP).await;
        }
    }

    /// A stream to the agent of a sandbox, whichever process asks.
    pub(crate) async fn stream(&self, id: &SandboxId) -> Result<Stream> {
        let gone = || {
            Error::new(Code::SandboxGone, format!("sandbox `{id}` does not answer"))
                .with_remedy("it has ended; create a new one")
        };
        let found = self.inspect(id).await?.ok_or_else(gone)?;
        let runtime = found.host_config.as_ref().and_then(|config| config.runtime.as_deref());
        let own_kernel = class(runtime) != IsolationClass::Namespace;
        let (container, pid) = first_process(found).ok_or_else(gone)?;
        if own_kernel {
            return relay::connect(&self.daemon().await?.client, &container, true).await;
        }
        self.reach(&container, pid).await
    }
}
