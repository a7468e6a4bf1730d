use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// A greeting as rustls sends it.
fn real(name: &str, protocols: &[&[u8]]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// A greeting with these extensions.
fn made(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        list.extend(content);
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    body.extend(list);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    records(&message, 1 << 14)
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |piece: &[u8]| {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], piece].concat()
    };
    message.chunks(size).flat_map(record).collect()
}

fn sni(names: &[(u8, &[u8])]) -> (u16, Vec<u8>) {
    let mut list = Vec::new();
    for (kind, name) in names {
        list.push(*kind);
        list.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
        list.extend(*name);
    }
    let length = u16::try_from(list.len()).unwrap().to_be_bytes();
    (0, [&length[..], &list].concat())
}

#[test]
fn reads_real_greetings_over_any_split() {
    let whole = real("Www.Example.com", &[b"h2", b"http/1.1"]);
    let expected = Hello {
        server_name: Some("www.example.com".to_owned()),
        encrypted: false,
        protocols: vec!["h2".to_owned(), "http/1.1".to_owned()],
    };
    assert_eq!(parse(&whole), Ok(Some(expected.clone())));
    for end in 0..whole.len() {
        assert_eq!(parse(&whole[..end]), Ok(None), "{end}");
    }
    let message = &whole[5..];
    for size in [1, 2, 3, 4, 5, 7, 100] {
        assert_eq!(parse(&records(message, size)), Ok(Some(expected.clone())), "{size}");
    }
    let quiet = parse(&real("a.example", &[b"acme-tls/1"])).unwrap().unwrap();
    assert!(!quiet.offers_http());
    assert_eq!(parse(&real("192.0.2.1", &[])).unwrap().unwrap().server_name, None);
}

#[test]
fn ambiguous_and_hidden_names_are_not_read() {
    let good = made(&[sni(&[(0, b"a.example")])]);
    assert_eq!(parse(&good).unwrap().unwrap().server_name.as_deref(), Some("a.example"));
    assert_eq!(parse(&made(&[])).unwrap().unwrap(), Hello::default());
    for (case, bytes) in [
        ("two names", made(&[sni(&[(0, b"a.example"), (0, b"b.example")])])),
        ("two extensions", made(&[sni(&[(0, b"a.example")]), sni(&[(0, b"b.example")])])),
        ("no name", made(&[sni(&[])])),
        ("other kind", made(&[sni(&[(1, b"a.example")])])),
        ("address", made(&[sni(&[(0, b"192.0.2.1")])])),
        ("address v6", made(&[sni(&[(0, b"::1")])])),
        ("last dot", made(&[sni(&[(0, b"a.example.")])])),
        ("nul", made(&[sni(&[(0, b"a.example\0.b")])])),
        ("empty", made(&[sni(&[(0, b"")])])),
        ("trailing", [&good[..], &[22, 3, 1, 0, 1]].concat()),
    ] {
        let found = parse(&bytes);
        // A second record after a whole greeting is the next message, not ours to read.
        assert_eq!(found.is_err(), case != "trailing", "{case}: {found:?}");
    }
    for kind in [ENCRYPTED_CLIENT_HELLO, 0xfe0a, ENCRYPTED_SERVER_NAME] {
        let hidden = parse(&made(&[sni(&[(0, b"a.example")]), (kind, vec![0; 8])]));
        assert!(hidden.unwrap().unwrap().encrypted, "{kind:x}");
    }
}

#[test]
fn what_is_no_greeting_is_refused_early() {
    assert!(parse(b"GET / HTTP/1.1\r\n").is_err());
    assert!(parse(&[22, 2]).is_err());
    assert!(parse(&[22, 3, 1, 0, 0]).is_err(), "an empty record");
    assert!(parse(&[22, 3, 1, 0x40, 1]).is_err(), "an overlong record");
    assert!(parse(&[22, 3, 1, 0, 1, 2]).is_err(), "a ServerHello");
    assert!(parse(&[22, 3, 1, 0, 4, 1, 1, 0, 0]).is_err(), "an overlong message");
    assert!(parse(&[22, 3, 1, 0, 5, 1, 0, 0, 0, 0]).is_err(), "more than itself");
    assert_eq!(parse(&[22, 3, 1, 0, 1, 1, 23]), Err(Malformed("is not a handshake record")));
}

proptest! {
    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = parse(&bytes);
        let _ = parse(&records(&[&[1, 0, 2, 0], &bytes[..]].concat(), 50));
    }

    #[test]
    fn changed_bytes_never_panic_and_never_name_two(at in 0usize..200, value: u8, size in 1usize..300) {
        let mut message = real("www.example.com", &[b"h2"]).split_off(5);
        let at = at % message.len();
        message[at] = value;
        let whole = parse(&records(&message, message.len()));
        let split = parse(&records(&message, size));
        // A length that became shorter may end with a record, and what follows is then another message.
        if whole != Err(Malformed("is followed by more than itself")) {
            prop_assert_eq!(split, whole);
        }
    }
}

#[test]
fn a_record_that_announces_more_than_the_greeting_is_refused_before_it_comes() {
    let mut bytes = real("a.example", &[]);
    assert!(matches!(parse(&bytes), Ok(Some(_))));
    bytes[4] += 1;
    let refused = Err(Malformed("is followed by more than itself"));
    assert_eq!(parse(&bytes), refused);
    bytes.push(0);
    assert_eq!(parse(&bytes), refused);
}
