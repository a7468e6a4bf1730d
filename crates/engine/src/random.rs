//! Unguessable ids.

use belljar_policy::identity::NODE_ID_LENGTH;
use belljar_policy::{ProcessId, SandboxId};

use crate::Result;

pub(crate) fn sandbox_id(node: &str) -> Result<SandboxId> {
    Ok(SandboxId::from_random(node, &entropy())?)
}

pub(crate) fn process_id() -> ProcessId {
    ProcessId::from_random(&entropy())
}

/// A node id for a new state directory.
pub(crate) fn node() -> String {
    process_id().as_str()[1..=NODE_ID_LENGTH].to_owned()
}

/// A word that nobody else has.
pub(crate) fn token() -> String {
    process_id().as_str()[1..].to_owned()
}

fn entropy() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    bytes
}
