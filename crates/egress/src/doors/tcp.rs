//! The TCP door: original destination → pinned names → rule → connection.
//!
//! The first bytes of a client are always looked at, whenever they come:
//! - A TLS greeting must name one of the names that the address was given for; that name is judged.
//! - Anything else is judged by the names of the address. Where one needs requests to be seen, it must be HTTP.
//! - A client that stays silent may be waiting for the server to speak first. Where the names of the address allow the flow without
//!   looking into it, the connection is made and the server's bytes pass; the client's first bytes are still
//!   checked when they come.
//!
//! Where a program decides, it is asked once the first bytes are known (or the client stays silent). What it accepts as
//! HTTP is looked into, under the one name that it was asked about.
//!
//! In the mode `full`, addresses without a name and greetings for other names are judged by what they say.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use belljar_policy::NetworkMode;
use belljar_policy::document::Transport;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::candidates::Candidates;
use super::draft::Draft;
use super::farewell;
use super::head::{self, Head, is_http};
use super::pass::Unseen;
use super::pump::{self, Carried};
use super::tunnel::Target;
use crate::flow::{
    Answer, Entry, Intercepted, Judge, Outcome, Permit, Prefixed, Question, Searched,
};
use crate::hello::Hello;
use crate::{Greeting, Reason, address, http};

