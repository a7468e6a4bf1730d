//! The proxy door, for programs that insist on a proxy: HTTP `CONNECT`, absolute-form requests, and SOCKS5.
//!
//! The same rules as everywhere; names are resolved by us. Identity comes from the socket: user names, passwords and
//! proxy headers are not looked at. After a tunnel is granted, what goes through it is judged like any connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::document::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::draft::Draft;
use super::pump;
use super::tcp::Opening;
use super::tunnel::{self, Target};
use crate::flow::{Entry, Intercepted, Judge, Prefixed, Preview};
use crate::{Reason, http};

/// How long a client has to say where it wants to go.
const ASK_TIME: Duration = Duration::from_secs(10);
const MAX_HEAD: usize = 16 * 1024;

const SOCKS5: u8 = 5;
const SOCKS_GRANTED: u8 = 0;
const SOCKS_FAILED: u8 = 1;
const SOCKS_NOT_ALLOWED: u8 = 2;
const SOCKS_UNREACHABLE: u8 = 4;
const SOCKS_NO_SUCH_COMMAND: u8 = 7;
const SOCKS_NO_SUCH_ADDRESS: u8 = 8;

/// Serves until the gate is closed.
pub(crate) async fn serve(judge: Arc<Judge>, listener: TcpListener, flows: Arc<Semaphore>) {
    super::accept(&judge, listener, flows, |stream| {
        let judge = Arc::clone(&judge);
        async move {
            let closed = judge.live().closed().clone();
            closed.run_until_cancelled(welcome(judge, stream)).await;
        }
    })
    .await;
}

async fn welcome(judge: Arc<Judge>, mut stream: TcpStream) {
    let mut read = Vec::new();
    let asked = timeout(ASK_TIME, ask(&mut stream, &mut read)).await;
    let asked = match asked {
        Ok(Ok(asked)) => asked,
        // Nothing was asked for, so there is nothing to record.
        Ok(Err(Refused::Gone)) | Err(_) => return,
        Ok(Err(Refused::Malformed(reply))) => {
            judge.record(Draft::new(Transport::Tcp, None, 0).finish(Reason::Malformed, 0, 0));
            let _ = timeout(ASK_TIME, stream.write_all(&reply)).await;
            return;
        }
    };
    match asked {
        Asked::Tunnel { target, how } => tunnel(judge, stream, target, how, read).await,
        Asked::Requests => {
            let permit = judge.attend();
            let stream = Prefixed::new(read, stream);
            // Each request leaves its own record; the connection to the proxy itself goes nowhere.
            let names = Vec::new();
            let (entry, address, port) = (Entry::Proxy, None, 0);
            http::serve(Intercepted { stream, entry, names, address, port, judge, permit }).await;
        }
    }
}

/// What the client of a proxy wants.
enum Asked {
    Tunnel {
        target: Target,
        how: How,
    },
    /// Requests in absolute form.
    Requests,
}

/// How it asked, and is answered.
#[derive(Clone, Copy)]
enum How {
    Connect,
    Socks,
}

enum Refused {
    /// The client went away.
    Gone,
    Malformed(Vec<u8>),
}

