//! Places where a test can make the launcher, or one of its helpers, die.

/// All points, in the order in which the start and the stop of a sandbox meet them.
pub const POINTS: &[&str] = &[
    "launcher.start.directory",
    "launcher.start.dispatched",
    "helper.range",
    "helper.cgroup",
    "helper.disk",
    "helper.doors",
    "helper.cloned",
    "helper.recorded",
    "helper.released",
    "launcher.stop.killed",
    "launcher.stop.cgroup",
    "launcher.stop.discarded",
];

/// Dies here if the environment asks for it.
pub(crate) fn point(name: &str) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list of fault points");
    belljar_sys::fault::point(name);
}
