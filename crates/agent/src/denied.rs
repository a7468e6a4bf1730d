//! The stand-in for a program that the sandbox may not have: reports the attempt and fails as shells do.

use std::process::ExitCode;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

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

fn tell_agent(name: &[u8]) -> rustix::io::Result<()> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new(SOCKET_PATH)?)?;
    let name: Vec<u8> = name.iter().copied().filter(|byte| *byte != b'\n').collect();
    // One short line: it goes in one piece or not at all.
    send(&socket, &[REPORT, &name, b"\n"].concat(), SendFlags::NOSIGNAL)?;
    // The agent hangs up once it has the line. Ending before that, the last command of a sandbox could end it with the
    // report unread.
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    recv(&socket, &mut [0; 1][..], RecvFlags::empty())?;
    Ok(())
}
