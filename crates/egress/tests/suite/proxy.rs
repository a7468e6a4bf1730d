use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use belljar_egress::{Doors, Identity, NoApprover, ProxyKey, Reason, Settings, SharedProxy};
use belljar_policy::{SandboxId, TenantId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::origin::{echo, is_cut, says};
use crate::upstream::Upstream;
use crate::world::{World, rules, sandbox};

const LIST: &str = "network_allowlist: [good.example]";

async fn connect(world: &World, target: &str) -> (TcpStream, String) {
    let request = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic eA==\r\n\r\n"
    );
    send(world.proxy, &request).await
}

/// A new connection after one request, and the head of the answer.
async fn send(proxy: SocketAddr, request: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn connect_follows_the_rules() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let (mut stream, head) = connect(&world, &format!("Good.Example:{}", origin.port())).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    drop(stream);
    let record = world.records(1).await.remove(0);
    assert_eq!((record.host.as_deref(), record.bytes_up), (Some("good.example"), 5));

    let (mut stream, head) = connect(&world, "evil.example:443").await;
    assert!(
        head.starts_with("HTTP/1.1 403 ") && head.contains("x-belljar-decision: deny"),
        "{head}"
    );
    let mut body = String::new();
    stream.read_to_string(&mut body).await.unwrap();
    assert!(body.contains("\"host\":\"evil.example\"") && body.contains("not-listed"), "{body}");
    let (_, head) = connect(&world, "93.184.216.34:443").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    world.upstream.set("good.example", &["10.0.0.1"]);
    let (_, head) = connect(&world, "good.example:443").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let (_, head) = connect(&world, "good.example").await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    let reasons: Vec<Reason> =
        world.records(5).await[1..].iter().map(|record| record.reason).collect();
    assert_eq!(
        reasons,
        [Reason::NotListed, Reason::NotResolved, Reason::AddressNotPublic, Reason::Malformed]
    );
    assert_eq!(world.upstream.asked().iter().filter(|name| *name != "good.example").count(), 0);
}

#[tokio::test]
async fn names_cannot_be_asked_for_by_the_proxy_without_end() {
    const MANY: usize = 300;
    let upstream = Upstream::start().await;
    let settings = Settings {
        upstreams: vec![belljar_egress::Upstream::Plain(upstream.address)],
        questions_per_second: 1,
        ..Settings::default()
    };
    let list = rules("network_allowlist: ['*.wild.example']");
    let world = World::under(settings, upstream, list, Arc::new(NoApprover), Vec::new());
    let (mut answered, mut refused) = (0, 0);
    for number in 0..MANY {
        // Nobody has this name: it would be looked for, and carry what it says away.
        let (mut stream, head) = connect(&world, &format!("data{number}.wild.example:443")).await;
        let mut body = String::new();
        stream.read_to_string(&mut body).await.unwrap();
        match (head.starts_with("HTTP/1.1 502 "), body.contains("too-many")) {
            (true, _) => answered += 1,
            (_, true) => refused += 1,
            _ => panic!("{head}{body}"),
        }
    }
    // Two at once and one a second: this takes less than minutes.
    assert!(answered > 0 && refused > 0, "{answered} {refused}");
    assert!(world.upstream.asked().len() < MANY);
}

#[tokio::test]
async fn a_tunnel_is_looked_at_like_any_connection() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let (mut stream, _) = connect(&world, &format!("good.example:{}", origin.port())).await;
    stream.write_all(&[22, 3, 1, 0, 0]).await.unwrap();
    assert!(is_cut(&mut stream).await);
    assert_eq!(world.denied().await.reason, Reason::HelloMalformed);
}

async fn socks(world: &World, address: &[u8], port: u16) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    stream.write_all(&[5, 2, 0, 2]).await.unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    let request = [&[5, 1, 0], address, &port.to_be_bytes()].concat();
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    (stream, reply[1])
}

#[tokio::test]
async fn socks_follows_the_rules() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let name = |name: &[u8]| [&[3, name.len() as u8], name].concat();
    let (mut stream, code) = socks(&world, &name(b"good.example"), origin.port()).await;
    assert_eq!(code, 0);
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    assert_eq!(socks(&world, &name(b"evil.example"), 443).await.1, 2);
    assert_eq!(socks(&world, &[1, 93, 184, 216, 34], 443).await.1, 2);
    assert_eq!(socks(&world, &name(b"0x7f.1"), 443).await.1, 1);
    assert_eq!(world.records(2).await[0].reason, Reason::NotListed);

    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    stream.write_all(&[5, 1, 2]).await.unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0xff], "user names are not what identity comes from");
}

