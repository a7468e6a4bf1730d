//! The parts of a document that say what a sandbox is made of and what it may reach. Each is optional.

mod credentials;
mod filesystem;
mod network;
mod one_or_many;
mod processes;
mod tools;

pub use credentials::{CommandSource, Credential, Injection, OnGuestHeader, Place, Source};
pub use filesystem::{Filesystem, InnerPath, Mount, MountAccess, SandboxMounts};
pub use network::{
    Budget, HostMatch, Method, NetworkRule, NetworkSection, NetworkVerdict, PathPattern, Transport,
};
pub use one_or_many::OneOrMany;
pub use processes::{EnvironmentSection, Isolation, Processes};
pub use tools::{HttpTool, Tool};
