//! Sends an allowed request: as a program wants it, with its credentials, and its reply without them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::upgrade::OnUpgrade;

use super::body::{self, Body};
use super::exchange::Exchange;
use super::head::{Head, strip_hop_by_hop};
use super::reply::{Refused, sentence};
use super::service::{Connection, denied};
use super::tunnel;
use crate::credentials::{self, Injected, NotInjected, Replacements, RequestHead};
use crate::decide::label;
use crate::flow::Direction;
use crate::{DECISION_TIME, Handled, HandledRequest, Reason};

/// Asking for a part of what is there: `x-ms-range` is Azure's, `request-range` what old servers still take.
const PARTS: [&str; 4] = ["range", "if-range", "x-ms-range", "request-range"];
/// A body with a placeholder that is no longer than this keeps a length; a longer one goes in chunks.
const MAX_REWRITTEN: u64 = 1 << 20;
/// A body that is signed must be held whole.
const MAX_SIGNED: usize = 16 << 20;

pub(super) async fn send(
    connection: &Arc<Connection>,
    mut parts: Parts,
    body: Incoming,
    head: &Head,
    shown: bool,
    exchange: &Arc<Exchange>,
) -> Result<Response<Body>, Refused> {
    let client = parts.extensions.remove::<OnUpgrade>().filter(|_| head.websocket);
    let upgrade = parts.headers.get(UPGRADE).cloned();
    strip_hop_by_hop(&mut parts.headers);
    let given = match shown {
        true => handle(connection, &mut parts, head).await?,
        false => Vec::new(),
    };

    let mut query = head.query.clone();
    let injected = inject(connection, &mut parts, head, &mut query, &given).await?;
    let place = (head.host.clone(), head.port);
    let body = prepare(connection, &mut parts, head, body, &query, &injected, exchange).await?;
    if client.is_some() {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, upgrade.unwrap_or(HeaderValue::from_static("websocket")));
    }
    let target = match &query {
        Some(query) => format!("{}?{query}", head.path.as_str()),
        None => head.path.as_str().to_owned(),
    };
    count_head(exchange, Direction::Up, &parts.headers, target.len(), head).await?;
    parts.uri = Uri::try_from(target).map_err(|_| Refused::malformed("the path is none"))?;
    parts.extensions = http::Extensions::default();
    let request = Request::from_parts(parts, body);
    let sent = connection.upstreams.send(connection, &place, request, client.is_some()).await;
    let response = sent.map_err(|reason| {
        let status = match reason {
            Reason::AddressNotPublic => StatusCode::FORBIDDEN,
            Reason::Malformed => return Refused::malformed("the body cannot be read"),
            Reason::BudgetSpent | Reason::Revoked => return denied(reason.into(), &head.host),
            _ => StatusCode::BAD_GATEWAY,
        };
        Refused::new(status, reason, sentence(reason, &head.host))
    })?;
    count_head(exchange, Direction::Down, response.headers(), 0, head).await?;
    reply(response, client, injected, exchange)
}

/// Counts what goes before a body: budgets are for everything that a sandbox can tell and be told.
async fn count_head(
    exchange: &Exchange,
    direction: Direction,
    headers: &HeaderMap,
    line: usize,
    head: &Head,
) -> Result<(), Refused> {
    let counted = exchange.count(direction, line + body::length(headers)).await;
    counted.map_err(|refusal| denied(refusal, &head.host))
}

