//! Accepts connections and speaks HTTP/1.1 and HTTP/2 on each, with or without TLS.
//!
//! Whatever protocol a client begins with is recognised by its first bytes. Everything is bounded: connections,
//! headers, streams, and the time a client may take.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use belljar_socket::Socket;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::opening::Opening;
use crate::patience::Patience;
use crate::peer::{Peer, TcpPeer};
use crate::status::Status;

/// Connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 20_000;

const TLS_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_HEADERS: usize = 100;
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADER_LIST: u32 = 32 << 10;
const MAX_STREAMS: u32 = 256;

/// What waits for a client that does not read, per stream; hundreds may follow one log.
const MAX_UNSENT: usize = 64 << 10;

/// A dead client is noticed after about a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Where HTTP/2 does not ask, as after a change of the protocol, the kernel does: a machine that sleeps or has lost its
/// network never says that it is gone, and keeps its place for two minutes. Not where something is on its way to it: there the
/// kernel goes on sending for as long as it always does, about a quarter of an hour.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// After an error that is not the connection's own, such as too many open files.
const BREATHER: Duration = Duration::from_millis(50);

/// What every connection is served with.
#[derive(Clone)]
pub(crate) struct Serving {
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    status: Arc<Status>,
    places: Arc<Semaphore>,
    /// On the Unix socket: whoever fills the port does not lock the operator out.
    local_places: Arc<Semaphore>,
    patience: Patience,
}

impl Serving {
    pub(crate) fn new(router: Router, status: Arc<Status>, patience: Patience) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(patience.head)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD)
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_LIST)
            .max_send_buf_size(MAX_UNSENT)
            .adaptive_window(true);
        let places = || Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (places, local_places) = (places(), places());
        Self { router, builder: Arc::new(builder), status, places, local_places, patience }
    }

    pub(crate) async fn tcp(
        self,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        graceful: Arc<GracefulShutdown>,
    ) {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await;
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let Ok(local) = stream.local_addr() else { continue };
            if let Err(error) = prepare(&stream) {
                tracing::debug!(%error, %address, "a connection is served as it is");
            }
            let (serving, tls, watcher) = (self.clone(), tls.clone(), graceful.watcher());
            let peer = Peer::Tcp(TcpPeer::new(address, local));
            match tls {
                None => tokio::spawn(serving.connection(stream, peer, place, watcher)),
                Some(tls) => tokio::spawn(serving.encrypted(tls, stream, peer, place, watcher)),
            };
        }
    }

    pub(crate) async fn unix(self, listener: UnixListener, graceful: Arc<GracefulShutdown>) {
        loop {
            let place = Arc::clone(&self.local_places).acquire_owned().await;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(BREATHER).await;
                    continue;
                }
            };
            let Ok(credentials) = stream.peer_cred() else { continue };
            let Ok(stream) = stream.into_std().and_then(Socket::new) else { continue };
            let peer = Peer::Socket { uid: credentials.uid() };
            let (serving, watcher) = (self.clone(), graceful.watcher());
            tokio::spawn(serving.connection(stream, peer, place, watcher));
        }
    }

    async fn encrypted<G: Unpin + Send + 'static>(
        self,
        tls: TlsAcceptor,
        stream: TcpStream,
        peer: Peer,
        place: G,
        watcher: Watcher,
    ) {
        match tokio::time::timeout(TLS_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.connection(stream, peer, place, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, ?peer, "no TLS"),
            Err(_) => tracing::debug!(?peer, "TLS took too long"),
        }
    }

    /// Serves one connection to its end. What waits is one allocation and little around it: most connections only wait.
    /// Its place is taken until then, also by one that goes on in another protocol.
    pub(crate) fn connection<G: Unpin + Send + 'static>(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        place: G,
        watcher: Watcher,
    ) -> impl Future<Output = ()> + Send + 'static {
        let held = (place, self.status.connection());
        let (router, status) = (self.router, self.status);
        let whose = peer.clone();
        let stream = Opening::new(stream, self.patience.head, held);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let (router, counted) = (router.clone(), status.request());
            request.extensions_mut().insert(whose.clone());
            async move {
                let response = router.oneshot(request.map(Body::new)).await;
                // Under way until the last byte of the answer has gone.
                let response = response.map(|response| {
                    response.map(|body| Body::new(crate::body::Guarded::new(body, counted)))
                });
                Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
            }
        });
        let connection =
            self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let served = Box::pin(watcher.watch(connection));
        async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, ?peer, "a connection ended badly");
            }
        }
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    // Small answers must not wait for more to come.
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}
