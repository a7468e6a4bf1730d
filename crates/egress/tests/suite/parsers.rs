//! What the fuzz targets check, on every run of the tests.

#[path = "../../../../fuzz/checks/mutate.rs"]
mod mutate;

use belljar_egress::fuzzing;
use proptest::prelude::*;

proptest! {
    #[test]
    fn parsers_hold_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzzing::hello(&bytes);
        fuzzing::question(&bytes);
        fuzzing::reply(&bytes);
        fuzzing::connect(&bytes);
    }

    #[test]
    fn questions_with_damage_are_answered_or_not(
        labels in prop::collection::vec("[a-zA-Z0-9_-]{1,12}", 1..6),
        kind: u16,
        at: prop::sample::Index,
        value: u8,
    ) {
        let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in &labels {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        fuzzing::question(&bytes);
        fuzzing::reply(&bytes);
        let at = at.index(bytes.len());
        bytes[at] = value;
        fuzzing::question(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn tunnels_are_read_from_any_line(line in "CONNECT [a-zA-Z0-9.:\\[\\]@%/-]{0,40} HTTP/1.[01]") {
        fuzzing::connect(line.as_bytes());
    }
}

/// A greeting as rustls sends it.
fn greeting(name: &str) -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

const QUESTION: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01";
const REPLY: &[u8] = b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\0\x01a\x07example\0\0\x01\0\x01\
    \xc0\x0c\0\x05\0\x01\0\0\x0e\x10\0\x04\x01b\xc0\x0e\
    \x01b\xc0\x0e\0\x01\0\x01\0\0\x0e\x10\0\x04\x0b\0\0\x0a";

#[test]
fn parsers_hold_on_changed_messages() {
    let (one, other) = (greeting("a.example"), greeting("127.0.0.1"));
    mutate::run("hello", &[&one, &other], fuzzing::hello);
    mutate::run("question", &[QUESTION, REPLY], fuzzing::question);
    mutate::run("reply", &[REPLY, QUESTION], fuzzing::reply);
    let connects: [&[u8]; 3] = [
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        b"CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n",
        b"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ];
    mutate::run("connect", &connects, fuzzing::connect);
    mutate::run("opening", &connects, fuzzing::opening);
    let heads: [&[u8]; 4] = [
        b"GET /a/./b/../c%2e%2E/%2f;x=1//d?q=1\nhost: a.example\ncontent-length: 5",
        b"POST https://a.example:443/a%252f..%2e/\nhost: a.example:443\ntransfer-encoding: chunked",
        b"GET /ws\nhost: a.example\nconnection: upgrade, x\nupgrade: websocket\nx-http-method: DELETE",
        b"GET http://A.example./\nhost: a.example:80\nconnection: close",
    ];
    mutate::run("head", &heads, fuzzing::head);
}
