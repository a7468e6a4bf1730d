//! The TCP door: original destination → pinned names → rule → connection.
//!
//! The first bytes of a client are always looked at, whenever they come:
//! - A TLS greeting must name one of the names that the address was given for; that name is judged.
//! - Anything else is judged by the names of the address. Where one needs requests to be seen, it must be HTTP.
//! - A client that stays silent may be waiting for the server to speak first. Where the names of the address allow the flow without
//!   looking into it, the connection is made and the server's bytes pass; the client's first bytes are still
//!   checked when they come.
//!
//! In the mode `full`, addresses without a name and greetings for other names are judged by what they say.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_policy::NetworkMode;
use belljar_policy::document::Transport;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::draft::Draft;
use super::head::{self, Head, is_http};
use super::pump::{self, Carried, Stopped};
use crate::flow::{
    Answer, Direction, Entry, Intercepted, Judge, Outcome, Permit, Prefixed, Preview, Question,
};
use crate::hello::Hello;
use crate::{Reason, address, http};

/// Ports where TLS usually carries HTTP, whether or not the client says so.
const HTTPS_PORTS: [u16; 2] = [443, 8443];
/// Idle peers are asked after this time.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Serves until the gate is closed. Beyond the sandbox's number of flows, connections wait in the kernel's queue.
pub(crate) async fn serve(judge: Arc<Judge>, listener: TcpListener, flows: Arc<Semaphore>) {
    super::accept(listener, flows, |stream| {
        let judge = Arc::clone(&judge);
        async move {
            let Ok(original) = judge.settings().destinations.original(&stream) else {
                let draft = Draft::new(Transport::Tcp, None, 0);
                judge.record(draft.finish(Reason::NotResolved, 0, 0));
                pump::reset(&stream);
                return;
            };
            let address = original.ip().to_canonical();
            let names =
                judge.names().names(address).into_iter().map(|pinned| pinned.name).collect();
            let port = original.port();
            let read = Vec::new();
            Opening { judge, stream, names, address: Some(address), port, read }.conduct().await;
        }
    })
    .await;
}

/// A connection of which only the destination is known.
pub(crate) struct Opening {
    pub(crate) judge: Arc<Judge>,
    pub(crate) stream: TcpStream,
    /// Verified names of the destination.
    pub(crate) names: Vec<String>,
    /// None where only a name was asked for (by a proxy's client).
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    /// Bytes of the client that were read already.
    pub(crate) read: Vec<u8>,
}

impl Opening {
    /// Judges, carries and records the connection.
    pub(crate) async fn conduct(self) {
        let judge = Arc::clone(&self.judge);
        let mut draft = Draft::new(Transport::Tcp, self.address, self.port);
        let carried = Carried::default();
        let closed = judge.live().closed().clone();
        let ended = closed.run_until_cancelled(self.run(&mut draft, &carried)).await;
        let outcome = ended.unwrap_or(Err(Reason::Revoked)).unwrap_or_else(|reason| Outcome {
            reason,
            bytes_up: carried.up.load(Ordering::Relaxed),
            bytes_down: carried.down.load(Ordering::Relaxed),
        });
        judge.record(draft.finish(outcome.reason, outcome.bytes_up, outcome.bytes_down));
    }

    async fn run(mut self, draft: &mut Draft, carried: &Carried) -> Result<Outcome, Reason> {
        let result = self.decide(draft, carried).await;
        if result.is_err() {
            pump::reset(&self.stream);
        }
        match result? {
            Decided::Done(reason) => Err(reason),
            Decided::Inspect { permit, entry, names } => {
                let token = permit.token().clone();
                let served = http::serve(Intercepted {
                    stream: Prefixed::new(self.read, self.stream),
                    entry,
                    names,
                    address: self.address,
                    port: self.port,
                    judge: self.judge,
                    permit,
                });
                tokio::select! {
                    outcome = served => Ok(outcome),
                    () = token.cancelled() => Err(Reason::Revoked),
                }
            }
        }
    }

