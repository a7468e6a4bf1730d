//! The socket inside the sandbox at which the host's tools are called.
//!
//! Anyone in the sandbox can connect and say anything, so everything is bounded: one call per connection, its size, how
//! long it takes to say it, how many callers there are and how often they come. The agent understands only where a name
//! ends; what is meant is for the host to judge. Whoever calls while no host serves tools, or when the one that did goes
//! away, is told so at once.
//!
//! A call is one line, `call NAME ARGUMENTS` or `list`, and so is its answer: `ok JSON` or `error CODE WORDS`.

use std::time::{Duration, Instant};

use belljar_protocol::v1::{ToolAnswer, ToolCall, ToolCancel, frame::Body};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send, sockopt};

use crate::agent::{Agent, Child};
use crate::failure::{Problem, Result};
use crate::poller::{EventFlags, Poller, Token, Watched};
use crate::procfs;
use crate::service::listen_at;

/// Where callers look for the socket.
pub(crate) const SOCKET_PATH: &str = "/run/belljar/service/tools.sock";

const LONGEST_ARGUMENTS: usize = 128 * 1024;
const LONGEST_NAME: usize = 64;
/// `call NAME ARGUMENTS` and a line feed.
const LONGEST_LINE: usize = LONGEST_ARGUMENTS + LONGEST_NAME + 16;
/// What the host bounds too.
const LONGEST_ANSWER: usize = 1024 * 1024 + 64;

const MOST_CALLERS: usize = 64;

/// Calls that are passed on in a second, and at once. The host has a limit of its own, below this.
const CALLS_PER_SECOND: u32 = 4000;
const MOST_AT_ONCE: u32 = 1000;

/// How long a caller may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the host may take. It is told to be faster; this is for one that forgets.
const LONGEST_CALL: Duration = Duration::from_secs(630);

/// How far up the caller's ancestors its process is looked for.
const MOST_ANCESTORS: usize = 64;

// A call fits into a frame.
const _: () = assert!(LONGEST_LINE + 1024 < belljar_protocol::MAX_FRAME);

#[derive(Debug)]
pub(crate) struct Tools {
    listener: Watched,
    callers: Vec<Caller>,
    /// Connections of hosts that answer; the first does, the others take its place when it goes.
    servers: Vec<u32>,
    allowance: Allowance,
}

/// Calls that may still be passed on, and since when that is so.
#[derive(Debug)]
struct Allowance {
    left: u32,
    counted_at: Instant,
}

/// Someone in the sandbox with one call.
#[derive(Debug)]
struct Caller {
    id: u32,
    socket: Watched,
    stage: Stage,
    /// What was said so far, then what is answered.
    buffer: Vec<u8>,
    /// Of the answer, what the kernel has taken.
    sent: usize,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asking,
    Waiting,
    Answered,
}

#[derive(Debug, PartialEq, Eq)]
struct Wish<'a> {
    /// Empty: a list.
    name: &'a [u8],
    arguments: &'a [u8],
}

impl Tools {
    pub(crate) fn new(path: &[u8], poller: &Poller, now: Instant) -> Result<Self> {
        let listener = listen_at(path, MOST_CALLERS, poller, Token::Tools)?;
        let allowance = Allowance { left: MOST_AT_ONCE, counted_at: now };
        Ok(Self { listener, callers: Vec::new(), servers: Vec::new(), allowance })
    }

    fn server(&self) -> Option<u32> {
        self.servers.first().copied()
    }

    pub(crate) fn next_check(&self) -> Option<Instant> {
        self.callers.iter().map(|caller| caller.deadline).min()
    }

    fn accept(&mut self, id: u32, poller: &Poller, now: Instant) -> rustix::io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.listener, flags)?;
        let mut socket = poller.own(socket, Token::Caller(id));
        socket.set_interest(EventFlags::IN)?;
        let (stage, deadline) = (Stage::Asking, now + PATIENCE);
        self.callers.push(Caller { id, socket, stage, buffer: Vec::new(), sent: 0, deadline });
        self.update_interest();
        Ok(())
    }

    fn update_interest(&mut self) {
        let has_room = self.callers.len() < MOST_CALLERS;
        let interest = if has_room { EventFlags::IN } else { EventFlags::empty() };
        let _ = self.listener.set_interest(interest);
    }

    fn caller(&mut self, id: u32) -> Option<&mut Caller> {
        self.callers.iter_mut().find(|caller| caller.id == id)
    }

    fn remove(&mut self, id: u32) {
        self.callers.retain(|caller| caller.id != id);
        self.update_interest();
    }

    /// Gives a caller its answer; it is let go once it has taken it.
    fn finish(&mut self, id: u32, now: Instant, answer: Vec<u8>) {
        let Some(caller) = self.caller(id) else { return };
        caller.stage = Stage::Answered;
        caller.buffer = answer;
        caller.sent = 0;
        caller.deadline = now + PATIENCE;
        if caller.write() {
            self.remove(id);
        }
    }

    fn fail(&mut self, id: u32, now: Instant, code: &str, words: &str) {
        self.finish(id, now, failure(code, words.as_bytes()));
    }
}

