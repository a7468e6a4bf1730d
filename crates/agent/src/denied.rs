//! The stand-in for a program that the sandbox may not have: reports the attempt and fails as shells do.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use crate::service::{REPORT, SOCKET_PATH};

/// What shells give for "found but not executable".
const NOT_EXECUTABLE: u8 = 126;

/// A program that was refused must not hang on the report of it.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) fn report(name: &[u8]) -> ExitCode {
    // Whether or not it can be reported, the program is not run.
    let _ = tell_agent(name);
    // The name is whatever the caller made of it, so nothing of it may act on a terminal.
    let shown: String = String::from_utf8_lossy(name)
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    eprintln!("belljar: program `{shown}` is not in this sandbox's programs");
    ExitCode::from(NOT_EXECUTABLE)
}

fn tell_agent(name: &[u8]) -> std::io::Result<()> {
    let mut socket = UnixStream::connect(SOCKET_PATH)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let name: Vec<u8> = name.iter().copied().filter(|byte| *byte != b'\n').collect();
    socket.write_all(&[REPORT, &name, b"\n"].concat())
}
