//! Terminals: a program must not type into the terminal that started it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::raw::{self, Ended, Throwaway};
use crate::report::Report;

const TIOCLINUX: usize = 0x541C;
/// The kernel looks at the low 32 bits only; a filter that compares all 64 lets this pass (CVE-2019-7303).
const HIGH_BIT: usize = 1 << 32;

/// Adopts a new terminal as the controlling one and pushes input into it; also into whatever is standard input.
pub(super) fn terminal(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("terminal");
    let requests = [
        ("TIOCSTI", libc::TIOCSTI as usize),
        ("TIOCSTI, high bit", libc::TIOCSTI as usize | HIGH_BIT),
        ("TIOCLINUX", TIOCLINUX),
        ("TIOCLINUX, high bit", TIOCLINUX | HIGH_BIT),
    ];
    for (name, request) in requests {
        report.attempt(
            format!("ioctl({name}) on own terminal"),
            with_terminal(|child, terminal| {
                child.call(libc::SYS_ioctl, [terminal, request, raw::place(&mut b'x'), 0, 0, 0])
            }),
        );
        // Without a terminal there the kernel says ENOTTY, which is what a call that went through looks like.
        report.attempt(
            format!("ioctl({name}) on standard input"),
            raw::call(libc::SYS_ioctl, [0, request, raw::place(&mut b'x'), 0, 0, 0]),
        );
    }
    report.twin("ioctl(TIOCSCTTY)", with_terminal(|_, _| Ok(0)));
    report.twin(
        "ioctl(TIOCSWINSZ)",
        with_terminal(|child, terminal| {
            let mut size = [24_u16, 80, 0, 0];
            let request = libc::TIOCSWINSZ as usize;
            child.call(libc::SYS_ioctl, [terminal, request, raw::place(&mut size), 0, 0, 0])
        }),
    );
    report.twin("write and read", converse());
    Ok(report)
}

/// Runs `work` in a session of its own whose controlling terminal is new. The terminal hangs up when that session's
/// leader ends, so each case needs another one.
fn with_terminal(work: impl FnOnce(&Throwaway, usize) -> Result<i64, i32>) -> Ended {
    let (_controller, terminal) = match raw::open_terminal() {
        Ok(ends) => ends,
        Err(error) => return Ended::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let terminal = terminal.as_raw_fd() as usize;
    raw::in_child(|child| {
        child.call(libc::SYS_setsid, [0; 6])?;
        child.call(libc::SYS_ioctl, [terminal, libc::TIOCSCTTY as usize, 0, 0, 0, 0])?;
        work(child, terminal)
    })
}

fn converse() -> io::Result<()> {
    let (controller, terminal) = raw::open_terminal()?;
    File::from(terminal.try_clone()?).write_all(b"hello")?;
    let heard = raw::read_within(controller.as_fd(), Duration::from_secs(2))?;
    if heard == b"hello" { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPROTO)) }
}
