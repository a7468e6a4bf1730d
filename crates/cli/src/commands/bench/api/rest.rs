//! The same over REST: one connection that is kept alive.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use belljar_codes::Code;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::failure::Failure;

pub(super) struct Rest {
    host: String,
    sender: SendRequest<Full<Bytes>>,
}

impl Rest {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await.map_err(|error| broken(&error))?;
        let _ = stream.set_nodelay(true);
        let connected = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| broken(&error))?;
        tokio::spawn(connection);
        Ok(Self { host: address.to_string(), sender })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Create, `true`, destroy.
    pub(super) async fn whole(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let sandbox = self.ask(Method::POST, "/v1/sandboxes", &json!({})).await?;
        let id = sandbox["sandbox_id"].as_str().unwrap_or_default();
        let path = format!("/v1/sandboxes/{id}");
        let command = json!({ "command": { "argv": ["true"] } });
        self.ask(Method::POST, &format!("{path}/exec"), &command).await?;
        self.ask(Method::DELETE, &path, &Value::Null).await?;
        Ok(begun.elapsed())
    }

    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| broken(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| broken(&error))?;
        let body = body.to_bytes();
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(Failure::new(
                Code::ServerUnreachable,
                format!("the server answered {status}: {text}"),
            ));
        }
        Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

pub(super) fn broken(error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::ServerUnreachable, "the server to be measured does not answer")
        .caused_by(error)
}
