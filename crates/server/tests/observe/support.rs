//! A server on a state directory of its own, with a socket and a loopback port.

use std::net::SocketAddr;

use belljar_api::v1;
use belljar_api::v1::sandboxes_client::SandboxesClient;
use belljar_api::v1::system_client::SystemClient;
use belljar_server::{Claim, Options, serve};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;

use crate::fake::Setup;

pub(crate) struct Server {
    pub(crate) setup: Setup,
    pub(crate) address: SocketAddr,
    task: JoinHandle<belljar_server::Result<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_on(Setup::new().await).await
    }

    pub(crate) async fn start_on(setup: Setup) -> Self {
        Self::start_with(setup, Options::default()).await
    }

    pub(crate) async fn start_with(setup: Setup, options: Options) -> Self {
        let claim = Claim::take(&setup.state()).unwrap();
        let options = Options { listen: vec!["127.0.0.1:0".parse().unwrap()], ..options };
        let (told, ready) = oneshot::channel();
        let engine = setup.second().await;
        let task = tokio::spawn(serve(claim, engine, options, move |status| {
            told.send(status.addresses.clone()).unwrap();
        }));
        let addresses = ready.await.unwrap();
        let address = addresses.iter().find_map(|address| address.strip_prefix("http://"));
        let address = address.unwrap().parse().unwrap();
        Self { setup, address, task }
    }

    pub(crate) fn system(&self) -> SystemClient<Channel> {
        SystemClient::new(self.channel())
    }

    pub(crate) fn sandboxes(&self) -> SandboxesClient<Channel> {
        SandboxesClient::new(self.channel())
    }

    pub(crate) async fn create(&self) -> String {
        let request = v1::CreateSandboxRequest::default();
        self.sandboxes().create_sandbox(request).await.unwrap().into_inner().sandbox_id
    }

    /// A channel over the Unix socket.
    pub(crate) fn channel(&self) -> Channel {
        let socket = belljar_server::socket_path(&self.setup.state());
        let connect = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://socket.invalid").connect_with_connector_lazy(connect)
    }

    /// GET over TCP: status, headers and body.
    pub(crate) async fn get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, http::HeaderMap, String) {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = http::Request::get(path).header("host", self.address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A gRPC message as it is, over the Unix socket; gives the status that refuses it.
    pub(crate) async fn call_raw(
        &self,
        service: &str,
        method: &str,
        message: &[u8],
    ) -> tonic::Status {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let framed = [&[0][..], &length, message].concat();
        let request = http::Request::post(format!("/belljar.v1.{service}/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::new(Full::new(bytes::Bytes::from(framed))))
            .unwrap();
        let response = self.channel().oneshot(request).await.unwrap();
        tonic::Status::from_header_map(response.headers()).unwrap()
    }

    /// Ends the server and gives what it served back.
    pub(crate) async fn stop(self) -> Setup {
        self.system().stop_server(v1::StopServerRequest {}).await.unwrap();
        self.task.await.unwrap().unwrap();
        self.setup
    }
}

/// The code of a refusal.
pub(crate) fn code(status: &tonic::Status) -> String {
    belljar_api::problem::from_status(status).unwrap().code
}

/// A request in the name of a key or token.
pub(crate) fn bearing<T>(secret: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let value = format!("Bearer {secret}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}