impl Allowance {
    /// Counts a call; `false` if there were too many.
    fn admit(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.counted_at);
        let grown = u64::from(CALLS_PER_SECOND)
            * u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
            / 1_000_000;
        if grown > 0 {
            let grown = u32::try_from(grown).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(grown).min(MOST_AT_ONCE);
            self.counted_at = now;
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}

impl Caller {
    /// Reads what is there; `None` if more is to come, an error if nothing will.
    fn read(&mut self, scratch: &mut [u8]) -> Option<std::result::Result<(), ()>> {
        let size = match recv(&self.socket, &mut *scratch, RecvFlags::empty()) {
            Ok((size, _)) => size,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => return Some(Err(())),
        };
        let read = scratch.get(..size).unwrap_or_default();
        if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            self.buffer.extend_from_slice(read.get(..end).unwrap_or_default());
            return Some(Ok(()));
        }
        self.buffer.extend_from_slice(read);
        match size {
            0 => Some(Err(())),
            // Too long to be anything; the parser says so.
            _ if self.buffer.len() > LONGEST_LINE => Some(Ok(())),
            _ => None,
        }
    }

    /// Sends what the kernel takes; `true` if that was all, or the caller is gone.
    fn write(&mut self) -> bool {
        while let Some(rest) = self.buffer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(size) => self.sent += size,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.socket.set_interest(EventFlags::OUT).is_err(),
                Err(_) => return true,
            }
        }
        true
    }
}

impl Agent {
    /// A host says that it answers calls.
    pub(crate) fn serve_tools(&mut self, connection: u32) -> Result<()> {
        let tools = self.tools.as_mut();
        let tools = tools.ok_or_else(|| Problem::new("no-tools", "this sandbox has no tools"))?;
        if !tools.servers.contains(&connection) {
            tools.servers.push(connection);
        }
        Ok(())
    }

    /// A host that answered calls is gone, or answers no more.
    pub(crate) fn lose_tool_server(&mut self, connection: u32) {
        let Some(tools) = &mut self.tools else { return };
        let served = tools.server() == Some(connection);
        tools.servers.retain(|server| *server != connection);
        if served {
            self.abandon();
        }
    }

    /// Whoever waits for a host that is gone is told so.
    fn abandon(&mut self) {
        let Some(tools) = &mut self.tools else { return };
        let waiting = tools.callers.iter().filter(|caller| caller.stage == Stage::Waiting);
        let waiting: Vec<u32> = waiting.map(|caller| caller.id).collect();
        for id in waiting {
            tools.fail(id, self.now, "tool-unavailable", "the server went away during the call");
        }
    }

    pub(crate) fn on_tools(&mut self) {
        let id = self.new_id();
        if let Some(tools) = &mut self.tools {
            // Whoever left again before being let in is no loss.
            let _ = tools.accept(id, &self.poller, self.now);
        }
    }

    pub(crate) fn on_caller(&mut self, id: u32) {
        let Some(tools) = &mut self.tools else { return };
        let Some(caller) = tools.caller(id) else { return };
        match caller.stage {
            Stage::Asking => match caller.read(&mut self.scratch) {
                None => {}
                Some(Err(())) => tools.remove(id),
                Some(Ok(())) => self.pass_on(id),
            },
            // The only thing that it can have done is leave.
            Stage::Waiting => self.give_up(id),
            Stage::Answered => {
                if caller.write() {
                    tools.remove(id);
                }
            }
        }
    }

    fn give_up(&mut self, id: u32) {
        let Some(tools) = &mut self.tools else { return };
        tools.remove(id);
        if let Some(host) = tools.server().and_then(|server| self.connections.get_mut(server)) {
            host.send(0, Body::ToolCancel(ToolCancel { call: id.into() }));
        }
    }

    /// Hands a call that was said in full to the host.
    fn pass_on(&mut self, id: u32) {
        let Some(tools) = &mut self.tools else { return };
        let admitted = tools.allowance.admit(self.now);
        let server = tools.server();
        let Some(caller) = tools.caller(id) else { return };
        let line = std::mem::take(&mut caller.buffer);
        let peer = sockopt::socket_peercred(&caller.socket).ok();
        let now = self.now;
        let Some(wish) = parse(&line) else {
            let (code, words) = if line.len() > LONGEST_LINE {
                ("request-too-large", "the arguments have more than 128 KiB")
            } else {
                ("invalid-argument", "say `call NAME ARGUMENTS` or `list`, on one line")
            };
            return tools.fail(id, now, code, words);
        };
        if !admitted {
            return tools.fail(id, now, "rate-limited", "tools are called too often");
        }
        let host = server.and_then(|server| self.connections.get_mut(server));
        let Some(host) = host.filter(|host| host.has_room()) else {
            let words = "no server attends to this sandbox now; try again later";
            return tools.fail(id, now, "tool-unavailable", words);
        };
        // Stays in the poller for one thing only: that the caller leaves.
        let watched = caller.socket.set_interest(EventFlags::PRI).is_ok();
        caller.stage = Stage::Waiting;
        caller.deadline = now + LONGEST_CALL;
        let pid = peer.map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let process = process_of(pid, &self.children);
        let process = process.and_then(|key| self.processes.get(key));
        host.send(
            0,
            Body::ToolCall(ToolCall {
                call: id.into(),
                name: wish.name.to_vec(),
                arguments: wish.arguments.to_vec(),
                pid: pid.cast_unsigned(),
                process: process.map(|process| process.name.clone()).unwrap_or_default(),
            }),
        );
        if !watched {
            self.give_up(id);
        }
    }

