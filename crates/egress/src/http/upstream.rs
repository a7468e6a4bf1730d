//! Connections to the other side, for the requests of one client connection.
//!
//! A connection is used again for the same host and port; nothing is shared between clients, so that no request can
//! ever travel where another sandbox, or another verified name, led.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{COOKIE, HOST};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::body::{Body, Cut};
use super::service::Connection;
use crate::Reason;

const GREETING_TIME: Duration = Duration::from_secs(10);
const MAX_HEAD: usize = 128 << 10;
/// More requests at once than this, to servers that take one at a time per connection, begin new connections each time.
const MAX_IDLE: usize = 32;

/// Where a connection leads.
pub(super) type Place = (String, u16);

#[derive(Default)]
pub(super) struct Upstreams {
    one: Mutex<Vec<(Place, http1::SendRequest<Body>)>>,
    two: Mutex<HashMap<Place, http2::SendRequest<Body>>>,
}

enum Link {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Upstreams {
    /// Sends a request whose URI is a path and a query, and waits for the head of the reply.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        place: &Place,
        mut request: Request<Body>,
        http1_only: bool,
    ) -> Result<Response<Incoming>, Reason> {
        // A connection that was kept may have been closed by the other side: a request that never left goes by a new one.
        let mut fresh = false;
        loop {
            let kept = if fresh { None } else { self.kept(place, http1_only) };
            fresh = kept.is_none();
            let link = match kept {
                Some(link) => link,
                None => connect(connection, place, http1_only).await?,
            };
            let (link, sent) = match link {
                Link::One(mut sender) => {
                    let request = for_one(request, place, connection);
                    if sender.ready().await.is_err() {
                        (None, Err((None, Some(request))))
                    } else {
                        let sent = sender.try_send_request(request).await;
                        let sent = sent.map_err(|mut error| {
                            let message = error.take_message();
                            (Some(error.into_error()), message)
                        });
                        (Some(Link::One(sender)), sent)
                    }
                }
                Link::Two(mut sender) => {
                    let request = for_two(request, place, connection);
                    if sender.ready().await.is_err() {
                        (None, Err((None, Some(request))))
                    } else {
                        let sent = sender.try_send_request(request).await;
                        let sent = sent.map_err(|mut error| {
                            let message = error.take_message();
                            (Some(error.into_error()), message)
                        });
                        (Some(Link::Two(sender)), sent)
                    }
                }
            };
            match sent {
                Ok(response) => {
                    self.keep(place, link);
                    return Ok(response);
                }
                Err((_, Some(unsent))) if !fresh => {
                    self.two().remove(place);
                    request = unsent;
                }
                Err((error, _)) => {
                    if let Some(error) = &error {
                        tracing::debug!(host = place.0, %error, "a request failed");
                    }
                    return Err(error.as_ref().map_or(Reason::ConnectFailed, blame));
                }
            }
        }
    }

    fn kept(&self, place: &Place, http1_only: bool) -> Option<Link> {
        if !http1_only && let Some(sender) = self.two().get(place) {
            return Some(Link::Two(sender.clone()));
        }
        let mut one = self.one();
        one.retain(|(_, sender)| !sender.is_closed());
        let at = one.iter().position(|(found, sender)| found == place && sender.is_ready())?;
        Some(Link::One(one.swap_remove(at).1))
    }

    fn keep(&self, place: &Place, link: Option<Link>) {
        match link {
            Some(Link::Two(sender)) => drop(self.two().insert(place.clone(), sender)),
            Some(Link::One(sender)) => {
                let mut one = self.one();
                if one.len() < MAX_IDLE {
                    one.push((place.clone(), sender));
                }
            }
            None => {}
        }
    }

    fn one(&self) -> MutexGuard<'_, Vec<(Place, http1::SendRequest<Body>)>> {
        self.one.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn two(&self) -> MutexGuard<'_, HashMap<Place, http2::SendRequest<Body>>> {
        self.two.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose fault it is that a request failed: of its own body, or of the other side.
fn blame(error: &hyper::Error) -> Reason {
    if !error.is_user() {
        return Reason::ConnectFailed;
    }
    match error.source().and_then(|cause| cause.downcast_ref::<Cut>()) {
        Some(Cut::Spent) => Reason::BudgetSpent,
        Some(Cut::Revoked) => Reason::Revoked,
        Some(Cut::TooLarge) | None => Reason::Malformed,
    }
}

async fn connect(connection: &Connection, place: &Place, http1_only: bool) -> Result<Link, Reason> {
    let (host, port) = place;
    let known = connection.known();
    let judge = &connection.judge;
    let stream = judge.dial(host, *port, known).await.map_err(|refusal| refusal.reason)?;
    if !connection.secure() {
        return handshake_one(stream).await;
    }
    let authority = judge.authority().ok_or(Reason::Unsupported)?;
    let http2 = connection.http2() && !http1_only;
    let config = authority.client(judge.settings().roots.as_ref(), http2).map_err(|error| {
        tracing::warn!(%error, "certificates cannot be verified");
        Reason::CertificateInvalid
    })?;
    let name = ServerName::try_from(host.clone()).map_err(|_| Reason::CertificateInvalid)?;
    let greeted = TlsConnector::from(config).connect(name, stream);
    let stream = match tokio::time::timeout(GREETING_TIME, greeted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(host, %error, "a greeting failed");
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            return Err(match inner {
                Some(rustls::Error::InvalidCertificate(_)) => Reason::CertificateInvalid,
                _ => Reason::ConnectFailed,
            });
        }
        Err(_) => return Err(Reason::ConnectFailed),
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        handshake_two(stream).await
    } else {
        handshake_one(stream).await
    }
}

async fn handshake_one<S>(stream: S) -> Result<Link, Reason>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Reason::ConnectFailed)?;
    // Ends when the sender is dropped, at the latest with the client's connection.
    tokio::spawn(driver.with_upgrades());
    Ok(Link::One(sender))
}

async fn handshake_two<S>(stream: S) -> Result<Link, Reason>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD as u32)
        .initial_stream_window_size(512 << 10)
        .initial_connection_window_size(2 << 20)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Reason::ConnectFailed)?;
    tokio::spawn(driver);
    Ok(Link::Two(sender))
}

fn for_one(mut request: Request<Body>, place: &Place, connection: &Connection) -> Request<Body> {
    *request.version_mut() = Version::HTTP_11;
    let target = target(&request);
    *request.uri_mut() = Uri::from(target);
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(&connection.authority(place)) {
        headers.insert(HOST, host);
    }
    // HTTP/2 may split them.
    let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
    request
}

fn for_two(mut request: Request<Body>, place: &Place, connection: &Connection) -> Request<Body> {
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    let uri = Uri::builder()
        .scheme(if connection.secure() { Scheme::HTTPS } else { Scheme::HTTP })
        .authority(connection.authority(place))
        .path_and_query(target(&request))
        .build();
    if let Ok(uri) = uri {
        *request.uri_mut() = uri;
    }
    request
}

fn target(request: &Request<Body>) -> PathAndQuery {
    let target = request.uri().path_and_query().cloned();
    target.unwrap_or_else(|| PathAndQuery::from_static("/"))
}
