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
async fn collector() -> (String, mpsc::UnboundedReceiver<(String, Bytes)>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
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
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    (url, received)
}

#[tokio::test]
async fn requests_are_told_to_a_collector() {
    let (url, mut received) = collector().await;
    let telemetry = Telemetry::to(&url).unwrap();
    // Everything here runs on this thread.
    let subscriber = tracing_subscriber::registry().with(telemetry.layer());
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    let mut request = tonic::Request::new(v1::GetSandboxRequest { sandbox: "none".to_owned() });
    request.metadata_mut().insert("x-request-id", "r-4711".parse().unwrap());
    server.sandboxes().get_sandbox(request).await.unwrap_err();
    server.stop().await;
    telemetry.close().await;
    let received = tokio::time::timeout(Duration::from_secs(20), received.recv());
    let (path, body) = received.await.unwrap().unwrap();
    assert_eq!(path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let text = String::from_utf8_lossy(&body);
    for part in ["belljar", "request", "r-4711", "sandbox.get", "sandbox-not-found"] {
        assert!(text.contains(part), "{part} is not in {text:?}");
    }
}

#[tokio::test]
async fn what_is_no_address_is_refused() {
    for bad in ["", "collector", "https://collector.example", "ftp://x"] {
        assert!(Telemetry::to(bad).is_err(), "{bad}");
    }
    assert!(Telemetry::to("http://127.0.0.1:4317").is_ok());
}