    async fn decide(&mut self, draft: &mut Draft, carried: &Carried) -> Result<Decided, Reason> {
        let rules = self.judge.rules();
        let full = rules.mode == NetworkMode::Full;
        if self.names.is_empty() {
            let address = self.address.ok_or(Reason::NotResolved)?;
            if !full && rules.ask.is_none() {
                return Err(Reason::NotResolved);
            }
            if !address::admits(address, &rules.cidrs) {
                return Err(Reason::AddressNotPublic);
            }
            self.names.push(address.to_string());
        } else {
            draft.host = self.names.first().cloned();
        }
        let previews = self.previews();
        let possible = previews.iter().any(|(_, preview)| !matches!(preview, Preview::Deny(_)));
        if !possible {
            return Err(worst(&previews));
        }
        let must_speak = previews.iter().all(|(_, preview)| {
            matches!(preview, Preview::Deny(_) | Preview::Inspect { required: true })
        });
        let wait = if must_speak { head::HEAD_TIME } else { head::SERVER_FIRST_TIME };
        let found = head::read(&self.stream, &mut self.read, Some(wait)).await?;
        match found {
            Head::Tls(hello) => {
                draft.sni.clone_from(&hello.server_name);
                let host = self.name_in(&hello, full)?;
                draft.host = Some(host.clone());
                let (permit, required) = self.judged(&host, draft).await?;
                let likely = hello.offers_http || HTTPS_PORTS.contains(&self.port);
                match required {
                    Some(required) if required || likely => {
                        Ok(Decided::Inspect { permit, entry: Entry::Tls, names: vec![host] })
                    }
                    _ if hello.encrypted && !full => Err(Reason::EncryptedHello),
                    _ => self.pass(&host, permit, draft, carried, None).await,
                }
            }
            Head::Plain => {
                let http = is_http(&self.read);
                let inspected = previews.iter().find(|(_, preview)| match preview {
                    Preview::Inspect { required } => *required || http,
                    _ => false,
                });
                let host = match inspected {
                    Some((name, _)) => name.clone(),
                    None => best(&previews).ok_or_else(|| worst(&previews))?,
                };
                let inspects = inspected.is_some();
                let (permit, required) = self.judged(&host, draft).await?;
                if inspects && required.is_some() {
                    let open = |(name, preview): (String, Preview)| {
                        (!matches!(preview, Preview::Deny(_))).then_some(name)
                    };
                    let names = previews.into_iter().filter_map(open).collect();
                    return Ok(Decided::Inspect { permit, entry: Entry::Plain, names });
                }
                if required == Some(true) {
                    return Err(Reason::Revoked);
                }
                draft.host = Some(host.clone());
                self.pass(&host, permit, draft, carried, None).await
            }
            Head::Silent if must_speak => Err(Reason::TimedOut),
            Head::Silent => {
                let host = best(&previews).ok_or_else(|| worst(&previews))?;
                draft.host = Some(host.clone());
                let (permit, required) = self.judged(&host, draft).await?;
                if required == Some(true) {
                    return Err(Reason::Revoked);
                }
                self.pass(&host, permit, draft, carried, Some(full)).await
            }
        }
    }

    /// Asks the judge; `Some` says that requests should, or (true) must be seen.
    async fn judged(
        &self,
        host: &str,
        draft: &mut Draft,
    ) -> Result<(Permit, Option<bool>), Reason> {
        let question = Question {
            host,
            address: self.address,
            port: self.port,
            transport: Transport::Tcp,
            request: None,
        };
        match self.judge.judge(question).await {
            Answer::Allow(permit) => {
                draft.rule.clone_from(&permit.rule);
                Ok((permit, None))
            }
            Answer::Inspect { permit, required } => Ok((permit, Some(required))),
            Answer::Deny(refusal) => {
                draft.rule = refusal.rule;
                Err(refusal.reason)
            }
        }
    }

    /// The verified name that a TLS greeting is for.
    fn name_in(&self, hello: &Hello, full: bool) -> Result<String, Reason> {
        match &hello.server_name {
            Some(name) if full || self.names.contains(name) => Ok(name.clone()),
            Some(_) => Err(Reason::SniMismatch),
            None if full => Ok(self.names[0].clone()),
            None if hello.encrypted => Err(Reason::EncryptedHello),
            None => Err(Reason::SniMissing),
        }
    }