impl From<std::io::Error> for Refused {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// Reads what is wanted; `read` has what came after it (or, for requests, all of it).
async fn ask(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<Asked, Refused> {
    loop {
        if stream.read_buf(read).await? == 0 {
            return Err(Refused::Gone);
        }
        if read[0] == SOCKS5 {
            return socks(stream, read).await;
        }
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
            if read.len() > MAX_HEAD {
                return Err(Refused::Malformed(tunnel::malformed()));
            }
            continue;
        };
        let head = &read[..end];
        if !head.starts_with(b"CONNECT ") {
            return Ok(Asked::Requests);
        }
        let target = tunnel::connect_target(head);
        let target = target.ok_or_else(|| Refused::Malformed(tunnel::malformed()))?;
        read.drain(..end + 4);
        return Ok(Asked::Tunnel { target, how: How::Connect });
    }
}

async fn socks(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<Asked, Refused> {
    let refuse = |code: u8| Refused::Malformed(socks_reply(code));
    need(stream, read, 2).await?;
    let methods = usize::from(read[1]);
    need(stream, read, 2 + methods).await?;
    if !read[2..2 + methods].contains(&0) {
        return Err(Refused::Malformed(vec![SOCKS5, 0xff]));
    }
    read.drain(..2 + methods);
    stream.write_all(&[SOCKS5, 0]).await?;
    need(stream, read, 5).await?;
    let &[version, command, _, kind, length] = read.first_chunk().ok_or(Refused::Gone)?;
    if version != SOCKS5 {
        return Err(refuse(SOCKS_FAILED));
    }
    if command != 1 {
        return Err(refuse(SOCKS_NO_SUCH_COMMAND));
    }
    let (begin, end) = match kind {
        1 => (4, 8),
        3 => (5, 5 + usize::from(length)),
        4 => (4, 20),
        _ => return Err(refuse(SOCKS_NO_SUCH_ADDRESS)),
    };
    need(stream, read, end + 2).await?;
    let address = &read[begin..end];
    let port = u16::from_be_bytes([read[end], read[end + 1]]);
    let target = match kind {
        1 => address.first_chunk::<4>().map(|&octets| Ipv4Addr::from(octets).into()),
        4 => address.first_chunk::<16>().map(|&octets| Ipv6Addr::from(octets).into()),
        _ => None,
    };
    let target = match target {
        Some(address) => Target::address(address, port),
        None => std::str::from_utf8(address).ok().and_then(|name| Target::parse(name, port)),
    };
    let target = target.ok_or_else(|| refuse(SOCKS_FAILED))?;
    read.drain(..end + 2);
    Ok(Asked::Tunnel { target, how: How::Socks })
}

async fn need(stream: &mut TcpStream, read: &mut Vec<u8>, length: usize) -> Result<(), Refused> {
    while read.len() < length {
        if stream.read_buf(read).await? == 0 {
            return Err(Refused::Gone);
        }
    }
    Ok(())
}

fn socks_reply(code: u8) -> Vec<u8> {
    vec![SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Grants or refuses a tunnel, then treats what goes through it like any connection.
async fn tunnel(judge: Arc<Judge>, mut stream: TcpStream, target: Target, how: How, read: Vec<u8>) {
    let (names, address): (Vec<String>, Option<IpAddr>) = match &target.host {
        Ok(name) => (vec![name.clone()], None),
        Err(address) => {
            let pinned = judge.names().names(*address);
            (pinned.into_iter().map(|pinned| pinned.name).collect(), Some(*address))
        }
    };
    let refusal = refusal(&judge, &target, &names).await;
    let reply = match (how, refusal) {
        (How::Connect, None) => tunnel::GRANTED.to_vec(),
        (How::Connect, Some(reason)) => tunnel::refused(&target, reason),
        (How::Socks, None) => socks_reply(SOCKS_GRANTED),
        (How::Socks, Some(Reason::ResolveFailed)) => socks_reply(SOCKS_UNREACHABLE),
        (How::Socks, Some(_)) => socks_reply(SOCKS_NOT_ALLOWED),
    };
    let written = timeout(ASK_TIME, stream.write_all(&reply)).await;
    if let Some(reason) = refusal {
        let mut draft = Draft::new(Transport::Tcp, address, target.port);
        draft.host = target.host.ok();
        judge.record(draft.finish(reason, 0, 0));
        return;
    }
    if !matches!(written, Ok(Ok(()))) {
        pump::reset(&stream);
        return;
    }
    let port = target.port;
    Opening { judge, stream, names, address, port, read }.conduct().await;
}

/// Why there is no point in granting it. What is granted is judged again, with what goes through.
async fn refusal(judge: &Judge, target: &Target, names: &[String]) -> Option<Reason> {
    let Ok(name) = &target.host else {
        // Addresses are judged as the TCP door does.
        let open = !names.is_empty() || judge.allows_addresses();
        return (!open).then_some(Reason::NotResolved);
    };
    match judge.preview(name, target.port, Transport::Tcp) {
        Preview::Deny(reason) => Some(reason),
        // Nothing is resolved before somebody said yes.
        Preview::Ask => None,
        Preview::Allow | Preview::Inspect { .. } => {
            let rules = judge.rules();
            judge.names().locate(name, None, &rules.cidrs).await.err().map(|found| found.reason())
        }
    }
}
