//! Asking the upstream servers.
//!
//! Each question goes over a socket of its own (a random port), with a random number, and only a reply with that number and
//! question from that server counts. A cut reply is fetched again over TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, Query};
use hickory_proto::rr::{Name, RecordType};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::chain::{self, BadReply, MAX_ALIASES, Reply};
use super::upstreams::Upstreams;
use crate::Upstream;

/// How long one server has for one question.
const ANSWER_TIME: Duration = Duration::from_millis(2500);
/// A lost datagram is sent again after this time.
const RETRY_TIME: Duration = Duration::from_millis(800);
/// Questions that are open at the upstream servers, of all sandboxes.
const MAX_OPEN: usize = 512;
/// Datagrams that are no reply to our question before we give up on a server.
const MAX_STRAY: usize = 16;
/// What fits a datagram everywhere (as DNS flag day 2020 has it).
const DATAGRAM: u16 = 1232;
/// Questions for one name: each may lead along some aliases.
const MAX_QUESTIONS: usize = 4;

/// Why a name could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("no upstream server is known")]
    NoUpstream,
    #[error("the upstream server did not answer in time")]
    TimedOut,
    #[error("the upstream server cannot be used")]
    Io(#[from] io::Error),
    #[error("the upstream server's answer cannot be read")]
    Unreadable,
    #[error(transparent)]
    Bad(#[from] BadReply),
}

/// The upstream servers.
pub(crate) struct Resolver {
    upstreams: Upstreams,
    /// Whom DNS over TLS trusts; without it, such servers are not asked.
    tls: Option<TlsConnector>,
    open: Semaphore,
}

impl Resolver {
    pub(crate) fn new(upstreams: Vec<Upstream>, roots: Option<Arc<RootCertStore>>) -> Self {
        let wanted = upstreams.iter().any(|upstream| matches!(upstream, Upstream::Tls(..)));
        let tls = wanted.then(|| connector(roots)).flatten();
        Self { upstreams: Upstreams::new(upstreams), tls, open: Semaphore::new(MAX_OPEN) }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.open.available_permits()
    }

    /// The addresses of a name, along its aliases; of one server where one is given.
    pub(crate) async fn resolve(
        &self,
        name: &Name,
        kind: RecordType,
        server: Option<SocketAddr>,
    ) -> Result<Reply, ResolveError> {
        let mut found = self.ask(name, kind, server).await?;
        for _ in 1..MAX_QUESTIONS {
            let dangling = found.exists && found.addresses.is_empty() && !found.aliases.is_empty();
            if !dangling {
                break;
            }
            let next = self.ask(&found.end, kind, server).await?;
            let circle =
                next.aliases.iter().any(|(_, to)| found.aliases.iter().any(|(from, _)| from == to));
            if circle || found.aliases.len() + next.aliases.len() > MAX_ALIASES {
                return Err(BadReply::Aliases.into());
            }
            if next.aliases.is_empty() && next.addresses.is_empty() {
                break;
            }
            found.aliases.extend(next.aliases);
            found.ttl = found.ttl.min(next.ttl);
            (found.end, found.addresses, found.exists) = (next.end, next.addresses, next.exists);
        }
        Ok(found)
    }

    async fn ask(
        &self,
        name: &Name,
        kind: RecordType,
        server: Option<SocketAddr>,
    ) -> Result<Reply, ResolveError> {
        let mut last = ResolveError::NoUpstream;
        let _open = self.open.acquire().await.map_err(|_| ResolveError::NoUpstream)?;
        let query = Query::query(name.clone(), kind);
        let chosen = server.map(|server| [Upstream::Plain(server)]);
        let usual = self.upstreams.get();
        let upstreams = chosen.as_ref().map_or(&usual[..], |chosen| &chosen[..]);
        for upstream in upstreams {
            let asked = timeout(ANSWER_TIME, self.ask_one(upstream, &query)).await;
            let reply = match asked {
                Err(_) => Err(ResolveError::TimedOut),
                Ok(Err(error)) => Err(error),
                Ok(Ok(message)) => chain::read(&query, &message).map_err(ResolveError::from),
            };
            match reply {
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    tracing::debug!(?upstream, %error, "an upstream server did not help");
                    last = error;
                }
            }
        }
        Err(last)
    }

    async fn ask_one(&self, upstream: &Upstream, query: &Query) -> Result<Message, ResolveError> {
        let mut number = [0; 2];
        getrandom::fill(&mut number).map_err(|_| io::Error::other("no random numbers"))?;
        let number = u16::from_be_bytes(number);
        let mut message = Message::query();
        message.metadata.id = number;
        message.metadata.recursion_desired = true;
        message.add_query(query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(DATAGRAM);
        message.set_edns(edns);
        let bytes = message.to_vec().map_err(|_| ResolveError::Unreadable)?;
        match upstream {
            Upstream::Plain(address) => {
                let reply = datagram(*address, &bytes, number, query).await?;
                if reply.metadata.truncation {
                    return stream(TcpStream::connect(address).await?, &bytes, number).await;
                }
                Ok(reply)
            }
            Upstream::Tcp(address) => {
                stream(TcpStream::connect(address).await?, &bytes, number).await
            }
            Upstream::Tls(address, name) => {
                let connector = self.tls.as_ref().ok_or(ResolveError::NoUpstream)?;
                let name = ServerName::try_from(name.clone())
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
                let tcp = TcpStream::connect(address).await?;
                stream(connector.connect(name, tcp).await?, &bytes, number).await
            }
        }
    }
}

fn connector(roots: Option<Arc<RootCertStore>>) -> Option<TlsConnector> {
    let roots = match roots {
        Some(roots) => roots,
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Arc::new(roots)
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Some(TlsConnector::from(Arc::new(config)))
}

async fn datagram(
    address: SocketAddr,
    bytes: &[u8],
    number: u16,
    query: &Query,
) -> Result<Message, ResolveError> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // Connected: the kernel drops what comes from elsewhere.
    socket.connect(address).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; 4096];
    let mut stray = 0;
    loop {
        let length = match timeout(RETRY_TIME, socket.recv(&mut buffer)).await {
            Ok(received) => received?,
            Err(_) => {
                socket.send(bytes).await?;
                continue;
            }
        };
        match Message::from_vec(&buffer[..length]) {
            Ok(reply) if reply.metadata.id == number && reply.queries.first() == Some(query) => {
                return Ok(reply);
            }
            _ if stray == MAX_STRAY => return Err(ResolveError::Unreadable),
            _ => stray += 1,
        }
    }
}

async fn stream(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: &[u8],
    number: u16,
) -> Result<Message, ResolveError> {
    let length = u16::try_from(bytes.len()).map_err(|_| ResolveError::Unreadable)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    stream.flush().await?;
    let length = stream.read_u16().await?;
    let mut reply = vec![0; length.into()];
    stream.read_exact(&mut reply).await?;
    let reply = Message::from_vec(&reply).map_err(|_| ResolveError::Unreadable)?;
    if reply.metadata.id == number { Ok(reply) } else { Err(BadReply::Foreign.into()) }
}
