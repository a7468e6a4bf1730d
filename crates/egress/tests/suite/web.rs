//! A web server that tells what it got, and programs in a sandbox that ask it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belljar_egress::{Authority, Identity, SecretError, SecretValue, Secrets};
use belljar_policy::document::Source;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::origin::serve;
use crate::world::{Inspection, World, rules, sandbox};

type Body = BoxBody<Bytes, Infallible>;

/// How much `/large` is.
pub(crate) const LARGE: usize = 5 << 20;

/// A web server on loopback.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    pub(crate) roots: Arc<RootCertStore>,
    seen: Arc<Mutex<Vec<String>>>,
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed()
}

impl Web {
    /// With a certificate for `good.example` and `also.example`.
    pub(crate) async fn secure() -> Self {
        Self::start(true, "127.0.0.2").await
    }

    pub(crate) async fn plain() -> Self {
        Self::start(false, "127.0.0.3").await
    }

    async fn start(secure: bool, address: &str) -> Self {
        let names = ["good.example".to_owned(), "also.example".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key.into())
                .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let seen = Arc::new(Mutex::default());
        let log = Arc::clone(&seen);
        let address = serve(address, move |stream| {
            let (acceptor, log) = (acceptor.clone(), Arc::clone(&log));
            async move {
                let service = service_fn(move |request| answer(request, Arc::clone(&log)));
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                if secure {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let io = TokioIo::new(stream);
                    let _ = server.serve_connection_with_upgrades(io, service).await;
                } else {
                    let io = TokioIo::new(stream);
                    let _ = server.serve_connection_with_upgrades(io, service).await;
                }
            }
        })
        .await;
        Self { address, roots: Arc::new(roots), seen }
    }

    /// `METHOD path` of each request that arrived.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn answer(
    mut request: Request<Incoming>,
    log: Arc<Mutex<Vec<String>>>,
) -> Result<Response<Body>, Infallible> {
    log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
    if request.headers().contains_key("upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = io.read(&mut buffer).await {
                io.write_all(&buffer[..count]).await.unwrap();
            }
        });
        let mut reply = Response::new(full(""));
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        reply.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
        reply.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
        return Ok(reply);
    }
    let (parts, body) = request.into_parts();
    let mut reply = match parts.uri.path() {
        "/large" => {
            let chunk = Bytes::from(vec![b'x'; 64 << 10]);
            let frames = (0..LARGE / chunk.len()).map(move |_| Ok(Frame::data(chunk.clone())));
            Response::new(StreamBody::new(stream::iter(frames)).boxed())
        }
        "/trailers" => {
            let trailers =
                HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("42"))]);
            let frames = [Ok(Frame::data(Bytes::from("data"))), Ok(Frame::trailers(trailers))];
            let mut reply = Response::new(StreamBody::new(stream::iter(frames)).boxed());
            reply.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
            reply
        }
        // In the words beside the status, as old application servers tell what is wrong.
        "/phrase" => {
            let mut reply = Response::new(full(""));
            *reply.status_mut() = StatusCode::UNAUTHORIZED;
            if let Some(got) = parts.headers.get("authorization") {
                let phrase = ReasonPhrase::try_from([b"no ", got.as_bytes()].concat());
                reply.extensions_mut().insert(phrase.unwrap());
            }
            reply
        }
        // Says twice how it is encoded.
        "/encoded" => {
            let mut reply = Response::new(full("x"));
            for coding in ["identity", "gzip"] {
                reply.headers_mut().append("content-encoding", HeaderValue::from_static(coding));
            }
            reply
        }
        "/coded" => {
            let mut reply = Response::new(full("x"));
            let coding = HeaderValue::from_static("gzip, chunked");
            reply.headers_mut().insert("transfer-encoding", coding);
            reply
        }
        "/redirect" => {
            let mut reply = Response::new(full(""));
            *reply.status_mut() = StatusCode::FOUND;
            let place = HeaderValue::from_static("https://also.example/");
            reply.headers_mut().insert("location", place);
            reply
        }
        _ => {
            let headers: HashMap<_, _> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
                .collect();
            // What breaks off has no answer.
            let Ok(body) = body.collect().await else { return Ok(Response::new(full(""))) };
            let trailers = body.trailers().map(|trailers| format!("{trailers:?}"));
            let body = body.to_bytes();
            let told = json!({
                "method": parts.method.as_str(),
                "target": parts.uri.path_and_query().unwrap().as_str(),
                "version": format!("{:?}", parts.version),
                "headers": headers,
                "length": body.len(),
                "body": String::from_utf8_lossy(&body[..body.len().min(200)]),
                "trailers": trailers,
            });
            let told = told.to_string();
            let part = parts.headers.get("range").map(|range| part_of(&told, range));
            let status = if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
            let told = part.unwrap_or(told);
            let length = told.len();
            let head = parts.method == http::Method::HEAD;
            let mut reply = Response::new(full(if head { String::new() } else { told }));
            *reply.status_mut() = status;
            reply.headers_mut().insert("content-length", length.into());
            reply
        }
    };
    // Hosts that repeat what they got.
    for name in ["authorization", "x-api-key"] {
        if let Some(value) = parts.headers.get(name) {
            reply.headers_mut().insert("x-got", value.clone());
        }
    }
    Ok(reply)
}

/// What `bytes=FROM-TO` asks for.
fn part_of(text: &str, range: &HeaderValue) -> String {
    let (from, to) =
        range.to_str().unwrap().strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let bytes = text.as_bytes().iter().take(to.parse::<usize>().unwrap() + 1);
    String::from_utf8(bytes.skip(from.parse().unwrap()).copied().collect()).unwrap()
}