    pub(crate) fn answer_caller(&mut self, connection: u32, answer: ToolAnswer) {
        let Some(tools) = &mut self.tools else { return };
        let Ok(id) = u32::try_from(answer.call) else { return };
        let serves = tools.server() == Some(connection);
        let now = self.now;
        let Some(caller) = tools.caller(id) else { return };
        if !serves || caller.stage != Stage::Waiting {
            return;
        }
        if !answer.code.is_empty() {
            return tools.finish(id, now, failure(&answer.code, &answer.data));
        }
        if caller.buffer.is_empty() {
            caller.buffer.extend_from_slice(b"ok ");
        }
        if caller.buffer.len() + answer.data.len() > LONGEST_ANSWER {
            return tools.fail(id, now, "tool-failed", "the result is too large");
        }
        caller.buffer.extend_from_slice(&answer.data);
        if !answer.more {
            let mut whole = std::mem::take(&mut caller.buffer);
            whole.push(b'\n');
            tools.finish(id, now, whole);
        }
    }

    /// Lets those go who take too long.
    pub(crate) fn expire_callers(&mut self) {
        let Some(tools) = &mut self.tools else { return };
        let now = self.now;
        let late = tools.callers.iter().filter(|caller| caller.deadline <= now);
        let late: Vec<(u32, Stage)> = late.map(|caller| (caller.id, caller.stage)).collect();
        for (id, stage) in late {
            match stage {
                Stage::Waiting => tools.fail(id, now, "timed-out", "the server did not answer"),
                Stage::Asking | Stage::Answered => tools.remove(id),
            }
        }
    }
}

/// The process that was started by the host and that `pid` descends from.
pub(crate) fn process_of(mut pid: i32, children: &crate::table::Table<i32, Child>) -> Option<u32> {
    for _ in 0..MOST_ANCESTORS {
        match children.get(pid) {
            Some(Child::Main(key) | Child::Supervisor(key)) => return Some(*key),
            Some(Child::Worker(_)) => return None,
            None if pid <= 1 => return None,
            None => pid = procfs::parent(pid)?,
        }
    }
    None
}

fn parse(line: &[u8]) -> Option<Wish<'_>> {
    if line.len() > LONGEST_LINE {
        return None;
    }
    if line == b"list" {
        return Some(Wish { name: b"", arguments: b"" });
    }
    let wish = line.strip_prefix(b"call ")?;
    let end = wish.iter().position(|byte| *byte == b' ').unwrap_or(wish.len());
    let (name, arguments) = (wish.get(..end)?, wish.get(end + 1..).unwrap_or_default());
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME && name.iter().all(known);
    (fits && arguments.len() <= LONGEST_ARGUMENTS).then_some(Wish { name, arguments })
}

/// One line, whatever the words are.
fn failure(code: &str, words: &[u8]) -> Vec<u8> {
    let mut line = [b"error ", code.as_bytes(), b" ", words].concat();
    for byte in &mut line {
        if *byte < b' ' {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line() {
        let check = |line: &[u8], expected: Option<(&str, &str)>| {
            let expected = expected.map(|(name, arguments)| Wish {
                name: name.as_bytes(),
                arguments: arguments.as_bytes(),
            });
            assert_eq!(parse(line), expected, "{:?}", String::from_utf8_lossy(line));
        };
        check(b"list", Some(("", "")));
        check(b"call add {\"a\": 1}", Some(("add", "{\"a\": 1}")));
        check(b"call add", Some(("add", "")));
        check(b"call a-b_c.d 1 2", Some(("a-b_c.d", "1 2")));
        for line in
            [&b""[..], b"call", b"call ", b"call  x", b"call a/b {}", b"call \xff {}", b"lists"]
        {
            check(line, None);
        }
        let long = |size: usize| [b"call x ", vec![b'1'; size].as_slice()].concat();
        assert!(parse(&long(LONGEST_ARGUMENTS)).is_some());
        assert!(parse(&long(LONGEST_ARGUMENTS + 1)).is_none());
        assert!(parse(format!("call {} 1", "x".repeat(65)).as_bytes()).is_none());
    }

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(failure("code", b"some\nwords\x1b"), b"error code some words \n");
    }

    #[test]
    fn calls_are_counted() {
        let start = Instant::now();
        let mut allowance = Allowance { left: MOST_AT_ONCE, counted_at: start };
        let mut admitted = |now| (0..5000).filter(|_| allowance.admit(now)).count();
        assert_eq!(admitted(start), 1000);
        assert_eq!(admitted(start + Duration::from_millis(100)), 400);
        assert_eq!(admitted(start + Duration::from_secs(100)), 1000);
    }
}
