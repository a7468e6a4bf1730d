//! The contract between the engine and a wall.
//!
//! A backend starts and stops an isolated agent, hands over the stream to it, and reports what it really enforces.
//! Running commands, moving files and forwarding ports go through the agent protocol, so they are written once.

#![forbid(unsafe_code)]

mod capabilities;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod spec;

pub use capabilities::{Enforcement, IsolationClass, Offer, Probe, Subject};
pub use error::{Error, Result};
pub use spec::{
    AgentSetup, Counters, Doors, FetchState, FetchStep, LandlockAccess, Mask, MaskKind,
    MountSource, Orphan, ResolvedMount, ResourceLimit, RootSource, Running, RuntimeChoice,
    SandboxSpec, Stream, TreeKill, UserIds,
};

use belljar_policy::SandboxId;
use tokio::sync::mpsc;

/// One isolation mechanism.
///
/// Every method is safe to repeat: `stop` succeeds from any state, including "never existed" and "half made".
#[async_trait::async_trait]
pub trait Backend: Send + Sync {
    /// The word used in flags, records and documents.
    fn name(&self) -> &'static str;

    /// How strong its wall is where that does not depend on the host; `None` where only a probe can tell.
    fn class(&self) -> Option<IsolationClass>;

    /// What it could be here, found without running anything; unless it knows better, anything.
    fn offer(&self) -> Offer {
        Offer { strongest: self.class().unwrap_or(IsolationClass::Vm), ..Offer::default() }
    }

    /// What this backend can do on this host, found by running a tiny sandbox, and why not where it cannot. With the
    /// runtime of that name, or with the best that works.
    async fn probe(&self, runtime: Option<&str>) -> Probe;

    /// Every rule of `spec` with the mechanism that will enforce it. An error names the first rule that cannot be
    /// enforced as asked; nothing has been made by then.
    async fn plan(&self, spec: &SandboxSpec) -> Result<Vec<Enforcement>>;

    /// Starts the agent of a new sandbox. On error everything that was made has been undone.
    async fn start(&self, spec: SandboxSpec) -> Result<Running>;

    /// Opens another stream to the agent of a running sandbox, also one that another process started.
    async fn connect(&self, id: &SandboxId) -> Result<Stream>;

    /// Whether the sandbox's agent is alive.
    async fn is_alive(&self, id: &SandboxId) -> Result<bool>;

    /// Waits until the sandbox's agent is gone.
    async fn wait_gone(&self, id: &SandboxId) -> Result<()>;

    /// Kills everything in the sandbox and removes every object that belongs to it.
    async fn stop(&self, id: &SandboxId) -> Result<()>;

    /// Stops everything in the sandbox where it stands; nothing of it runs until it is resumed. Pausing one that is
    /// paused is fine, and so is stopping it.
    async fn pause(&self, id: &SandboxId) -> Result<()>;

    /// Lets a paused sandbox go on; one that is not paused does anyway.
    async fn resume(&self, id: &SandboxId) -> Result<()>;

    /// The doors of a running sandbox that was started with a network: all of them new, whatever there was before is
    /// closed. `udp_ports`: the ports besides 53 to which datagrams may be sent. `None` where nothing encloses the network.
    async fn doors(&self, id: &SandboxId, udp_ports: &[u16]) -> Result<Option<Doors>>;

    /// What the kernel counted on the host's side.
    async fn counters(&self, id: &SandboxId) -> Result<Counters>;

    /// Fetches an image, if it is not there and fetching is allowed. Steps that nobody takes in time are left out.
    async fn fetch(&self, image: &str, steps: &mpsc::Sender<FetchStep>) -> Result<()> {
        let _ = steps;
        Err(Error::no_images(self.name(), image))
    }

    /// Gives the sandbox a fresh, empty workspace layer in place of the one it has.
    async fn reset_workspace_layer(&self, id: &SandboxId) -> Result<()>;

    /// Objects on this host that look like this installation's sandboxes and whose id is not in `known`.
    async fn orphans(&self, known: &[SandboxId]) -> Result<Vec<Orphan>>;

    /// Removes what a host process of this backend left behind when it was killed. Cheap when there is nothing.
    async fn recover(&self) -> Result<()>;

    /// Lets go of helpers on the host after they have finished; sandboxes stay.
    async fn close(&self);
}
