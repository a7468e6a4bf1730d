//! The hidden way into the privileged helper: `belljar launcher FD`.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the launcher if that is what this process was started for.
pub(crate) fn divert(arguments: &[OsString]) -> Option<ExitCode> {
    let [_, command, descriptor] = arguments else { return None };
    if command != "launcher" {
        return None;
    }
    let descriptor = descriptor.to_str()?.parse().ok()?;
    Some(belljar_launcher::main(descriptor))
}
