use belljar_egress::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::origin::{echo, is_cut, says};
use crate::world::World;

const LIST: &str = "network_allowlist: [good.example]";

async fn connect(world: &World, target: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    let request = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic eA==\r\n\r\n"
    );
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
