//! A DNS server whose answers the test sets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio_rustls::TlsAcceptor;

#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    addresses: HashMap<String, Vec<IpAddr>>,
    aliases: HashMap<String, String>,
    /// Answered over TCP only.
    large: bool,
    asked: Vec<String>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let upstream =
            Self { address: tcp.local_addr().unwrap(), state: Arc::new(Mutex::default()) };
        tokio::spawn(upstream.clone().serve_udp(udp));
        tokio::spawn(upstream.clone().serve_tcp(tcp));
        upstream
    }

    pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.state.lock().unwrap().addresses.insert(format!("{name}."), addresses);
    }

    pub(crate) fn alias(&self, from: &str, to: &str) {
        self.state.lock().unwrap().aliases.insert(format!("{from}."), format!("{to}."));
    }

    pub(crate) fn only_over_tcp(&self) {
        self.state.lock().unwrap().large = true;
    }

    /// The names that were asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    async fn serve_udp(self, socket: UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut reply = self.answer(&buffer[..length]);
            if self.state.lock().unwrap().large {
                reply.metadata.truncation = true;
                reply.answers.clear();
            }
            socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
        }
    }

    async fn serve_tcp(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            self.serve_stream(stream).await;
        }
    }

    /// The same answers over TLS, with a certificate for `dns.example`; returns where, and whom to trust.
    pub(crate) async fn over_tls(&self) -> (SocketAddr, Arc<RootCertStore>) {
        let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let upstream = self.clone();
        let address = crate::origin::serve("127.0.0.1", move |stream| {
            let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
            async move {
                // A client that does not trust us goes away.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                upstream.serve_stream(stream).await;
            }
        })
        .await;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        (address, Arc::new(roots))
    }

    async fn serve_stream(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let length = stream.read_u16().await.unwrap();
        let mut question = vec![0; length.into()];
        stream.read_exact(&mut question).await.unwrap();
        let reply = self.answer(&question).to_vec().unwrap();
        stream.write_u16(u16::try_from(reply.len()).unwrap()).await.unwrap();
        stream.write_all(&reply).await.unwrap();
        stream.flush().await.unwrap();
    }

    fn answer(&self, question: &[u8]) -> Message {
        let question = Message::from_vec(question).unwrap();
        let query = question.queries[0].clone();
        let mut reply = Message::response(question.metadata.id, OpCode::Query);
        reply.add_query(query.clone());
        let mut state = self.state.lock().unwrap();
        let mut name = query.name().to_ascii();
        state.asked.push(name.trim_end_matches('.').to_owned());
        while let Some(alias) = state.aliases.get(&name) {
            let data = RData::CNAME(CNAME(Name::from_ascii(alias).unwrap()));
            reply.add_answer(Record::from_rdata(Name::from_ascii(&name).unwrap(), 60, data));
            name.clone_from(alias);
        }
        let Some(addresses) = state.addresses.get(&name) else {
            reply.metadata.response_code = ResponseCode::NXDomain;
            return reply;
        };
        for address in addresses {
            let data = match (query.query_type(), address) {
                (RecordType::A, IpAddr::V4(address)) => RData::A(A(*address)),
                (RecordType::AAAA, IpAddr::V6(address)) => RData::AAAA(AAAA(*address)),
                _ => continue,
            };
            // No time to live: nothing is kept, every question comes here.
            reply.add_answer(Record::from_rdata(Name::from_ascii(&name).unwrap(), 0, data));
        }
        reply
    }
}
