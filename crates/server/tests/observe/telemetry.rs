use std::convert::Infallible;
use std::time::Duration;

use belljar_api::v1;
use belljar_server::Telemetry;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::Server;

/// Takes whatever is sent to it and answers with an empty message.
async fn collector(
    tls: Option<tokio_rustls::TlsAcceptor>,
) -> (String, mpsc::UnboundedReceiver<(String, Bytes)>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let sender = sender.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let _ = sender.send((path, body));
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("grpc-status", "0".parse().unwrap());
                    let empty = Full::new(Bytes::from_static(&[0; 5]));
                    let body = empty.with_trailers(async { Some(Ok::<_, Infallible>(trailers)) });
                    http::Response::builder().header("content-type", "application/grpc").body(body)
                }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            match &tls {
                None => drop(tokio::spawn(http.serve_connection(TokioIo::new(stream), service))),
                // Who does not trust us hangs up.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
                    }
                }
            }
        }
    });
    (url, received)
}

/// Makes a request whose span is sent.
async fn one_request(telemetry: Telemetry) {
    // Everything here runs on this thread.
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    let mut request = tonic::Request::new(v1::GetSandboxRequest { sandbox: "none".to_owned() });
    request.metadata_mut().insert("x-request-id", "r-4711".parse().unwrap());
    server.sandboxes().get_sandbox(request).await.unwrap_err();
    server.stop().await;
    telemetry.close().await;
}

#[tokio::test]
async fn requests_are_told_to_a_collector() {
    let (url, mut received) = collector(None).await;
    one_request(Telemetry::to(&url, None).unwrap()).await;
    let received = tokio::time::timeout(Duration::from_secs(20), received.recv());
    let (path, body) = received.await.unwrap().unwrap();
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let text = String::from_utf8_lossy(&body);
    for part in ["belljar", "request", "r-4711", "sandbox.get", "sandbox-not-found"] {
        assert!(text.contains(part), "{part} is not in {text:?}");
    }
}

#[tokio::test]
async fn a_collector_over_tls_is_told_if_it_is_who_it_says() {
    let made = |name: &str| rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let (own, other) = (made("127.0.0.1"), made("127.0.0.1"));
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let mut config = rustls::ServerConfig::builder_with_provider(
        rustls::crypto::ring::default_provider().into(),
    )
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![own.cert.der().clone()], key)
    .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (url, mut received) = collector(Some(std::sync::Arc::new(config).into())).await;
    // Somebody else's certificate: nothing is told.
    one_request(Telemetry::to(&url, Some(other.cert.pem().as_bytes())).unwrap()).await;
    one_request(Telemetry::to(&url, None).unwrap()).await;
    assert!(received.try_recv().is_err(), "a stranger was told");
    one_request(Telemetry::to(&url, Some(own.cert.pem().as_bytes())).unwrap()).await;
    let received = tokio::time::timeout(Duration::from_secs(20), received.recv());
    let (_, body) = received.await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&body).contains("r-4711"));
}

#[tokio::test]
async fn what_is_no_address_is_refused() {
    for bad in ["", "collector", "ftp://x"] {
        assert!(Telemetry::to(bad, None).is_err(), "{bad}");
    }
    assert!(Telemetry::to("http://127.0.0.1:4317", None).is_ok());
}