/// Lets the program that decides about requests have its say; returns what it gave to the request.
async fn handle(
    connection: &Connection,
    parts: &mut Parts,
    head: &Head,
) -> Result<Vec<HeaderValue>, Refused> {
    let request = HandledRequest {
        host: &head.host,
        port: head.port,
        secure: connection.secure(),
        http2: connection.http2(),
        method: &head.methods[0],
        path: head.path.as_str(),
        query: head.query.as_deref(),
        headers: &parts.headers,
        source: connection.client.source,
        address: connection.known(),
        greeting: connection.client.greeting.as_ref(),
    };
    let denied = |reason, words: String| {
        // What a program says is for the sandbox, how it failed is not.
        let told = reason == Reason::CallbackDenies && !words.is_empty();
        let message = if told { words.clone() } else { sentence(reason, &head.host) };
        let refused = Refused::new(StatusCode::FORBIDDEN, reason, message);
        Err(Refused { rule: Some(label(&words)), ..refused })
    };
    let judge = &connection.judge;
    let answer = judge.settings().decider.request(judge.identity(), request);
    let Ok(answer) = tokio::time::timeout(DECISION_TIME, answer).await else {
        return denied(Reason::CallbackUnanswered, "no answer in time".to_owned());
    };
    match answer {
        Handled::Deny { words } => denied(Reason::CallbackDenies, words),
        Handled::Unanswered(why) => denied(Reason::CallbackUnanswered, why),
        Handled::Send { set, remove } => {
            let may = |name: &HeaderName| {
                ![HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE, TE].contains(name)
            };
            for name in remove.iter().filter(|name| may(name)) {
                parts.headers.remove(name);
            }
            let mut given = Vec::new();
            for (name, mut value) in set.into_iter().filter(|(name, _)| may(name)) {
                value.set_sensitive(true);
                given.push(value.clone());
                parts.headers.insert(name, value);
            }
            Ok(given)
        }
    }
}

/// Gives the request the credentials that fit it.
async fn inject(
    connection: &Connection,
    parts: &mut Parts,
    head: &Head,
    query: &mut Option<String>,
    given: &[HeaderValue],
) -> Result<Injected, Refused> {
    let rules = connection.judge.rules();
    let (methods, secure) = (head.taken_for(), connection.secure());
    let fitting =
        credentials::fitting(&rules.credentials, &head.host, &methods, &head.path, secure);
    let mut pairs = Vec::with_capacity(fitting.len());
    for credential in fitting {
        let identity = connection.judge.identity();
        let secret = connection.judge.secrets().get(identity, &credential.source).await;
        let secret = secret.map_err(|error| {
            tracing::warn!(sandbox = %identity.sandbox, credential = credential.name, %error, "a credential cannot be had");
            unavailable(format!("the secret of credential `{}` cannot be had", credential.name))
        })?;
        pairs.push((credential, secret));
    }
    let mut request = RequestHead { headers: &mut parts.headers, query };
    let injected = credentials::inject(&mut request, &pairs, given)?;
    if !injected.hide.is_empty() {
        // What is compressed cannot be looked through.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        parts.headers.remove("sec-websocket-extensions");
    }
    if injected.whole {
        for name in PARTS {
            parts.headers.remove(name);
        }
    }
    Ok(injected)
}

/// The body as it is sent, and the signature over it.
async fn prepare(
    connection: &Connection,
    parts: &mut Parts,
    head: &Head,
    body: Incoming,
    query: &Option<String>,
    injected: &Injected,
    exchange: &Arc<Exchange>,
) -> Result<Body, Refused> {
    let Injected { in_body, sign, .. } = injected;
    let whole = sign.as_ref().is_some_and(credentials::Signing::needs_body);
    let empty = body.is_end_stream();
    let rewrites = !in_body.is_empty() && !empty && !parts.headers.contains_key(CONTENT_ENCODING);
    let short = body.size_hint().exact().is_some_and(|length| length <= MAX_REWRITTEN);
    let gathered = if whole || (rewrites && short) {
        let gathered = body::gathered(body, exchange, MAX_SIGNED).await.map_err(|error| {
            Refused::new(StatusCode::PAYLOAD_TOO_LARGE, Reason::Unsupported, error.to_string())
        })?;
        let rewritten = if rewrites { in_body.apply(&gathered).map(Bytes::from) } else { None };
        let gathered = rewritten.unwrap_or(gathered);
        if !empty {
            parts.headers.insert(CONTENT_LENGTH, gathered.len().into());
        }
        Ok(gathered)
    } else {
        Err(body)
    };
    if let Some(sign) = sign {
        let authority = connection.authority(&(head.host.clone(), head.port));
        let (method, path) = (head.methods[0].as_str(), head.path.as_str());
        let query = query.as_deref().unwrap_or_default();
        let known = gathered.as_ref().ok().map(|body| &body[..]);
        sign.sign(method, &authority, path, query, &mut parts.headers, known)?;
    }
    Ok(match gathered {
        Ok(_) if empty => body::empty(),
        Ok(gathered) => body::whole(gathered),
        Err(body) if rewrites => {
            parts.headers.remove(CONTENT_LENGTH);
            body::passing(body, Arc::clone(exchange), Direction::Up, in_body.clone())
        }
        Err(body) => {
            let none = Replacements::default();
            body::passing(body, Arc::clone(exchange), Direction::Up, none)
        }
    })
}

