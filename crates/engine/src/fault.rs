//! Places where a test can make the process die.
//!
//! Every step of a life cycle has a point between "the journal says so" and "it was done", and one after it was done.
//! When `BELLJAR_FAULT` names a point, reaching it ends the process with SIGKILL: nothing is flushed, no destructor
//! runs, exactly as if the machine's operator had done it. Unset, a point costs one load.

pub use belljar_sys::fault::VARIABLE;

/// All points, in the order in which a run that creates, uses and destroys a sandbox meets them.
pub const POINTS: &[&str] = &[
    "create.present",
    "create.reserved",
    "create.starting",
    "create.starting.done",
    "create.configuring",
    "create.configuring.done",
    "create.ready",
    "create.ensuring",
    "create.ensuring.done",
    "exec.recorded",
    "exec.sent",
    "exec.ended",
    "exec.ended.done",
    "pause.noted",
    "pause.done",
    "resume.noted",
    "resume.done",
    "layer.applying",
    "layer.applying.done",
    "layer.resetting",
    "layer.resetting.done",
    "destroy.stopping",
    "destroy.stopping.done",
    "destroy.removing",
    "destroy.removing.done",
    "destroy.destroyed",
];

/// Points of what such a run does not do.
pub const FURTHER_POINTS: &[&str] = &["restore.filling"];

/// Dies here if the environment asks for it.
pub fn point(name: &'static str) {
    debug_assert!(
        POINTS.contains(&name) || FURTHER_POINTS.contains(&name),
        "{name} is not in the list of fault points"
    );
    belljar_sys::fault::point(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_distinct_names() {
        let distinct: std::collections::BTreeSet<_> = POINTS.iter().collect();
        assert_eq!(distinct.len(), POINTS.len());
    }
}
