use std::net::SocketAddr;
use std::sync::Arc;

use belljar_egress::{Reason, Verdict};
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::origin::{greeting, is_cut, serve};
use crate::world::World;

const LIST: &str = "network_allowlist: [good.example, also.example]";

/// An origin with a certificate for two names, and a client that trusts it.
async fn origin() -> (SocketAddr, TlsConnector) {
    let names = ["good.example".to_owned(), "evil.example".to_owned(), "127.0.0.2".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let address = serve("127.0.0.2", move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut bytes = [0; 5];
            if stream.read_exact(&mut bytes).await.is_ok() {
                let _ = stream.write_all(&bytes).await;
            }
        }
    })
    .await;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (address, TlsConnector::from(Arc::new(config)))
}

async fn greet(
    connector: &TlsConnector,
    name: &'static str,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    connector.connect(ServerName::try_from(name).unwrap(), stream).await
}

#[tokio::test]
async fn the_name_in_the_greeting_must_be_the_name_that_was_resolved() {
    let world = World::new(LIST).await;
    let (origin, connector) = origin().await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let stream = world.reach("good.example", origin.port()).await;
    let mut tls = greet(&connector, "good.example", stream).await.unwrap();
    tls.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    tls.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
    drop(tls);
    let record = world.records(1).await.remove(0);
    assert_eq!((record.verdict, record.sni.as_deref()), (Verdict::Allow, Some("good.example")));

    for (n, (name, reason)) in [
        ("evil.example", Reason::SniMismatch),
        // Allowed, but never resolved to this address.
        ("also.example", Reason::SniMismatch),
        // An address is sent without a name.
        ("127.0.0.2", Reason::SniMissing),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = world.reach("good.example", origin.port()).await;
        assert!(greet(&connector, name, stream).await.is_err(), "{name}");
        assert_eq!(world.records(n + 2).await[n + 1].reason, reason, "{name}");
    }
}

#[tokio::test]
async fn a_client_that_waits_is_checked_when_it_speaks() {
    let world = World::new(LIST).await;
    let banner = greeting("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", banner.port()).await;
    stream.read_exact(&mut [0; 11]).await.unwrap();
    let (_, connector) = origin().await;
    assert!(greet(&connector, "evil.example", stream).await.is_err());
    let denied = world.denied().await;
    assert_eq!((denied.reason, denied.bytes_up), (Reason::SniMismatch, 0), "not a byte went out");
}

#[tokio::test]
async fn hidden_names_and_broken_greetings_are_refused() {
    let world = World::new(LIST).await;
    let (origin, _) = origin().await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let name = b"\0\0\0\x11\0\x0f\0\0\x0cgood.example";
    let hidden = b"\xfe\x0d\0\x04abcd";
    let greeting = |extensions: &[u8]| {
        let length = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
        let mut body = vec![3, 3];
        body.extend([1; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(length(extensions.len()));
        body.extend(extensions);
        let message = [&[1, 0], &length(body.len())[..], &body].concat();
        [&[22, 3, 1], &length(message.len())[..], &message].concat()
    };
    for (n, (bytes, reason)) in [
        (greeting(&[&name[..], hidden].concat()), Reason::EncryptedHello),
        (greeting(&[&name[..], name].concat()), Reason::HelloMalformed),
        (vec![22, 3, 1, 0, 0], Reason::HelloMalformed),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = world.reach("good.example", origin.port()).await;
        stream.write_all(&bytes).await.unwrap();
        assert!(is_cut(&mut stream).await);
        assert_eq!(world.records(n + 1).await[n].reason, reason);
    }
}
