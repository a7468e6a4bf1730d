//! Trying a wall: a real tiny sandbox, within a limit of time.

use std::time::Duration;

use belljar_backend::{Error, Probe, RootSource, SandboxSpec, UserIds};
use belljar_codes::Code;
use belljar_policy::{Limits, NetworkMode, SandboxId};

use crate::machine::Machine;
use crate::wall::Wall;

/// How long the start may take before the answer is "does not work".
pub const LIMIT: Duration = Duration::from_secs(10);

/// What a backend made of this wall can say of itself; its name and what it runs on are for the backend to add.
pub async fn of(machine: &Machine, wall: &Wall) -> Probe {
    let mut probe = Probe {
        backend: String::new(),
        runtime: None,
        platform: None,
        fast: true,
        works: false,
        class: wall.class(),
        reason: String::new(),
        remedy: None,
        start_ms: None,
        enforcement: Vec::new(),
    };
    match machine.try_wall(wall).await {
        Ok((milliseconds, enforcement, no_networks)) => {
            probe.works = true;
            if let Some(error) = no_networks {
                probe.reason = format!("only `--network none`: {}", with_causes(&error));
                probe.remedy = error.remedy;
            }
            probe.start_ms = Some(milliseconds);
            probe.enforcement = enforcement;
        }
        Err(error) => {
            probe.reason = with_causes(&error);
            probe.remedy = error.remedy;
        }
    }
    probe
}

/// It works perhaps, but too slowly to be counted on.
pub fn late(limit: Duration) -> Error {
    let reason = format!("a tiny sandbox did not start within {} s", limit.as_secs());
    Error::new(Code::StartFailed, reason)
}

/// Says what it runs on, before whatever else is to be said of it.
pub fn runs_on(probe: &mut Probe, what: &str) {
    probe.reason = match probe.reason.as_str() {
        "" => what.to_owned(),
        more => format!("{what}; {more}"),
    };
}

/// The tiny sandbox: nothing but defaults.
#[must_use]
pub fn spec() -> SandboxSpec {
    SandboxSpec {
        id: id(),
        root: RootSource::Host,
        writable_root: false,
        mounts: Vec::new(),
        covers: Vec::new(),
        masks: Vec::new(),
        limits: Limits::default(),
        best_effort: false,
        network: NetworkMode::None,
        user: UserIds { uid: 1000, gid: 1000 },
        hostname: "probe".to_owned(),
        programs: None,
        tools: false,
        runtime: None,
    }
}

/// An id of its own; it lives for milliseconds.
fn id() -> SandboxId {
    use std::hash::{BuildHasher, RandomState};
    let mut entropy = [0; 16];
    for half in entropy.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(0u8).to_le_bytes());
    }
    SandboxId::from_random("prob", &entropy).expect("`prob` is a valid node")
}

/// An error with everything that led to it, in one line.
#[must_use]
pub fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}
