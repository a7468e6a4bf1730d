use std::time::Duration;

use belljar_server::{Options, Patience};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tower::ServiceExt;

use crate::fake::Setup;
use crate::support::{Server, code};

type Piece = Result<Frame<Bytes>, std::convert::Infallible>;

/// The beginning of a message, and then nothing.
fn stalling() -> StreamBody<impl stream::Stream<Item = Piece> + Send + 'static> {
    let beginning = Frame::data(Bytes::from_static(&[0, 0, 0]));
    StreamBody::new(stream::iter([Ok(beginning)]).chain(stream::pending()))
}

fn request<B>(method: &str, kind: &str, server: &Server, body: B) -> http::Request<B> {
    http::Request::post(format!("/belljar.v1.{method}"))
        .header("host", server.address.to_string())
        .header("content-type", kind)
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

/// By gRPC-Web over HTTP/1.1.
async fn by_web(server: &Server, method: &str) -> tonic::Status {
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = request(method, "application/grpc-web+proto", server, stalling());
    let answer = sender.send_request(request).await.unwrap();
    tonic::Status::from_header_map(answer.headers()).unwrap()
}

async fn impatient() -> Server {
    let patience = Patience { body: Duration::from_secs(1), ..Patience::default() };
    let options = Options { patience, ..Options::default() };
    Server::start_with(Setup::new().await, options).await
}

#[tokio::test]
async fn who_stops_in_the_middle_of_a_message_is_told_so() {
    const METHOD: &str = "Sandboxes/GetSandbox";
    let server = impatient().await;
    let body = tonic::body::Body::new(stalling());
    let request = request(METHOD, "application/grpc", &server, body);
    let answer = server.channel().oneshot(request).await.unwrap();
    let by_grpc = tonic::Status::from_header_map(answer.headers()).unwrap();
    for status in [by_grpc, by_web(&server, METHOD).await] {
        assert_eq!(code(&status), "request-timed-out", "{status:?}");
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    }
    // The twin: what is whole and makes no sense is told as that.
    let nonsense = server.call_raw("Sandboxes", "GetSandbox", &[0xff]).await;
    assert_eq!(code(&nonsense), "invalid-argument");
    server.stop().await;
}

#[tokio::test]
async fn a_stream_that_gives_no_signs_of_life_does_not_pause() {
    let server = impatient().await;
    let status = by_web(&server, "Processes/WriteInput").await;
    assert_eq!(code(&status), "request-timed-out", "{status:?}");
    server.stop().await;
}
