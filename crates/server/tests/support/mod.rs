//! A server of the real binary, and a client that hides nothing of HTTP.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::time::Duration;

use belljar_server::socket_path;
use belljar_testkit::{Installation, Mode, Turn};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

/// Nothing in these tests takes longer unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Runs `test` against a server of its own, then ends the server and looks for anything left behind.
pub(crate) fn with_server<F: Future<Output = ()>>(test: impl FnOnce(Client) -> F) {
    let _turn = Turn::shared();
    let root = rustix::process::geteuid().is_root();
    let installation = Installation::new(if root { Mode::Root } else { Mode::Rootless });
    let mut server = installation.start(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let ready: Value = serde_json::from_str(&server.line()).expect("a line of JSON");
    let addresses = ready["addresses"].as_array().expect("a list").iter().filter_map(Value::as_str);
    let address = addresses.filter_map(|text| text.strip_prefix("http://")).next();
    let address = address.and_then(|text| text.parse().ok()).expect("a TCP address");
    let socket = socket_path(&installation.state());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client { address, socket, unix: false, key: None };
        let test = tokio::time::timeout(PATIENCE, test(client.clone()));
        // Whatever becomes of the test, its sandboxes go.
        let result = AssertUnwindSafe(test).catch_unwind().await;
        // The operator gets in over the socket, whatever keys there are.
        let client = Client { unix: true, ..client };
        client.destroy_all().await;
        let stopped = client.post("/v1/server/stop", &Value::Null).await;
        match result {
            Ok(ended) => ended.expect("the test ends in time"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        assert_eq!(stopped.status, 200, "{stopped:?}");
    });
    server.finish().expect_success();
    installation.assert_nothing_left();
}

/// Connects anew for each request.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) unix: bool,
    pub(crate) key: Option<String>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// Fails unless this is a problem with that status and code, whole and under the request's number.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["request_id"], self.headers["x-request-id"].to_str().unwrap());
        for field in ["message", "remedy", "docs"] {
            assert!(problem[field].is_string(), "{field}: {problem}");
        }
        assert!(problem["cause"].is_string(), "{problem}");
        problem
    }
}

impl Client {
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let (mut sender, connection) = if self.unix {
            let stream = UnixStream::connect(&self.socket).await.expect("the socket");
            let stream: Box<dyn Stream> = Box::new(stream);
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
        } else {
            let stream = TcpStream::connect(self.address).await.expect("the address");
            let stream: Box<dyn Stream> = Box::new(stream);
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
        }
        .expect("HTTP/1.1");
        tokio::spawn(connection);
        sender.send_request(request).await.expect("an answer")
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let key = self.key.iter().map(|key| format!("Bearer {key}"));
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, self.address.to_string());
        key.fold(request, |request, key| request.header(header::AUTHORIZATION, key))
    }

    pub(crate) async fn ask(&self, request: Request<Full<Bytes>>) -> Answer {
        let (parts, body) = self.send(request).await.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.bare(Method::GET, path).await
    }

    pub(crate) async fn bare(&self, method: Method, path: &str) -> Answer {
        self.ask(self.request(method, path).body(Full::default()).unwrap()).await
    }

    /// `Null`: without a body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(self.json_request(Method::POST, path, body)).await
    }

    pub(crate) fn json_request(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Request<Full<Bytes>> {
        let builder = self.request(method, path);
        if body.is_null() {
            return builder.body(Full::default()).unwrap();
        }
        let builder = builder.header(header::CONTENT_TYPE, "application/json");
        builder.body(Full::from(body.to_string())).unwrap()
    }

    pub(crate) async fn put(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.ask(self.request(Method::PUT, path).body(Full::new(body.into())).unwrap()).await
    }

    /// A stream of events, as they come.
    pub(crate) async fn events(&self, mut request: Request<Full<Bytes>>) -> Events {
        request.headers_mut().insert(header::ACCEPT, "text/event-stream".parse().unwrap());
        let response = self.send(request).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        Events { body: response.into_body(), text: String::new() }
    }

    pub(crate) async fn create(&self, body: Value) -> String {
        let sandbox = self.post("/v1/sandboxes", &body).await.ok();
        sandbox["sandbox_id"].as_str().expect("an id").to_owned()
    }

    async fn destroy_all(&self) {
        let listed = self.get("/v1/sandboxes").await.ok();
        for sandbox in listed["sandboxes"].as_array().expect("a list") {
            let path = format!("/v1/sandboxes/{}", sandbox["sandbox_id"].as_str().unwrap());
            self.bare(Method::DELETE, &path).await.ok();
        }
    }
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Events {
    body: Incoming,
    text: String,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl Events {
    /// The next event; `None` at the end of the stream. Comments are passed over.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = parse(block);
                self.text = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let frame = self.body.frame().await?.expect("an unbroken stream");
            let data = frame.into_data().expect("no trailers");
            self.text += std::str::from_utf8(&data).expect("whole characters");
        }
    }

    pub(crate) async fn expect(&mut self, name: &str) -> Event {
        let event = self.next().await.expect("one more event");
        assert_eq!(event.name, name, "{event:?}");
        event
    }
}

fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| {
        let mut lines = block.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().map(|value| value.trim_start().to_owned())
    };
    let data = serde_json::from_str(&field("data:")?).expect("JSON");
    Some(Event { name: field("event:").unwrap_or_default(), id: field("id:"), data })
}