/// Ports where TLS usually carries HTTP, whether or not the client says so.
const HTTPS_PORTS: [u16; 2] = [443, 8443];
/// Stands in messages for a destination that was never told.
const UNKNOWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Serves until the gate is closed. Beyond the sandbox's number of flows, connections wait in the kernel's queue.
pub(crate) async fn serve(judge: Arc<Judge>, listener: TcpListener, flows: Arc<Semaphore>) {
    super::accept(&judge, listener, flows, |stream| {
        let judge = Arc::clone(&judge);
        async move {
            let Ok(original) = judge.settings().destinations.original(&stream) else {
                let draft = Draft::new(Transport::Tcp, None, 0);
                judge.record(draft.finish(Reason::NotResolved, 0, 0));
                pump::reset(&stream);
                return;
            };
            let client = stream.peer_addr().ok();
            let searched = judge.search(Transport::Tcp, client, Some(original));
            let address = original.ip().to_canonical();
            let names =
                judge.names().names(address).into_iter().map(|pinned| pinned.name).collect();
            let port = original.port();
            let read = Vec::new();
            let address = Some(address);
            let greeting = None;
            let opening = Opening { judge, stream, names, address, port, read, greeting, searched };
            opening.conduct().await;
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
    /// What it says in TLS, once that was read.
    pub(crate) greeting: Option<Greeting>,
    /// Whose it is.
    pub(crate) searched: Searched,
}

fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

impl Opening {
    /// Judges, carries and records the connection.
    pub(crate) async fn conduct(self) {
        let judge = Arc::clone(&self.judge);
        let mut draft = Draft::new(Transport::Tcp, self.address, self.port);
        let carried = Carried::default();
        let closed = judge.live().closed().clone();
        let searched = self.searched.clone();
        let ended = closed.run_until_cancelled(self.run(&mut draft, &carried)).await;
        let outcome = ended.unwrap_or(Err(Reason::Revoked)).unwrap_or_else(|reason| Outcome {
            reason,
            bytes_up: carried.up.load(Ordering::Relaxed),
            bytes_down: carried.down.load(Ordering::Relaxed),
        });
        let record = draft.finish(outcome.reason, outcome.bytes_up, outcome.bytes_down);
        judge.record_of(&searched, record);
    }

    async fn run(mut self, draft: &mut Draft, carried: &Carried) -> Result<Outcome, Reason> {
        match self.decide(draft, carried).await {
            Err(Reason::Revoked) => {
                pump::reset(&self.stream);
                Err(Reason::Revoked)
            }
            Err(reason) => {
                let host = draft.host.clone().ok_or(self.address.unwrap_or(UNKNOWN));
                let target = Target { host, port: self.port };
                farewell::say(&self.stream, &mut self.read, &target, reason).await;
                Err(reason)
            }
            Ok(Decided::Done(reason)) => Err(reason),
            Ok(Decided::Inspect { permit, entry, names }) => {
                let token = permit.token().clone();
                let source = self.source();
                let served = http::serve(Intercepted {
                    stream: Prefixed::new(self.read, self.stream),
                    entry,
                    names,
                    address: self.address,
                    port: self.port,
                    source,
                    greeting: self.greeting,
                    searched: self.searched,
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
        let mut nameless = false;
        if self.names.is_empty() {
            let address = self.address.ok_or(Reason::NotResolved)?;
            if !self.judge.allows_addresses() {
                return Err(Reason::NotResolved);
            }
            if !address::admits(address, &rules.cidrs) {
                return Err(Reason::AddressNotPublic);
            }
            self.names.push(address.to_string());
            nameless = true;
        } else {
            draft.host = self.names.first().cloned();
        }
        let preview = |name: &str| self.judge.preview(name, self.port, Transport::Tcp);
        let candidates = Candidates::new(&self.names, preview);
        if let Some(reason) = candidates.refusal() {
            return Err(reason);
        }
        let must_speak = candidates.must_speak();
        let wait = if must_speak { head::HEAD_TIME } else { head::SERVER_FIRST_TIME };
        match head::read(&self.stream, &mut self.read, Some(wait)).await? {
            Head::Tls(hello) => {
                draft.sni.clone_from(&hello.server_name);
                self.greeting = Some(hello.greeting());
                // A program that decides about an address is told what the client claims, and decides about the address.
                let host = match nameless && rules.callback.connections {
                    true => self.names[0].clone(),
                    false => self.name_in(&hello, full)?,
                };
                let http = hello.offers_http() || HTTPS_PORTS.contains(&self.port);
                match self.judged(&host, http, draft).await? {
                    Judged::Inspect(_) if nameless && !full => Err(Reason::SniMismatch),
                    Judged::Inspect(permit) => {
                        Ok(Decided::Inspect { permit, entry: Entry::Tls, names: vec![host] })
                    }
                    Judged::Pass(_) if hello.encrypted && !full => Err(Reason::EncryptedHello),
                    Judged::Pass(permit) => self.pass(&host, permit, draft, carried, None).await,
                }
            }
            Head::Plain => {
                let http = is_http(&self.read);
                let host = match candidates.inspected(http) {
                    Some(name) => name,
                    None => candidates.best_of(head::claimed_host(&self.read).as_deref())?,
                };
                match self.judged(&host, http, draft).await? {
                    // A program that was asked about one name decided about no other.
                    Judged::Inspect(permit) if permit.reason == Reason::CallbackAllows => {
                        Ok(Decided::Inspect { permit, entry: Entry::Plain, names: vec![host] })
                    }
                    Judged::Inspect(permit) => {
                        let names = candidates.open();
                        Ok(Decided::Inspect { permit, entry: Entry::Plain, names })
                    }
                    Judged::Pass(permit) => self.pass(&host, permit, draft, carried, None).await,
                }
            }
            Head::Silent if must_speak => Err(Reason::TimedOut),
            Head::Silent => {
                let host = candidates.best()?;
                match self.judged(&host, false, draft).await? {
                    Judged::Inspect(permit) if permit.reason == Reason::CallbackAllows => {
                        self.spoken(host, permit, draft).await
                    }
                    // The rules changed since they were asked.
                    Judged::Inspect(_) => Err(Reason::Revoked),
                    Judged::Pass(permit) => {
                        let looked_into = candidates.inspected(false).is_some();
                        let unseen = Unseen { full, looked_into };
                        self.pass(&host, permit, draft, carried, Some(unseen)).await
                    }
                }
            }
        }
    }

    async fn judged(&self, host: &str, http: bool, draft: &mut Draft) -> Result<Judged, Reason> {
        draft.host = Some(host.to_owned());
        let question = Question {
            host,
            address: self.address,
            port: self.port,
            transport: Transport::Tcp,
            request: None,
            source: self.source(),
            greeting: self.greeting.as_ref(),
        };
        let answer = match http {
            true => self.judge.judge(question).await,
            false => self.judge.judge_opaque(question).await,
        };
        match answer {
            Answer::Allow(permit) => {
                draft.rule.clone_from(&permit.rule);
                Ok(Judged::Pass(permit))
            }
            Answer::Inspect(permit) => {
                draft.rule.clone_from(&permit.rule);
                Ok(Judged::Inspect(permit))
            }
            Answer::Deny(refusal) => {
                draft.rule = refusal.rule;
                Err(refusal.reason)
            }
        }
    }

    /// Waits for a client that was accepted as HTTP before it said anything.
    async fn spoken(
        &mut self,
        host: String,
        permit: Permit,
        draft: &mut Draft,
    ) -> Result<Decided, Reason> {
        let head = head::read(&self.stream, &mut self.read, Some(head::HEAD_TIME)).await?;
        let entry = match head {
            Head::Silent => return Err(Reason::TimedOut),
            Head::Plain => Entry::Plain,
            Head::Tls(hello) => {
                draft.sni.clone_from(&hello.server_name);
                self.greeting = Some(hello.greeting());
                if self.name_in(&hello, false)? != host {
                    return Err(Reason::SniMismatch);
                }
                Entry::Tls
            }
        };
        Ok(Decided::Inspect { permit, entry, names: vec![host] })
    }

    fn source(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok().map(canonical)
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
}

/// What a connection comes to.
pub(super) enum Decided {
    /// It is over.
    Done(Reason),
    Inspect {
        permit: Permit,
        entry: Entry,
        names: Vec<String>,
    },
}

enum Judged {
    Pass(Permit),
    Inspect(Permit),
}
