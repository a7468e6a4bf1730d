//! Dying on purpose, for tests of what survives it.

use std::sync::OnceLock;

/// The environment variable that names the point at which the process is to die.
pub const VARIABLE: &str = "BELLJAR_FAULT";

/// Ends the process with SIGKILL if the environment names this point: nothing is flushed, no destructor runs. Unset,
/// it costs one load.
pub fn point(name: &str) {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    let chosen =
        CHOSEN.get_or_init(|| std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()));
    if chosen.as_deref() == Some(name) {
        // SIGKILL to oneself cannot fail and is delivered before the call returns.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
