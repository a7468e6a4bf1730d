//! Unguessable ids.

use belljar_policy::identity::{NODE_ID_LENGTH, random_text};
use belljar_policy::{ProcessId, SandboxId};

use crate::Result;
use crate::time::now_ms;

pub(crate) fn sandbox_id(node: &str) -> Result<SandboxId> {
    Ok(SandboxId::from_random(node, &entropy())?)
}

pub(crate) fn process_id() -> ProcessId {
    ProcessId::new(now_ms().unsigned_abs(), &entropy())
}

/// A node id for a new state directory.
pub(crate) fn node() -> String {
    token()[..NODE_ID_LENGTH].to_owned()
}

/// A word that nobody else has.
pub(crate) fn token() -> String {
    random_text(&entropy())
}

fn entropy() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
    bytes
}
