//! HTTP, looked into.
//!
//! [`serve`] ends the client's connection here (with a certificate of the sandbox's own authority where it speaks TLS),
//! judges each request by itself and sends what is allowed on a connection of its own, whose other side must prove to be
//! the verified host. Messages are read and written anew on each side, so that what one side takes for a request is what
//! the other side gets. Whatever is not HTTP gets no further than this.
//!
//! Guarantees: no request leaves without a permit; a request's host is the connection's verified name; bodies stream
//! and are counted; what was given as a secret does not come back.

mod body;
mod exchange;
mod head;
mod path;
mod reply;
mod send;
mod service;
mod tunnel;
mod upstream;
mod watch;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

pub(crate) use head::fuzz as fuzz_head;
pub(crate) use path::CanonicalPath;

use crate::Reason;
use crate::flow::{Entry, Intercepted, Outcome};
use service::{Client, Connection};
use watch::Watched;

/// A greeting is a few messages.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// A head must be complete after this time, counted from the end of the request before it.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// Larger heads are refused.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// Requests at once on one connection.
const MAX_STREAMS: u32 = 128;

/// Serves one connection whose requests must be seen. Returns when it is over.
pub(crate) async fn serve(intercepted: Intercepted) -> Outcome {
    let Intercepted {
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
    } = intercepted;
    let client = Client { source, greeting, searched };
    let connection = Arc::new(Connection::new(entry, names, address, port, client, judge));
    let work = async {
        match entry {
            Entry::Tls => {
                let Some(stream) = greet(&connection, stream).await else {
                    return Err(Reason::HelloMalformed);
                };
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                if http2 {
                    serve_2(&connection, stream).await
                } else {
                    serve_1(&connection, stream).await
                }
            }
            Entry::Plain | Entry::Proxy => serve_1(&connection, stream).await,
        }
        Ok(())
    };
    let ended = tokio::select! {
        () = permit.revoked() => Err(Reason::Revoked),
        ended = work => ended,
    };
    Outcome {
        reason: ended.err().unwrap_or(permit.reason),
        bytes_up: connection.up.load(Ordering::Relaxed),
        bytes_down: connection.down.load(Ordering::Relaxed),
    }
}

/// The server's side of TLS, as the host that the client asked for.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &Connection,
    stream: S,
) -> Option<tokio_rustls::server::TlsStream<S>> {
    let authority = connection.judge.authority()?;
    let host = connection.names.first()?;
    let config = authority.server(host).inspect_err(|error| {
        tracing::warn!(host, %error, "no certificate for a host that is looked into");
    });
    let accepted = TlsAcceptor::from(config.ok()?).accept(stream);
    match tokio::time::timeout(GREETING_TIME, accepted).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            // Most often a program that does not trust the sandbox's authority.
            tracing::debug!(host, %error, "a client did not accept the certificate");
            None
        }
        Err(_) => None,
    }
}

async fn serve_1<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    connection: &Arc<Connection>,
    stream: S,
) {
    let watched = Watched::new(stream, Arc::clone(&connection.ambiguous));
    let service = service_fn(|request: Request<Incoming>| {
        let connection = Arc::clone(connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .half_close(true)
        .serve_connection(TokioIo::new(watched), service)
        .with_upgrades()
        .await;
    note(served);
}

async fn serve_2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    connection: &Arc<Connection>,
    stream: S,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let connection = Arc::clone(connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(256 << 10)
        .initial_stream_window_size(512 << 10)
        .initial_connection_window_size(2 << 20)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    note(served);
}

/// What a client sent, or how it left, is its own affair.
fn note(served: hyper::Result<()>) {
    if let Err(error) = served {
        tracing::debug!(%error, "an inspected connection ended early");
    }
}
