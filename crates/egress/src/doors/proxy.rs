//! The proxy door, for programs that insist on a proxy: HTTP `CONNECT`, absolute-form requests, and SOCKS5.
//!
//! The same rules as everywhere; names are resolved by us. In a sandbox's gateway identity comes from the socket: user names,
//! passwords and proxy headers are not looked at. A proxy that several sandboxes share, because no link leads to them, wants a
//! token with each connection and knows nobody without one. After a tunnel is granted, what goes through it is
//! judged like any connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::document::Transport;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::asked::{Asked, How, Refused, ask, socks_reply};
use super::draft::Draft;
use super::pump;
use super::tcp::Opening;
use super::token::Access;
use super::tunnel::{self, Target};
use crate::flow::{Entry, Intercepted, Judge, Prefixed, Preview, Room, Searched};
use crate::{Reason, http};

/// How long a client has to say where it wants to go.
const ASK_TIME: Duration = Duration::from_secs(10);
/// Connections to a proxy for several sandboxes that have not said yet whose they are, or are served.
const MAX_SHARED: usize = 8192;

const SOCKS_GRANTED: u8 = 0;
const SOCKS_NOT_ALLOWED: u8 = 2;
const SOCKS_UNREACHABLE: u8 = 4;

/// Serves until the gate is closed.
pub(crate) async fn serve(judge: Arc<Judge>, listener: TcpListener, flows: Arc<Semaphore>) {
    super::accept(&judge, listener, flows, |stream| {
        let judge = Arc::clone(&judge);
        async move {
            let closed = judge.live().closed().clone();
            closed.run_until_cancelled(welcome(Access::Own(judge), stream)).await;
        }
    })
    .await;
}

/// Serves all sandboxes that have a gate and show their token.
pub(crate) async fn serve_shared(
    access: Access,
    listener: TcpListener,
    room: Arc<Room>,
    closed: CancellationToken,
) {
    let open = Arc::new(Semaphore::new(MAX_SHARED));
    while let Ok(turn) = Arc::clone(&open).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(super::ACCEPT_PAUSE).await;
            continue;
        };
        let Some(place) = room.enter() else {
            pump::reset(&stream);
            continue;
        };
        let (access, closed) = (access.clone(), closed.clone());
        tokio::spawn(async move {
            closed.run_until_cancelled(welcome(access, stream)).await;
            drop((turn, place));
        });
    }
}

async fn welcome(access: Access, mut stream: TcpStream) {
    let mut read = Vec::new();
    let asked = timeout(ASK_TIME, ask(&access, &mut stream, &mut read)).await;
    let (asked, judge) = match asked {
        Ok(Ok(asked)) => asked,
        // Nothing was asked for, so there is nothing to record.
        Ok(Err(Refused::Gone)) | Err(_) => return,
        Ok(Err(Refused::Malformed(reply))) => {
            if let Some(judge) = access.own() {
                judge.record(Draft::new(Transport::Tcp, None, 0).finish(Reason::Malformed, 0, 0));
            }
            let _ = timeout(ASK_TIME, stream.write_all(&reply)).await;
            return;
        }
        // Nobody whom it could be recorded for.
        Ok(Err(Refused::Unknown(reply))) => {
            tracing::debug!("a client of the shared proxy has no token that holds");
            let _ = timeout(ASK_TIME, stream.write_all(&reply)).await;
            return;
        }
    };
    // In a gateway of its own its place was taken when it came.
    let place = if access.own().is_none() { judge.enter() } else { None };
    if access.own().is_none() && place.is_none() {
        pump::reset(&stream);
        return;
    }
    let searched = judge.search(Transport::Tcp, stream.peer_addr().ok(), stream.local_addr().ok());
    let closed = judge.live().closed().clone();
    closed.run_until_cancelled(attend(judge, stream, asked, read, searched)).await;
    drop(place);
}

async fn attend(
    judge: Arc<Judge>,
    stream: TcpStream,
    asked: Asked,
    read: Vec<u8>,
    searched: Searched,
) {
    match asked {
        Asked::Tunnel { target, how } => tunnel(judge, stream, target, how, read, searched).await,
        Asked::Requests => {
            let permit = judge.attend();
            let source = stream.peer_addr().ok();
            let stream = Prefixed::new(read, stream);
            // Each request leaves its own record; the connection to the proxy itself goes nowhere.
            let names = Vec::new();
            let (entry, address, port) = (Entry::Proxy, None, 0);
            let greeting = None;
            let intercepted = Intercepted {
                stream,
                entry,
                names,
                address,
                port,
                source,
                greeting,
                searched,
                judge,
                permit,
            };
            http::serve(intercepted).await;
        }
    }
}

/// Grants or refuses a tunnel, then treats what goes through it like any connection.
async fn tunnel(
    judge: Arc<Judge>,
    mut stream: TcpStream,
    target: Target,
    how: How,
    read: Vec<u8>,
    searched: Searched,
) {
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
        judge.record_of(&searched, draft.finish(reason, 0, 0));
        return;
    }
    if !matches!(written, Ok(Ok(()))) {
        pump::reset(&stream);
        return;
    }
    let port = target.port;
    let greeting = None;
    let opening = Opening { judge, stream, names, address, port, read, greeting, searched };
    opening.conduct().await;
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
