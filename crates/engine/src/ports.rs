//! Ways into a sandbox: connections to ports at which something inside listens, and which ports are shown to others.
//!
//! A connection is made by the agent, to the sandbox's own loopback: nothing but that sandbox can be reached, whatever
//! its network may reach. Whoever is slow, inside or outside, holds up only that connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};
use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Connect, Data};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf,
};
use tokio::sync::oneshot;

use crate::agent::{AgentError, Stream, WINDOW};
use crate::engine::Inner;
use crate::{Engine, Error, Result};

/// Something that listens on loopback answers at once, unless its queue is full.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between the agent's connection and whoever uses the tunnel.
const BUFFER: usize = 64 << 10;

/// More ports than this are not shown one by one.
const MAX_EXPOSED: usize = 256;

/// A port that is shown to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposedPort {
    pub port: u16,
    /// To everybody, without a token.
    pub public: bool,
}

/// A connection to a port of a sandbox. Dropping it ends the connection.
#[derive(Debug)]
pub struct Tunnel {
    stream: DuplexStream,
    _held: oneshot::Sender<()>,
}

impl Engine {
    /// Connects to a port of the sandbox itself.
    pub async fn dial(&self, reference: &str, port: u16) -> Result<Tunnel> {
        let id = self.identify(reference).await?;
        dial(&self.inner, &id, port).await
    }

    /// Shows a port of a sandbox to who has a token for it, or to everybody.
    pub async fn expose(&self, reference: &str, port: ExposedPort) -> Result<SandboxId> {
        let id = self.identify(reference).await?;
        check(port.port)?;
        // One that is about to go shows nothing new.
        self.inner.live(&id).await?;
        let shown = self.inner.store.exposed_ports(&id).await?;
        if shown.len() >= MAX_EXPOSED && !shown.iter().any(|known| known.port == port.port) {
            return Err(Error::new(
                Code::QuotaExceeded,
                format!("sandbox `{id}` shows {MAX_EXPOSED} ports already"),
            )
            .with_remedy("hide one first"));
        }
        self.inner.store.expose_port(&id, port).await?;
        Ok(id)
    }

    /// The ports of a sandbox that are shown, in order.
    pub async fn exposed(&self, reference: &str) -> Result<Vec<ExposedPort>> {
        let id = self.identify(reference).await?;
        self.inner.store.exposed_ports(&id).await
    }

    /// How a port is shown, if it is, and whose it is. Asked before it is known who asks, so it is not for them to see.
    pub async fn exposed_port(
        &self,
        id: &SandboxId,
        port: u16,
    ) -> Result<Option<(ExposedPort, TenantId)>> {
        let Some(shown) = self.inner.store.exposed_port(id, port).await? else { return Ok(None) };
        Ok(self.inner.store.tenant_of(id).await?.map(|tenant| (shown, tenant)))
    }

    /// Shows a port no longer. False: it was not shown.
    pub async fn hide(&self, reference: &str, port: u16) -> Result<bool> {
        let id = self.identify(reference).await?;
        self.inner.store.hide_port(&id, port).await
    }
}

fn check(port: u16) -> Result<()> {
    match port {
        0 => Err(Error::new(Code::InvalidArgument, "0 is no port").with_remedy("use 1 to 65535")),
        _ => Ok(()),
    }
}

async fn dial(inner: &Arc<Inner>, id: &SandboxId, port: u16) -> Result<Tunnel> {
    check(port)?;
    let live = inner.live(id).await?;
    let connection = live.connection(inner).await?;
    let stream = connection.request(Body::Connect(Connect { port: port.into() }))?;
    match tokio::time::timeout(PATIENCE, stream.answer()).await {
        Ok(Ok(Body::Connected(_))) => {}
        Ok(Ok(_)) => {
            return Err(AgentError::breach("a connection began with something else").into());
        }
        Ok(Err(error)) => return Err(unreachable(error, id, port)),
        Err(_) => {
            let _ = stream.post(Body::Cancel(v1::Cancel::default()));
            return Err(Error::new(
                Code::PortUnreachable,
                format!("nothing answers at port {port} of sandbox `{id}`"),
            )
            .with_remedy("look at what listens there: its queue is full"));
        }
    }
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (held, dropped) = oneshot::channel();
    tokio::spawn(async move {
        let (reader, writer) = tokio::io::split(ours);
        let both = async { tokio::try_join!(inward(&stream, reader), outward(&stream, writer)) };
        let ended = tokio::select! {
            ended = both => ended.is_ok(),
            _ = dropped => false,
        };
        if !ended {
            let _ = stream.post(Body::Cancel(v1::Cancel::default()));
        }
    });
    Ok(Tunnel { stream: theirs, _held: held })
}

/// A tunnel broke on one side or the other; whoever uses it sees its end.
struct Broken;

/// From whoever uses the tunnel to what listens inside.
async fn inward(stream: &Stream, mut reader: ReadHalf<DuplexStream>) -> Result<(), Broken> {
    let mut buffer = vec![0; MAX_CHUNK];
    let mut sent = 0;
    loop {
        let size = reader.read(&mut buffer).await.map_err(|_| Broken)?;
        let data = Data { data: buffer[..size].to_vec(), end: size == 0 };
        stream.send(Body::Data(data)).await.map_err(|_| Broken)?;
        if size == 0 {
            return Ok(());
        }
        sent += size as u64;
        let room = sent.saturating_sub(WINDOW as u64);
        stream.acknowledged(room).await.map_err(|_| Broken)?;
    }
}

/// From what listens inside to whoever uses the tunnel, until both have said all.
async fn outward(stream: &Stream, mut writer: WriteHalf<DuplexStream>) -> Result<(), Broken> {
    let mut taken = 0;
    loop {
        match stream.answer().await.map_err(|_| Broken)? {
            Body::Data(Data { data, end }) => {
                writer.write_all(&data).await.map_err(|_| Broken)?;
                taken += data.len() as u64;
                let channel = v1::Channel::Stdout.into();
                stream.acknowledge(channel, taken).map_err(|_| Broken)?;
                if end {
                    writer.shutdown().await.map_err(|_| Broken)?;
                }
            }
            Body::Closed(_) => return Ok(()),
            _ => return Err(Broken),
        }
    }
}

fn unreachable(error: AgentError, id: &SandboxId, port: u16) -> Error {
    let refused = error.is_refusal("connection-refused") || error.is_refusal("connection-lost");
    if error.is_refusal("busy") {
        return Error::new(
            Code::QuotaExceeded,
            format!("too many connections into sandbox `{id}` at once"),
        )
        .with_remedy("close some first");
    }
    if !refused {
        return error.into();
    }
    Error::new(Code::PortUnreachable, format!("nothing listens at port {port} of sandbox `{id}`"))
        .with_remedy("start a server there, on 127.0.0.1 or on all addresses")
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
