//! Dying on purpose, for tests of what survives it.

use std::sync::OnceLock;

/// The environment variable that names the point at which the process is to die.
pub const VARIABLE: &str = "BELLJAR_FAULT";

/// Before a point's name: panic there instead.
const PANIC: &str = "panic:";

/// Ends the process with SIGKILL if the environment names this point: nothing is flushed, no destructor runs. Unset,
/// it costs one load.
///
/// # Panics
/// If the environment asks for that instead, with `panic:` before the name: a bug, as a request would meet it.
pub fn point(name: &str) {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen =
        CHOSEN.get_or_init(|| std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()));
    let Some(chosen) = chosen else { return };
    assert!(chosen.strip_prefix(PANIC) != Some(name), "asked to panic at {name}");
    if chosen == name {
        // SIGKILL to oneself cannot fail and is delivered before the call returns.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