/// A proxy for sandboxes without links, beside the world's own.
fn shared(world: &World, key: &ProxyKey) -> (SharedProxy, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (world.egress.serve_proxy(listener, key.clone()).unwrap(), address)
}

/// What is answered to a request with these words as its `Proxy-Authorization`.
async fn ask(proxy: SocketAddr, line: &str, token: Option<&str>) -> (TcpStream, String) {
    let token = token.map(|token| format!("Proxy-Authorization: {token}\r\n"));
    let request = format!("{line}\r\nHost: good.example\r\n{}\r\n", token.unwrap_or_default());
    send(proxy, &request).await
}

#[tokio::test]
async fn without_a_link_a_token_says_who_asks() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    world.upstream.set("other.example", &["127.0.0.2"]);
    let key = ProxyKey::new(&[7; 32]);
    let (serving, proxy) = shared(&world, &key);
    let bearer = format!("Bearer {}", key.token(&sandbox()));
    let tunnel = format!("CONNECT good.example:{} HTTP/1.1", origin.port());
    let (mut stream, head) = ask(proxy, &tunnel, Some(&bearer)).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    let pair = base64::engine::general_purpose::STANDARD
        .encode(format!("anyone:{}", key.token(&sandbox())));
    let (_, head) = ask(proxy, &tunnel, Some(&format!("Basic {pair}"))).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let (_, head) = ask(proxy, "CONNECT evil.example:443 HTTP/1.1", Some(&bearer)).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let plain = "GET http://evil.example/ HTTP/1.1".to_owned();
    let evil = plain.clone() + "\r\nx: y";
    let (_, head) = ask(proxy, &evil, Some(&bearer)).await;
    assert!(!head.starts_with("HTTP/1.1 200 ") && !head.starts_with("HTTP/1.1 407 "), "{head}");

    // Another sandbox has rules of its own.
    let other = SandboxId::from_random("nod1", &[9; 16]).unwrap();
    let identity = Identity { sandbox: other.clone(), tenant: TenantId::parse("acme").unwrap() };
    let theirs = rules("network_allowlist: [other.example]");
    let gate = world.egress.open(identity, Doors::default(), theirs, None).unwrap();
    let of_other = format!("Bearer {}", key.token(&other));
    let (_, head) = ask(proxy, &tunnel, Some(&of_other)).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let allowed = format!("CONNECT other.example:{} HTTP/1.1", origin.port());
    let (mut open, head) = ask(proxy, &allowed, Some(&of_other)).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(says(&mut open, b"hello").await.unwrap(), b"hello");

    // Nobody is served without a token that holds, and none holds longer than its gate.
    gate.close();
    assert!(is_cut(&mut open).await);
    let forged = format!("Bearer {}", ProxyKey::new(&[8; 32]).token(&sandbox()));
    for token in [None, Some("Bearer x"), Some(forged.as_str()), Some(of_other.as_str())] {
        for line in [&tunnel, &plain] {
            let (_, head) = ask(proxy, line, token).await;
            assert!(head.starts_with("HTTP/1.1 407 "), "{token:?}: {head}");
        }
    }
    drop(serving);
    assert!(is_cut(&mut stream).await, "what goes through it ends with the proxy");
}

/// Says who one is the way of SOCKS5: what is answered to the password.
async fn password(proxy: SocketAddr, methods: &[u8], token: &str) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(&[&[5, methods.len() as u8], methods].concat()).await.unwrap();
    let mut chosen = vec![0; 2];
    stream.read_exact(&mut chosen).await.unwrap();
    if chosen == [5, 2] {
        let proof = [&[1, 1, b'u', token.len() as u8], token.as_bytes()].concat();
        stream.write_all(&proof).await.unwrap();
        stream.read_exact(&mut chosen).await.unwrap();
    }
    (stream, chosen)
}

#[tokio::test]
async fn socks_without_a_link_wants_the_token_as_password() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let key = ProxyKey::new(&[7; 32]);
    let (_serving, proxy) = shared(&world, &key);
    let token = key.token(&sandbox());
    let (mut stream, answer) = password(proxy, &[0, 2], &token).await;
    assert_eq!(answer, [1, 0]);
    let name = b"good.example";
    let request =
        [&[5, 1, 0, 3, name.len() as u8], &name[..], &origin.port().to_be_bytes()].concat();
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[1], 0);
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");

    assert_eq!(password(proxy, &[0], &token).await.1, [5, 0xff], "who says nothing is nobody");
    for wrong in ["", "x", &token[1..]] {
        let (mut stream, answer) = password(proxy, &[2], wrong).await;
        assert_eq!(answer, [1, 1]);
        assert!(is_cut(&mut stream).await);
    }
}