/// Secrets by name, which may be changed.
#[derive(Default)]
pub(crate) struct Store(pub(crate) Mutex<HashMap<String, String>>);

#[async_trait]
impl Secrets for Store {
    async fn get(&self, identity: &Identity, source: &Source) -> Result<SecretValue, SecretError> {
        assert_eq!(identity.tenant.as_str(), "acme");
        let Source::Store(name) = source else { return Err(SecretError::NotFound) };
        let found = self.0.lock().unwrap().get(name).cloned().ok_or(SecretError::NotFound)?;
        Ok(SecretValue::new(found).unwrap())
    }
}

/// A sandbox whose requests are looked into, and the web that it may see.
pub(crate) struct Inspected {
    pub(crate) world: World,
    pub(crate) web: Web,
    pub(crate) plain: Web,
    pub(crate) store: Arc<Store>,
    pub(crate) authority: Authority,
}

impl Inspected {
    pub(crate) async fn new(yaml: &str) -> Self {
        Self::with(yaml, Inspection::default()).await
    }

    pub(crate) async fn with(yaml: &str, inspection: Inspection) -> Self {
        let (web, plain) = (Web::secure().await, Web::plain().await);
        let store = Arc::new(Store::default());
        store.0.lock().unwrap().insert("token".to_owned(), "hunter2-secret".to_owned());
        let authority = Authority::generate(&sandbox()).unwrap();
        let inspection = Inspection {
            authority: Some(authority.clone()),
            roots: inspection.roots.or_else(|| Some(Arc::clone(&web.roots))),
            secrets: Some(Arc::clone(&store) as Arc<dyn Secrets>),
            decider: inspection.decider,
            callback: inspection.callback,
            max_flows: inspection.max_flows,
            owners: inspection.owners,
        };
        let world = World::inspecting(rules(yaml), inspection).await;
        world.upstream.set("good.example", &["127.0.0.2"]);
        world.upstream.set("also.example", &["127.0.0.2"]);
        world.upstream.set("plain.example", &["127.0.0.3"]);
        Self { world, web, plain, store, authority }
    }

    /// A client's end of TLS, by a program that trusts the sandbox's authority.
    pub(crate) async fn greet(
        &self,
        name: &'static str,
        protocols: &[&[u8]],
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = self.world.reach(name, self.web.address.port()).await;
        let certificate =
            CertificateDer::from_pem_slice(self.authority.certificate_pem().as_bytes());
        greet_with(certificate.unwrap(), name, protocols, stream).await
    }

    pub(crate) async fn one(&self, name: &'static str) -> Client {
        let stream = self.greet(name, &[b"http/1.1"]).await.unwrap();
        Client::one(stream, format!("{name}:{}", self.web.address.port())).await
    }

    pub(crate) async fn two(&self, name: &'static str) -> Client {
        let stream = self.greet(name, &[b"h2"]).await.unwrap();
        let authority = format!("{name}:{}", self.web.address.port());
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, driver) = handshake.await.unwrap();
        tokio::spawn(driver);
        Client { sender: Sender::Two(sender), authority }
    }

    pub(crate) async fn clear(&self) -> Client {
        let stream = self.world.reach("plain.example", self.plain.address.port()).await;
        Client::one(stream, format!("plain.example:{}", self.plain.address.port())).await
    }
}

pub(crate) async fn greet_with(
    certificate: CertificateDer<'static>,
    name: &'static str,
    protocols: &[&[u8]],
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

pub(crate) struct Client {
    sender: Sender,
    pub(crate) authority: String,
}

enum Sender {
    One(hyper::client::conn::http1::SendRequest<Body>),
    Two(hyper::client::conn::http2::SendRequest<Body>),
}

/// A reply, read to its end.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The words beside the status, where they are not the usual ones.
    pub(crate) phrase: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// Asserts that it is a refusal of ours.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, reason: &str) -> Value {
        let told = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.status, status, "{told}");
        assert!(self.headers.contains_key("x-belljar-decision"), "{told}");
        let told = self.json();
        assert_eq!(told["reason"], reason, "{told}");
        told
    }
}

impl Client {
    async fn one<S>(stream: S, authority: String) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, driver) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver.with_upgrades());
        Self { sender: Sender::One(sender), authority }
    }

    pub(crate) async fn get(&mut self, target: &str) -> Reply {
        self.ask("GET", target, &[], "").await
    }

    pub(crate) async fn ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let mut request = Request::builder().method(method);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.uri(target).body(full(body)).unwrap();
        self.send(request).await
    }

    pub(crate) async fn send(&mut self, mut request: Request<Body>) -> Reply {
        let response = match &mut self.sender {
            Sender::One(sender) => {
                let host = HeaderValue::from_str(&self.authority).unwrap();
                request.headers_mut().entry("host").or_insert(host);
                sender.ready().await.unwrap();
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                let target = format!("https://{}{}", self.authority, request.uri());
                *request.uri_mut() = target.parse().unwrap();
                sender.send_request(request).await
            }
        };
        let (parts, body) = response.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        let phrase = parts.extensions.get::<ReasonPhrase>();
        let phrase = phrase.map(|phrase| String::from_utf8_lossy(phrase.as_bytes()).into_owned());
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        Reply { status, phrase, headers, body: body.to_bytes(), trailers }
    }
}
