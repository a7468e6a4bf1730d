//! What the client of a proxy says first: who it is where that must be said, and where it wants to go.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::token::Access;
use super::tunnel::{self, Target};
use crate::flow::Judge;

const MAX_HEAD: usize = 16 * 1024;

const SOCKS5: u8 = 5;
const SOCKS_FAILED: u8 = 1;
const SOCKS_NO_SUCH_COMMAND: u8 = 7;
const SOCKS_NO_SUCH_ADDRESS: u8 = 8;
/// Ways to say who one is (RFC 1928): not at all, by user name and password, none that is known.
const NO_PROOF: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
/// The version of asking for user name and password (RFC 1929).
const PASSWORD_VERSION: u8 = 1;

/// What the client of a proxy wants.
pub(super) enum Asked {
    Tunnel {
        target: Target,
        how: How,
    },
    /// Requests in absolute form.
    Requests,
}

/// How it asked, and is answered.
#[derive(Clone, Copy)]
pub(super) enum How {
    Connect,
    Socks,
}

/// Why it gets nothing.
pub(super) enum Refused {
    /// The client went away.
    Gone,
    Malformed(Vec<u8>),
    /// It did not show whose it is.
    Unknown(Vec<u8>),
}

impl From<std::io::Error> for Refused {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

/// Reads what is wanted; `read` has what came after it (or, for requests, all of it).
pub(super) async fn ask(
    access: &Access,
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
) -> Result<(Asked, Arc<Judge>), Refused> {
    loop {
        if stream.read_buf(read).await? == 0 {
            return Err(Refused::Gone);
        }
        if read[0] == SOCKS5 {
            return socks(access, stream, read).await;
        }
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
            if read.len() > MAX_HEAD {
                return Err(Refused::Malformed(tunnel::malformed()));
            }
            continue;
        };
        let head = &read[..end];
        let judge = access.by_head(head).ok_or_else(|| Refused::Unknown(tunnel::unknown()))?;
        if !head.starts_with(b"CONNECT ") {
            return Ok((Asked::Requests, judge));
        }
        let target = tunnel::connect_target(head);
        let target = target.ok_or_else(|| Refused::Malformed(tunnel::malformed()))?;
        read.drain(..end + 4);
        return Ok((Asked::Tunnel { target, how: How::Connect }, judge));
    }
}

async fn socks(
    access: &Access,
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
) -> Result<(Asked, Arc<Judge>), Refused> {
    let refuse = |code: u8| Refused::Malformed(socks_reply(code));
    let judge = identify(access, stream, read).await?;
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
    Ok((Asked::Tunnel { target, how: How::Socks }, judge))
}

/// Agrees on how the client says who it is, and hears it.
async fn identify(
    access: &Access,
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
) -> Result<Arc<Judge>, Refused> {
    need(stream, read, 2).await?;
    let methods = usize::from(read[1]);
    need(stream, read, 2 + methods).await?;
    let wanted = if access.own().is_some() { NO_PROOF } else { PASSWORD };
    if !read[2..2 + methods].contains(&wanted) {
        return Err(Refused::Malformed(vec![SOCKS5, NO_METHOD]));
    }
    read.drain(..2 + methods);
    stream.write_all(&[SOCKS5, wanted]).await?;
    if let Some(judge) = access.own() {
        return Ok(Arc::clone(judge));
    }
    need(stream, read, 2).await?;
    let user = usize::from(read[1]);
    need(stream, read, 3 + user).await?;
    let password = 3 + user..3 + user + usize::from(read[2 + user]);
    need(stream, read, password.end).await?;
    let token = std::str::from_utf8(&read[password.clone()]).ok();
    let known = token.filter(|_| read[0] == PASSWORD_VERSION).and_then(|t| access.by_token(t));
    let judge = known.ok_or_else(|| Refused::Unknown(vec![PASSWORD_VERSION, 1]))?;
    read.drain(..password.end);
    stream.write_all(&[PASSWORD_VERSION, 0]).await?;
    Ok(judge)
}

async fn need(stream: &mut TcpStream, read: &mut Vec<u8>, length: usize) -> Result<(), Refused> {
    while read.len() < length {
        if stream.read_buf(read).await? == 0 {
            return Err(Refused::Gone);
        }
    }
    Ok(())
}

pub(super) fn socks_reply(code: u8) -> Vec<u8> {
    vec![SOCKS5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