/// The reply as the client gets it.
fn reply(
    response: Response<Incoming>,
    client: Option<OnUpgrade>,
    injected: Injected,
    exchange: &Arc<Exchange>,
) -> Result<Response<Body>, Refused> {
    let (mut parts, body) = response.into_parts();
    parts.version = Version::HTTP_11;
    hide_phrase(&mut parts, &injected.hide);
    let switched = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let upgrade = parts.headers.get(UPGRADE).cloned();
    let coded = is_coded(&parts.headers);
    strip_hop_by_hop(&mut parts.headers);
    // The same host by another door.
    parts.headers.remove("alt-svc");
    body::hide(&mut parts.headers, &injected.hide);
    if switched {
        let server = parts.extensions.remove::<OnUpgrade>();
        let (Some(client), Some(server), Some(upgrade)) = (client, server, upgrade) else {
            let message = "the other side changed the protocol without being asked";
            return Err(Refused::new(StatusCode::BAD_GATEWAY, Reason::Unsupported, message));
        };
        // From here on nobody counts the client's socket but the tunnel itself.
        let place = exchange.enter().ok_or_else(|| {
            let message = "this sandbox has too many connections open";
            Refused::new(StatusCode::TOO_MANY_REQUESTS, Reason::TooMany, message)
        })?;
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, upgrade);
        tokio::spawn(tunnel::run(client, server, Arc::clone(exchange), injected.hide, place));
        return Ok(Response::from_parts(parts, body::empty()));
    }
    if coded {
        let message = "the reply comes in a transfer coding that nobody asked for";
        return Err(Refused::new(StatusCode::BAD_GATEWAY, Reason::Unsupported, message));
    }
    if !injected.hide.is_empty() && is_encoded_text(&parts.headers) {
        let message = "the reply is compressed although it must not be, and may show a secret";
        return Err(Refused::new(StatusCode::BAD_GATEWAY, Reason::Unsupported, message));
    }
    let body = body::passing(body, Arc::clone(exchange), Direction::Down, injected.hide);
    Ok(Response::from_parts(parts, body))
}

/// Whether a secret could be in it that is not seen.
fn is_encoded_text(headers: &HeaderMap) -> bool {
    let encoded = has_other(headers, &CONTENT_ENCODING, "identity");
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or("text/plain").to_ascii_lowercase();
    encoded && ["text/", "json", "xml", "javascript", "form"].iter().any(|part| kind.contains(part))
}

/// Whether a neighbour would have to decode it: what is passed on says nothing about that.
fn is_coded(headers: &HeaderMap) -> bool {
    has_other(headers, &TRANSFER_ENCODING, "chunked")
}

fn has_other(headers: &HeaderMap, name: &HeaderName, usual: &str) -> bool {
    let other = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(usual.as_bytes());
    headers.get_all(name).iter().any(other)
}

/// The words beside the status are the other side's own, too.
fn hide_phrase(parts: &mut http::response::Parts, hide: &Replacements) {
    let phrase = parts.extensions.get::<ReasonPhrase>();
    let masked = phrase.and_then(|phrase| hide.apply(phrase.as_bytes()));
    if let Some(masked) = masked {
        parts.extensions.remove::<ReasonPhrase>();
        if let Ok(masked) = ReasonPhrase::try_from(masked) {
            parts.extensions.insert(masked);
        }
    }
}

fn unavailable(message: String) -> Refused {
    Refused::new(StatusCode::BAD_GATEWAY, Reason::SecretUnavailable, message)
}

impl From<NotInjected> for Refused {
    fn from(error: NotInjected) -> Self {
        match error {
            NotInjected::Unusable(_) => unavailable(error.to_string()),
            NotInjected::GuestHeader(_) | NotInjected::SignedInPieces => {
                Self::new(StatusCode::FORBIDDEN, Reason::RuleDenies, error.to_string())
            }
        }
    }
}
