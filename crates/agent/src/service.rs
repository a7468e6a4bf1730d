//! The socket inside the sandbox at which stand-ins for denied programs report.
//!
//! Anyone in the sandbox can connect, so everything is small and short: one line, a second of time, few at once. The
//! reporter's number comes from the kernel; the name is only what it claims.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use belljar_protocol::v1::{Event, ProgramDenied, event};
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recv, socket_with, sockopt,
};

use crate::agent::Agent;
use crate::failure::{Problem, Result};
use crate::poller::{EventFlags, Poller, Token, Watched};

/// Where stand-ins look for the socket.
pub(crate) const SOCKET_PATH: &str = "/run/belljar/service/agent.sock";

/// What a report starts with; the name and a line feed follow.
pub(crate) const REPORT: &[u8] = b"denied ";

const LONGEST_NAME: usize = 255;
const LONGEST_REPORT: usize = REPORT.len() + LONGEST_NAME + 1;
const MOST_GUESTS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(1);

/// Events kept while no host is connected.
const MOST_EVENTS: usize = 256;

#[derive(Debug)]
pub(crate) struct Service {
    listener: Watched,
    guests: Vec<Guest>,
}

/// Someone in the sandbox who is about to report.
#[derive(Debug)]
struct Guest {
    id: u32,
    socket: Watched,
    line: Vec<u8>,
    deadline: Instant,
}

/// Events on their way to a host, and how many were lost.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: VecDeque<ProgramDenied>,
    lost: u64,
}

impl Events {
    pub(crate) fn push(&mut self, name: &[u8], pid: u32) {
        if self.waiting.len() >= MOST_EVENTS {
            self.lost += 1;
            return;
        }
        let name = name.get(..LONGEST_NAME).unwrap_or(name).to_vec();
        self.waiting.push_back(ProgramDenied {
            name,
            pid,
            lost_before: std::mem::take(&mut self.lost),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let denied = self.waiting.pop_front()?;
        Some(Event { what: Some(event::What::ProgramDenied(denied)) })
    }
}

impl Service {
    pub(crate) fn new(path: &[u8], poller: &Poller) -> Result<Self> {
        let listener = listen_at(path, MOST_GUESTS, poller, Token::Service)?;
        Ok(Self { listener, guests: Vec::new() })
    }

    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.guests.iter().map(|guest| guest.deadline).min()
    }

    /// Lets those go who take too long, and new ones in when there is room again.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.guests.retain(|guest| guest.deadline > now);
        self.update_interest();
    }

    fn update_interest(&mut self) {
        let has_room = self.guests.len() < MOST_GUESTS;
        let interest = if has_room { EventFlags::IN } else { EventFlags::empty() };
        let _ = self.listener.set_interest(interest);
    }

    fn accept(&mut self, id: u32, poller: &Poller, now: Instant) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.listener, flags)?;
        let mut socket = poller.own(socket, Token::Guest(id));
        socket.set_interest(EventFlags::IN)?;
        self.guests.push(Guest { id, socket, line: Vec::new(), deadline: now + PATIENCE });
        self.update_interest();
        Ok(())
    }

    /// Reads from a guest; its report once that is whole. Everyone else is let go.
    fn read(&mut self, id: u32) -> Option<(Vec<u8>, u32)> {
        let index = self.guests.iter().position(|guest| guest.id == id)?;
        let guest = self.guests.get_mut(index)?;
        let mut buffer = [0; LONGEST_REPORT];
        let size = match recv(&guest.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((size, _)) => size,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => 0,
        };
        guest.line.extend_from_slice(buffer.get(..size).unwrap_or_default());
        let is_whole = guest.line.contains(&b'\n');
        if !is_whole && size > 0 && guest.line.len() < LONGEST_REPORT {
            return None;
        }
        let guest = self.guests.swap_remove(index);
        self.update_interest();
        let name = parse(&guest.line)?;
        let peer = sockopt::socket_peercred(&guest.socket).ok()?;
        Some((name, peer.pid.as_raw_nonzero().get().cast_unsigned()))
    }
}

impl Agent {
    pub(crate) fn on_service(&mut self) {
        let id = self.new_id();
        if let Some(service) = &mut self.service {
            // Whoever left again before being let in is no loss.
            let _ = service.accept(id, &self.poller, self.now);
        }
    }

    pub(crate) fn on_guest(&mut self, id: u32) {
        if let Some((name, pid)) = self.service.as_mut().and_then(|service| service.read(id)) {
            self.events.push(&name, pid);
        }
    }
}

/// A socket that everyone in the sandbox can connect to.
pub(crate) fn listen_at(
    path: &[u8],
    most: usize,
    poller: &Poller,
    token: Token,
) -> Result<Watched> {
    let failed = |errno: Errno| Problem::file("service-socket", path, errno);
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    // One from before a restore is of no use to anyone.
    let _ = rustix::fs::unlink(path);
    bind(&socket, &address).map_err(failed)?;
    chmod(path, Mode::from_raw_mode(0o666)).map_err(failed)?;
    listen(&socket, i32::try_from(most).unwrap_or(i32::MAX)).map_err(failed)?;
    let mut listener = poller.own(socket, token);
    listener.set_interest(EventFlags::IN).map_err(failed)?;
    Ok(listener)
}

fn parse(line: &[u8]) -> Option<Vec<u8>> {
    let name = line.strip_prefix(REPORT)?.split(|&byte| byte == b'\n').next()?;
    (!name.is_empty() && name.len() <= LONGEST_NAME).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line() {
        for (line, expected) in [
            ("denied curl\n", Some("curl")),
            ("denied a b\nmore", Some("a b")),
            ("denied \n", None),
            ("allowed curl\n", None),
            ("", None),
        ] {
            assert_eq!(parse(line.as_bytes()), expected.map(|name| name.as_bytes().to_vec()));
        }
        assert_eq!(parse(&[REPORT, &[b'x'; LONGEST_NAME + 1], b"\n"].concat()), None);
    }

    #[test]
    fn lost_events_are_counted_in_the_next_one() {
        let mut events = Events::default();
        for number in 0..300 {
            events.push(b"x", number);
        }
        let first = events.pop().unwrap();
        events.push(b"y", 0);
        assert!(matches!(first.what, Some(event::What::ProgramDenied(denied)) if denied.pid == 0));
        let last = std::iter::from_fn(|| events.pop()).last().unwrap();
        assert!(matches!(
            last.what,
            Some(event::What::ProgramDenied(denied)) if denied.lost_before == 44
        ));
    }
}
