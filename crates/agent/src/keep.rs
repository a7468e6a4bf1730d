//! The keeper: the first process around a wall that no listening socket passes.
//!
//! gVisor's kernel takes connected sockets from the host and no others. So the keeper, outside, accepts whoever connects
//! and hands the connection in. It starts the wall's own program, reaps what that leaves, and ends with it; whoever ends the
//! keeper ends everything, as it is the first process of its namespace. It looks at nothing that passes.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use belljar_sys::fork::{self, Ended};
use belljar_sys::signals::SignalDescriptor;
use belljar_sys::{inherited, message};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, Signal};

use crate::arguments::Kept;

pub(crate) fn keep(descriptors: &Kept, arguments: &[OsString]) -> io::Result<ExitCode> {
    let listener = inherited::take(descriptors.listen)?;
    let program = inherited::take(descriptors.program)?;
    let ready = inherited::take(descriptors.ready)?;
    inherited::close_on_exec_from(3)?;
    rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::empty())?;
    let signals = SignalDescriptor::block_all(&[Signal::CHILD])?;
    let (ours, theirs) = message::pair()?;
    let child = start(&program, &ready, theirs, descriptors.handed, arguments)?;
    drop((program, ready)); // when the child has ended, nobody else holds the pipe
    serve(&listener, &ours, &signals, child)
}

/// Starts the program with its end of the pair at the number that it expects.
fn start(
    program: &OwnedFd,
    ready: &OwnedFd,
    handed: OwnedFd,
    number: i32,
    arguments: &[OsString],
) -> io::Result<Pid> {
    let handed = inherited::place(handed, number)?;
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let path = text(format!("/proc/self/fd/{}", program.as_raw_fd()).as_bytes())?;
    let arguments: Vec<CString> = arguments
        .iter()
        .map(|argument| text(argument.as_bytes()))
        .collect::<Result<_, io::ErrorKind>>()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())?;
    let kept = [program.as_raw_fd(), handed.as_raw_fd(), ready.as_raw_fd(), null.as_raw_fd()];
    // Not by the standard library, which brings a tenth of this program's size for it.
    fork::fork(&kept, |forked| {
        if rustix::stdio::dup2_stdin(&null).is_ok() {
            let error = forked.execute(&path, &arguments);
            eprintln!("belljar-agent: {error}");
        }
        fork::exit(127)
    })
}

fn serve(
    listener: &OwnedFd,
    inside: &OwnedFd,
    signals: &SignalDescriptor,
    child: Pid,
) -> io::Result<ExitCode> {
    loop {
        let mut watched =
            [PollFd::new(signals, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let arrived = watched[1].revents().contains(PollFlags::IN);
        while signals.next().is_some() {}
        while let Some((pid, ended, _)) = fork::reap() {
            if pid == child {
                return Ok(match ended {
                    Ended::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
                    Ended::Signal(_) => ExitCode::FAILURE,
                });
            }
        }
        if arrived && let Ok(connection) = accept_with(listener, SocketFlags::CLOEXEC) {
            // One that cannot be handed in is closed, which whoever connected sees.
            let _ = message::send(inside, b"c", &[connection.as_fd()]);
        }
    }
}
