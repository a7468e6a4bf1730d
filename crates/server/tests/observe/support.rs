//! A server on a state directory of its own, with a socket and a loopback port.

use std::net::SocketAddr;
use std::path::PathBuf;

use belljar_engine::{Engine, EngineOptions};
use belljar_server::{Claim, Options, serve};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

pub(crate) struct Server {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    task: JoinHandle<belljar_server::Result<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::start_in(directory).await
    }

    pub(crate) async fn start_in(directory: tempfile::TempDir) -> Self {
        let claim = Claim::take(directory.path()).unwrap();
        let engine = Engine::open(EngineOptions::new(directory.path(), Vec::new())).await.unwrap();
        let options =
            Options { listen: vec!["127.0.0.1:0".parse().unwrap()], ..Options::default() };
        let (told, ready) = oneshot::channel();
        let task = tokio::spawn(serve(claim, engine, options, move |status| {
            told.send(status.addresses.clone()).unwrap();
        }));
        let addresses = ready.await.unwrap();
        let address = addresses.iter().find_map(|address| address.strip_prefix("http://"));
        let address = address.unwrap().parse().unwrap();
        Self { directory, address, task }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("server.sock")
    }

    /// A channel over the Unix socket.
    pub(crate) fn channel(&self) -> Channel {
        let socket = self.socket();
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

    /// Ends the server and gives its state directory back.
    pub(crate) async fn stop(self) -> tempfile::TempDir {
        let mut system = belljar_api::v1::system_client::SystemClient::new(self.channel());
        system.stop_server(belljar_api::v1::StopServerRequest {}).await.unwrap();
        self.task.await.unwrap().unwrap();
        self.directory
    }
}
