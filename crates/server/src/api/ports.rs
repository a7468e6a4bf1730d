//! Ports of sandboxes: shown, listed, joined to streams.

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{ExposedPort, SandboxId, Tunnel};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::tokens::lifetime;
use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::caller::Proof;
use crate::convert::{required, timestamp};
use crate::preview;
use crate::problem::{Problem, Result};
use crate::token::Audience;

/// Read at once from a port.
const PIECE: usize = 64 << 10;

impl Api {
    pub async fn expose_port(
        &self,
        call: &Call,
        request: v1::ExposePortRequest,
    ) -> Result<v1::ExposedPort> {
        let work = async {
            // Whoever got in for an hour must not be able to let others in for longer.
            if call.caller.proof == Proof::Token {
                return Err(Problem::new(Code::PermissionDenied, "a token shows no ports")
                    .with_remedy("use a key"));
            }
            let valid = lifetime(&call.caller, request.expires_in_secs)?;
            let engine = self.engine(call);
            let port = ExposedPort { port: number(request.port)?, public: request.public };
            let id = self.subject(call, &request.sandbox).await?;
            engine.expose(id.as_str(), port).await?;
            call.note("port", port.port.to_string());
            call.note("public", port.public.to_string());
            let mut exposed = self.exposed(&id, port);
            if !port.public {
                let tenant = engine.inspect(id.as_str()).await?.tenant;
                let scopes = [preview::scope(port.port)];
                let maker = call.caller.maker();
                let issued =
                    self.tokens.issue(&tenant, &id, Audience::Preview, valid, &scopes, maker);
                let issued = issued?;
                exposed.token = Some(issued.0);
                exposed.token_expires_at = Some(timestamp(issued.1));
            }
            Ok(exposed)
        };
        self.act(call, action::EXPOSE_PORT, &request.sandbox, work).await
    }

    pub async fn list_ports(
        &self,
        call: &Call,
        request: v1::ListPortsRequest,
    ) -> Result<v1::ListPortsResponse> {
        let work = async {
            let engine = self.engine(call);
            let id = engine.identify(required("sandbox", &request.sandbox)?).await?;
            let ports = engine.exposed(id.as_str()).await?;
            let ports = ports.into_iter().map(|port| self.exposed(&id, port)).collect();
            Ok(v1::ListPortsResponse { ports })
        };
        self.act(call, action::LIST_PORTS, &request.sandbox, work).await
    }

    pub async fn hide_port(
        &self,
        call: &Call,
        request: v1::HidePortRequest,
    ) -> Result<v1::HidePortResponse> {
        let work = async {
            let engine = self.engine(call);
            let id = self.subject(call, &request.sandbox).await?;
            call.note("port", request.port.to_string());
            let was_shown = engine.hide(id.as_str(), number(request.port)?).await?;
            Ok(v1::HidePortResponse { was_shown })
        };
        self.act(call, action::HIDE_PORT, &request.sandbox, work).await
    }

    /// Joins the messages that come to a port. Who sends no more is told the rest; who goes away ends the connection.
    pub async fn forward_port(
        &self,
        call: &Call,
        first: v1::ForwardPortRequest,
        rest: impl Stream<Item = Result<v1::ForwardPortRequest>> + Send + 'static,
    ) -> Result<Answers<v1::ForwardPortResponse>> {
        let target = first.sandbox.clone();
        let work = async {
            let engine = self.engine(call);
            let id = self.subject(call, &first.sandbox).await?;
            call.note("port", first.port.to_string());
            let tunnel = engine.dial(id.as_str(), number(first.port)?).await?;
            let (reader, writer) = tokio::io::split(tunnel);
            tokio::spawn(write(writer, stream::iter([Ok(first)]).chain(rest)));
            let stands = stream::iter([Ok(v1::ForwardPortResponse::default())]);
            Ok(self.until_stopped(stands.chain(read(reader))))
        };
        self.act(call, action::FORWARD_PORT, &target, work).await
    }

    /// A connection for one request of the caller's to a port.
    pub(crate) async fn visit_port(&self, call: &Call, sandbox: &str, port: u32) -> Result<Tunnel> {
        let work = async { Ok(self.engine(call).dial(sandbox, number(port)?).await?) };
        self.act(call, action::VISIT_PORT, sandbox, work).await
    }

    fn exposed(&self, id: &SandboxId, port: ExposedPort) -> v1::ExposedPort {
        v1::ExposedPort {
            sandbox_id: id.as_str().to_owned(),
            port: port.port.into(),
            public: port.public,
            url: preview::url(&self.status, id, port.port),
            path: preview::path(id, port.port),
            token: None,
            token_expires_at: None,
        }
    }
}

fn number(port: u32) -> Result<u16> {
    u16::try_from(port)
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| Problem::invalid(format!("{port} is no port")).with_remedy("use 1 to 65535"))
}

async fn write(
    mut writer: WriteHalf<Tunnel>,
    messages: impl Stream<Item = Result<v1::ForwardPortRequest>> + Send,
) {
    let mut messages = std::pin::pin!(messages);
    while let Some(Ok(message)) = messages.next().await {
        if writer.write_all(&message.data).await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

fn read(
    reader: ReadHalf<Tunnel>,
) -> impl Stream<Item = Result<v1::ForwardPortResponse>> + Send + 'static {
    stream::unfold(reader, async |mut reader| {
        let mut piece = vec![0; PIECE];
        // A connection that breaks ends; TCP tells no more either.
        let size = reader.read(&mut piece).await.unwrap_or(0);
        piece.truncate(size);
        let message = v1::ForwardPortResponse { data: Bytes::from(piece) };
        (size > 0).then_some((Ok(message), reader))
    })
}