    fn previews(&self) -> Vec<(String, Preview)> {
        let preview =
            |name: &String| (name.clone(), self.judge.preview(name, self.port, Transport::Tcp));
        self.names.iter().map(preview).collect()
    }

    /// Connects and carries the bytes as they are. `unseen` says that the client has not spoken yet (and whether the mode is
    /// `full`): what it says first is checked then.
    async fn pass(
        &mut self,
        host: &str,
        permit: Permit,
        draft: &mut Draft,
        carried: &Carried,
        unseen: Option<bool>,
    ) -> Result<Decided, Reason> {
        let reason = permit.reason;
        // In the mode `full` a greeting may name another host than the address was given for: the address counts.
        let known = self.names.iter().any(|name| name == host);
        let target = if known { host } else { &self.names[0] };
        let upstream = tokio::select! {
            dialled = self.judge.dial(target, self.port, self.address) => {
                dialled.map_err(|refusal| refusal.reason)?
            }
            () = permit.revoked() => return Err(Reason::Revoked),
        };
        draft.address = upstream.peer_addr().ok().map(|peer| peer.ip());
        for stream in [&self.stream, &upstream] {
            let _ = stream.set_nodelay(true);
            let _ = belljar_sys::stream::keep_alive(stream, KEEP_ALIVE);
        }
        let (names, port) = (&self.names, self.port);
        let judge = &self.judge;
        let read = &mut self.read;
        let client = &self.stream;
        let up = async {
            if let Some(full) = unseen {
                late(client, read, |hello| {
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
            pump::give(read, &upstream, &permit, Direction::Up, &carried.up).await?;
            *read = Vec::new();
            pump::carry(client, &upstream, &permit, Direction::Up, &carried.up).await
        };
        let down = pump::carry(&upstream, client, &permit, Direction::Down, &carried.down);
        let ended = tokio::select! {
            both = async { tokio::try_join!(up, down) } => both.map(|_| ()),
            () = permit.revoked() => Err(Stopped::Refused(Reason::Revoked)),
            () = pump::idle(carried) => Err(Stopped::Refused(Reason::TimedOut)),
        };
        match ended {
            Ok(()) => Ok(Decided::Done(reason)),
            Err(stopped) => {
                pump::reset(client);
                pump::reset(&upstream);
                match stopped {
                    Stopped::Broken => Ok(Decided::Done(reason)),
                    Stopped::Refused(reason) => Err(reason),
                }
            }
        }
    }
}

/// What a connection comes to.
enum Decided {
    /// It is over.
    Done(Reason),
    Inspect {
        permit: Permit,
        entry: Entry,
        names: Vec<String>,
    },
}

/// Waits for a silent client's first bytes and checks them.
async fn late(
    client: &TcpStream,
    read: &mut Vec<u8>,
    check: impl FnOnce(&Hello) -> Result<(), Reason>,
) -> Result<(), Reason> {
    match head::read(client, read, None).await? {
        Head::Tls(hello) => check(&hello),
        Head::Plain | Head::Silent => Ok(()),
    }
}

/// The name under which a flow goes on without being looked into.
fn best(previews: &[(String, Preview)]) -> Option<String> {
    let rank = |preview: &Preview| match preview {
        Preview::Allow => Some(0),
        Preview::Inspect { required: false } => Some(1),
        Preview::Ask => Some(2),
        Preview::Inspect { required: true } | Preview::Deny(_) => None,
    };
    let ranked = previews.iter().filter_map(|(name, preview)| Some((rank(preview)?, name)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, name)| name.clone())
}

/// Why none of the names will do.
fn worst(previews: &[(String, Preview)]) -> Reason {
    let reason = |(_, preview): &(String, Preview)| match preview {
        Preview::Deny(reason) => Some(*reason),
        _ => None,
    };
    previews.iter().find_map(reason).unwrap_or(Reason::Unsupported)
}
