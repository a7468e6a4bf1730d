//! Answers the requests of one client connection: reads, judges, sends or refuses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use belljar_policy::document::{Flow, NetworkVerdict, Transport};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::Body;
use super::exchange::Exchange;
use super::head::{self, BadHead, Head};
use super::reply::{Refused, sentence};
use super::send;
use super::upstream::{Place, Upstreams};
use crate::flow::{Answer, Entry, Judge, Permit, Question, Refusal, Searched};
use crate::{Greeting, Reason, Verdict};

/// A client's connection, and what was found out about it.
pub(super) struct Connection {
    pub(super) entry: Entry,
    pub(super) names: Vec<String>,
    address: Option<IpAddr>,
    port: u16,
    pub(super) client: Client,
    /// A message named its length twice; nothing on this connection is believed any more.
    pub(super) ambiguous: Arc<AtomicBool>,
    pub(super) judge: Arc<Judge>,
    pub(super) upstreams: Upstreams,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    http2: AtomicBool,
}

/// Who is at the other end, and what it claims.
pub(super) struct Client {
    pub(super) source: Option<SocketAddr>,
    pub(super) greeting: Option<Greeting>,
    pub(super) searched: Searched,
}

/// A request that may be sent.
struct Judged {
    permit: Permit,
    /// After the program has seen it.
    shown: bool,
}

impl Connection {
    pub(super) fn new(
        entry: Entry,
        names: Vec<String>,
        address: Option<IpAddr>,
        port: u16,
        client: Client,
        judge: Arc<Judge>,
    ) -> Self {
        Self {
            entry,
            names,
            address,
            port,
            client,
            ambiguous: Arc::default(),
            judge,
            upstreams: Upstreams::default(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            http2: AtomicBool::new(false),
        }
    }

    pub(super) fn secure(&self) -> bool {
        self.entry == Entry::Tls
    }

    /// Whether the client speaks HTTP/2; who does not gains nothing from it on the other side.
    pub(super) fn http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    /// Where the client wants to go, unless only a name was asked for.
    pub(super) fn known(&self) -> Option<IpAddr> {
        self.address.filter(|_| self.entry != Entry::Proxy)
    }

    pub(super) fn sni(&self) -> Option<String> {
        self.names.first().filter(|_| self.secure()).cloned()
    }

    /// How a host is called in requests to it.
    pub(super) fn authority(&self, (host, port): &Place) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let standard = if self.secure() { 443 } else { 80 };
        if *port == standard { host } else { format!("{host}:{port}") }
    }

    /// Whatever comes of it, there is a reply, and one record when it is over.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let at = (SystemTime::now(), Instant::now());
        let (parts, body) = request.into_parts();
        if parts.version == Version::HTTP_2 {
            self.http2.store(true, Ordering::Relaxed);
        }
        let method = parts.method.as_str().to_owned();
        let head = match self.read(&parts) {
            Ok(head) => head,
            Err(bad) => {
                let host = self.names.first().cloned();
                let exchange =
                    Exchange::new(Arc::clone(&self), at, host, self.port, method.clone(), None);
                let refused = Refused::from(bad);
                exchange.settle(Verdict::Deny, refused.reason, None);
                return refused.reply(exchange.host.as_deref(), &method, None);
            }
        };
        let path = head.path.as_str().to_owned();
        let exchange = Exchange::new(
            Arc::clone(&self),
            at,
            Some(head.host.clone()),
            head.port,
            method.clone(),
            Some(path.clone()),
        );
        let Judged { permit, shown } = match self.judged(&head).await {
            Ok(judged) => judged,
            Err(refusal) => {
                exchange.settle(Verdict::Deny, refusal.reason, refusal.rule.clone());
                let refused = denied(refusal, &head.host);
                return refused.reply(Some(&head.host), &method, Some(&path));
            }
        };
        let exchange = Arc::new(exchange.permitted(permit));
        let sent = tokio::select! {
            () = exchange.revoked() => Err(denied(Reason::Revoked.into(), &head.host)),
            sent = send::send(&self, parts, body, &head, shown, &exchange) => sent,
        };
        sent.unwrap_or_else(|mut refused| {
            if refused.status == StatusCode::BAD_GATEWAY {
                exchange.failed(refused.reason);
            } else {
                let rule = refused.rule.clone().or_else(|| exchange.rule());
                exchange.settle(Verdict::Deny, refused.reason, rule);
            }
            refused.rule = refused.rule.or_else(|| exchange.rule());
            refused.reply(Some(&head.host), &method, Some(&path))
        })
    }

    fn read(&self, parts: &Parts) -> Result<Head, BadHead> {
        if self.ambiguous.load(Ordering::Relaxed) {
            return Err(BadHead::Malformed("a length and a transfer coding"));
        }
        head::read(parts, self.entry, &self.names, self.port)
    }

    /// Asks for what the request is, and for everything that a server may take it for: the strictest answer holds.
    async fn judged(&self, head: &Head) -> Result<Judged, Refusal> {
        let rules = self.judge.rules();
        let strictness = |method: &str, path: &str| {
            let decision = rules.flows.judge(&Flow {
                host: &head.host,
                port: head.port,
                transport: Transport::Tcp,
                request: Some((method, path)),
            });
            match decision.verdict() {
                Some(NetworkVerdict::Allow) => 0,
                Some(NetworkVerdict::Ask) => 1,
                Some(NetworkVerdict::Deny) | None => 2,
            }
        };
        let mut asked = (head.methods[0].as_str(), head.path.readings().next().unwrap_or("/"));
        let mut most = 0;
        for method in &head.methods {
            for path in head.path.readings() {
                let found = strictness(method, path);
                if found > most {
                    (asked, most) = ((method.as_str(), path), found);
                }
            }
        }
        let question = Question {
            host: &head.host,
            address: self.known(),
            port: head.port,
            transport: Transport::Tcp,
            request: Some(asked),
            source: self.client.source,
            greeting: self.client.greeting.as_ref(),
        };
        let permit = match self.judge.judge(question).await {
            Answer::Allow(permit) => permit,
            Answer::Deny(refusal) => return Err(refusal),
            Answer::Inspect(_) => return Err(Reason::Unsupported.into()),
        };
        let mut shown = rules.callback.requests || permit.reason == Reason::CallbackAllows;
        if permit.reason == Reason::CallbackAllows && self.entry == Entry::Proxy {
            // The program was not asked about a connection, as each request here may go elsewhere.
            shown = match self.judge.judge(Question { request: None, ..question }).await {
                Answer::Allow(_) => rules.callback.requests,
                Answer::Inspect(_) => true,
                Answer::Deny(refusal) => return Err(refusal),
            };
        }
        Ok(Judged { permit, shown })
    }
}

pub(super) fn denied(refusal: Refusal, host: &str) -> Refused {
    let status = match refusal.reason {
        Reason::BudgetSpent => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::FORBIDDEN,
    };
    let message = match refusal.message.as_str() {
        "" => sentence(refusal.reason, host),
        message => message.to_owned(),
    };
    Refused { rule: refusal.rule, ..Refused::new(status, refusal.reason, message) }
}

impl From<BadHead> for Refused {
    fn from(bad: BadHead) -> Self {
        match bad {
            BadHead::Malformed(why) => Self::malformed(why),
            BadHead::OtherHost(host) => Self::new(
                StatusCode::FORBIDDEN,
                Reason::SniMismatch,
                format!(
                    "the request is for `{}`, the connection is not",
                    belljar_policy::shown(&host)
                ),
            ),
            BadHead::Unsupported(why) => Self::new(StatusCode::FORBIDDEN, Reason::Unsupported, why),
        }
    }
}
