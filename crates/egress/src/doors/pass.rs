//! A flow that is allowed as it is: connected, and carried without a look into it.

use std::time::Duration;

use belljar_policy::document::Transport;
use tokio::net::TcpStream;

use super::draft::Draft;
use super::head::{self, Head};
use super::pump::{self, Carried, Stopped};
use super::tcp::{Decided, Opening};
use crate::Reason;
use crate::flow::{Direction, Permit, Preview};
use crate::hello::Hello;

/// Idle peers are asked after this time.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

impl Opening {
    /// Connects and carries the bytes as they are. Where the client has not spoken yet, what it says first is checked
    /// then.
    pub(super) async fn pass(
        &mut self,
        host: &str,
        permit: Permit,
        draft: &mut Draft,
        carried: &Carried,
        unseen: Option<Unseen>,
    ) -> Result<Decided, Reason> {
        let reason = permit.reason;
        // In the mode `full` a greeting may name another host than the address was given for: the address counts.
        let known = self.names.iter().any(|name| name == host);
        let target = if known { host } else { &self.names[0] };
        let dialled = tokio::select! {
            dialled = self.judge.dial(target, self.port, self.address) => {
                dialled.map_err(|refusal| refusal.reason)?
            }
            () = permit.revoked() => return Err(Reason::Revoked),
        };
        let upstream = dialled.stream();
        draft.address = upstream.peer_addr().ok().map(|peer| peer.ip());
        for stream in [&self.stream, upstream] {
            let _ = stream.set_nodelay(true);
            let _ = belljar_sys::stream::keep_alive(stream, KEEP_ALIVE);
        }
        let (names, port) = (&self.names, self.port);
        let judge = &self.judge;
        let read = &mut self.read;
        let client = &self.stream;
        let up = async {
            if let Some(Unseen { full, looked_into }) = unseen {
                late(client, read, looked_into, |hello| {
                    let name = match &hello.server_name {
                        Some(name) if full || names.contains(name) => name,
                        Some(_) => return Err(Reason::SniMismatch),
                        None if full => return Ok(()),
                        None => return Err(Reason::SniMissing),
                    };
                    if hello.encrypted && !full {
                        return Err(Reason::EncryptedHello);
                    }
                    match judge.preview(name, port, Transport::Tcp) {
                        Preview::Allow | Preview::Inspect { required: false } => Ok(()),
                        // Allowed for the name that was approved, and for no other on that address.
                        Preview::Ask if name == host => Ok(()),
                        Preview::Ask | Preview::Inspect { required: true } => {
                            Err(Reason::SniMismatch)
                        }
                        Preview::Deny(reason) => Err(reason),
                    }
                })
                .await
                .map_err(Stopped::Refused)?;
            }
            pump::give(read, upstream, &permit, Direction::Up, &carried.up).await?;
            *read = Vec::new();
            pump::carry(client, upstream, &permit, Direction::Up, &carried.up).await
        };
        let down = pump::carry(upstream, client, &permit, Direction::Down, &carried.down);
        let ended = tokio::select! {
            // Asked first: once the rules have changed, not one byte more goes through.
            biased;
            () = permit.revoked() => Err(Stopped::Refused(Reason::Revoked)),
            both = async { tokio::try_join!(up, down) } => both.map(|_| ()),
            () = pump::idle(carried) => Err(Stopped::Refused(Reason::TimedOut)),
        };
        Ok(Decided::Done(match ended {
            Ok(()) => reason,
            Err(stopped) => {
                pump::reset(client);
                pump::reset(upstream);
                match stopped {
                    Stopped::Broken => reason,
                    Stopped::Refused(reason) => reason,
                }
            }
        }))
    }
}

/// Of a client that waits for the server to speak first.
#[derive(Clone, Copy)]
pub(super) struct Unseen {
    /// The mode is `full`.
    pub(super) full: bool,
    /// Requests to some name of the address must be seen, so that what is no TLS cannot pass: who waits a moment is not
    /// to get past what is asked of those who do not.
    pub(super) looked_into: bool,
}

/// Waits for a silent client's first bytes and checks them.
async fn late(
    client: &TcpStream,
    read: &mut Vec<u8>,
    looked_into: bool,
    check: impl FnOnce(&Hello) -> Result<(), Reason>,
) -> Result<(), Reason> {
    match head::read(client, read, None).await? {
        Head::Tls(hello) => check(&hello),
        Head::Plain if looked_into && !read.is_empty() => Err(Reason::Unsupported),
        Head::Plain | Head::Silent => Ok(()),
    }
}
