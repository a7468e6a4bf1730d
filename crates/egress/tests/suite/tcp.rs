use std::net::SocketAddr;
use std::time::Duration;

use belljar_egress::{Reason, Rules, Stage, Verdict};
use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::origin::{echo, greeting, is_cut, says, serve};
use crate::world::{LIMIT, World, rules};

const LIST: &str = "network_allowlist: [good.example]";

#[tokio::test]
async fn an_address_is_reached_through_its_name_only() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    let mut early = world.connect(origin).await;
    assert!(is_cut(&mut early).await);
    let denied = world.denied().await;
    assert_eq!((denied.reason, denied.address), (Reason::NotResolved, Some(origin.ip())));
    assert_eq!((denied.port, denied.stage), (origin.port(), Stage::Flow));

    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    drop(stream);
    let record = world.records(2).await.remove(1);
    assert_eq!((record.verdict, record.reason), (Verdict::Allow, Reason::Allowed));
    assert_eq!(
        (record.host.as_deref(), record.rule.as_deref()),
        (Some("good.example"), Some("good.example"))
    );
    assert_eq!((record.bytes_up, record.bytes_down), (5, 5));

    let mut other: SocketAddr = origin;
    other.set_ip("127.0.0.3".parse().unwrap());
    assert!(is_cut(&mut world.connect(other).await).await, "an address beside the pinned one");
    let unknown = "93.184.216.34:443".parse().unwrap();
    assert!(is_cut(&mut world.connect(unknown).await).await, "a public address");
}

#[tokio::test]
async fn rules_name_ports() {
    let origin = echo("127.0.0.2").await;
    let port = origin.port();
    let world = World::new(&format!("network_allowlist: ['good.example:{port}']")).await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", port).await;
    assert_eq!(says(&mut stream, b"a").await.unwrap(), b"a");
    let other = echo("127.0.0.2").await;
    assert!(is_cut(&mut world.reach("good.example", other.port()).await).await);
    assert_eq!(world.records(1).await[0].reason, Reason::NotListed);
}

#[tokio::test]
async fn servers_may_speak_first() {
    let world = World::new(LIST).await;
    let origin = greeting("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    let mut banner = [0; 11];
    timeout(LIMIT, stream.read_exact(&mut banner)).await.unwrap().unwrap();
    assert_eq!(&banner, b"220 ready\r\n");
    assert_eq!(says(&mut stream, b"EHLO me\r\n").await.unwrap(), b"EHLO me\r\n");
}

#[tokio::test]
async fn the_end_of_one_direction_leaves_the_other_open() {
    let world = World::new(LIST).await;
    // Answers only after the client's end.
    let origin = serve("127.0.0.2", |mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all.reverse();
        stream.write_all(&all).await.unwrap();
    })
    .await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    stream.write_all(b"abc").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut back)).await.unwrap().unwrap();
    assert_eq!(back, b"cba");
}

#[tokio::test]
async fn resets_are_passed_on() {
    let world = World::new(LIST).await;
    let origin = serve("127.0.0.2", |mut stream| async move {
        stream.read_exact(&mut [0; 3]).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    stream.write_all(b"abc").await.unwrap();
    let read = timeout(LIMIT, stream.read(&mut [0])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);

    // And nobody there is a reset too.
    let gone = origin_that_is_gone().await;
    let mut stream = world.reach("good.example", gone.port()).await;
    stream.write_all(b"abc").await.unwrap();
    assert!(is_cut(&mut stream).await);
    assert_eq!(world.records(2).await[1].reason, Reason::ConnectFailed);
}

async fn origin_that_is_gone() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_goes_through_whole_in_both_directions() {
    const SIZE: usize = 24 << 20;
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let stream = world.reach("good.example", origin.port()).await;
    let (mut read, mut write) = stream.into_split();
    let sent: Vec<u8> = (0..SIZE).map(|n| (n * 31 + n / 251) as u8).collect();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::with_capacity(SIZE);
    timeout(LIMIT, read.read_to_end(&mut back)).await.unwrap().unwrap();
    writer.await.unwrap();
    assert!(back == expected);
    let record = world.records(1).await.remove(0);
    assert_eq!((record.bytes_up, record.bytes_down), (SIZE as u64, SIZE as u64));
    let counts = world.gate.counts();
    assert_eq!((counts.open, counts.allowed, counts.denied), (0, 1, 0));
    assert_eq!((counts.bytes_up, counts.bytes_down), (SIZE as u64, SIZE as u64));
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_writer() {
    let world = World::new(LIST).await;
    let (count, mut counted) = tokio::sync::watch::channel(0usize);
    let origin = serve("127.0.0.2", move |mut stream| {
        let count = count.clone();
        async move {
            let chunk = vec![7; 1 << 16];
            while stream.write_all(&chunk).await.is_ok() {
                count.send_modify(|count| *count += chunk.len());
            }
        }
    })
    .await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    stream.write_all(b"go").await.unwrap();
    // The writer stops by itself, long before it wrote what an unbounded buffer would take.
    while timeout(Duration::from_secs(1), counted.changed()).await.is_ok() {
        assert!(*counted.borrow() < 64 << 20, "nothing holds it back");
    }
    let written = *counted.borrow();
    let mut back = vec![0; written];
    timeout(LIMIT, stream.read_exact(&mut back)).await.unwrap().unwrap();
    assert!(back.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn revoked_flows_are_cut_and_others_go_on() {
    let world = World::new("network_allowlist: [good.example, also.example]").await;
    let origin = echo("127.0.0.2").await;
    let other = echo("127.0.0.3").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    world.upstream.set("also.example", &["127.0.0.3"]);
    let mut revoked = world.reach("good.example", origin.port()).await;
    let mut kept = world.reach("also.example", other.port()).await;
    assert_eq!(says(&mut revoked, b"a").await.unwrap(), b"a");
    assert_eq!(says(&mut kept, b"a").await.unwrap(), b"a");
    assert_eq!(world.gate.counts().open, 2);
    world.gate.set_rules(rules("network_allowlist: [also.example]"));
    // Said after the change: it is not heard.
    revoked.write_all(b"late").await.unwrap();
    assert!(is_cut(&mut revoked).await);
    assert_eq!(world.denied().await.reason, Reason::Revoked);
    assert_eq!(says(&mut kept, b"b").await.unwrap(), b"b");
    assert!(is_cut(&mut world.connect(origin).await).await, "the old answer opens nothing");

    world.gate.set_rules(Rules::none());
    assert!(is_cut(&mut kept).await);
}

/// Two names at one address, of which one is looked into: waiting before one speaks must not get past the rules of that one.
#[tokio::test]
async fn who_speaks_late_gets_no_further_than_others() {
    let origin = greeting("127.0.0.2").await;
    let rules = format!(
        "network: {{rules: [{{host: open.example, verdict: allow}}, \
         {{host: closed.example, port: {}, path: /public/*, verdict: allow}}]}}",
        origin.port()
    );
    let world = World::new(&rules).await;
    for name in ["open.example", "closed.example"] {
        world.upstream.set(name, &["127.0.0.2"]);
    }
    let request = b"GET /private HTTP/1.1\r\nhost: closed.example\r\n\r\n";
    // While the address belongs to the open name only, the server speaks first and what is answered passes.
    let mut stream = world.reach("open.example", origin.port()).await;
    let mut welcome = [0; 11];
    stream.read_exact(&mut welcome).await.unwrap();
    assert_eq!(says(&mut stream, request).await.unwrap(), request);
    drop(stream);
    world.records(1).await;

    let mut stream = world.reach("closed.example", origin.port()).await;
    stream.read_exact(&mut welcome).await.unwrap();
    stream.write_all(request).await.unwrap();
    assert!(is_cut(&mut stream).await);
    assert_eq!(world.records(2).await[1].reason, Reason::Unsupported);
}

/// Both ends are threads that are always ready, and the gate has one thread only: a transfer that never gave way would keep
/// the change of rules, and everything else, from happening.
#[tokio::test]
async fn a_transfer_at_full_speed_is_cut_too() {
    let world = World::new(LIST).await;
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let origin = listener.local_addr().unwrap();
    world.upstream.set("good.example", &["127.0.0.2"]);
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while std::io::Write::write_all(&mut stream, &[1; 1 << 20]).is_ok() {}
    });
    let mut stream = world.reach("good.example", origin.port()).await;
    stream.write_all(b"x").await.unwrap();
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    let (flowing, flows) = tokio::sync::oneshot::channel();
    let reader = std::thread::spawn(move || {
        let (mut stream, mut flowing, mut total) = (stream, Some(flowing), 0);
        let mut buffer = vec![0; 1 << 20];
        while let Ok(length @ 1..) = std::io::Read::read(&mut stream, &mut buffer) {
            total += length;
            if total > 16 << 20
                && let Some(flowing) = flowing.take()
            {
                flowing.send(()).unwrap();
            }
        }
    });
    timeout(LIMIT, flows).await.unwrap().unwrap();
    world.gate.set_rules(Rules::none());
    assert_eq!(world.denied().await.reason, Reason::Revoked);
    let ended = tokio::task::spawn_blocking(move || (sender.join(), reader.join())).await.unwrap();
    assert!(ended.0.is_ok() && ended.1.is_ok());
}

#[tokio::test]
async fn closing_the_gate_closes_doors_and_flows() {
    let world = World::new(LIST).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"a").await.unwrap(), b"a");
    let proxy = world.proxy;
    world.gate.close();
    assert!(is_cut(&mut stream).await);
    let closed = async {
        while tokio::net::TcpStream::connect(proxy).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, closed).await.unwrap();
}

#[tokio::test]
async fn the_mode_full_reaches_what_is_public_or_named() {
    let world = World::new("network: {mode: full}").await;
    let origin = echo("127.0.0.2").await;
    let mut stream = world.connect(origin).await;
    assert_eq!(says(&mut stream, b"a").await.unwrap(), b"a");
    drop(stream);
    world.records(1).await;
    for (n, address) in [
        "127.0.0.1:80",
        "10.0.0.1:80",
        "169.254.169.254:80",
        "100.64.0.1:80",
        "224.0.0.1:80",
        "0.0.0.0:80",
        "[::1]:80",
        "[fd00:ec2::254]:80",
        "[fe80::1]:80",
    ]
    .iter()
    .enumerate()
    {
        let mut stream = world.connect(address.parse().unwrap()).await;
        assert!(is_cut(&mut stream).await, "{address}");
        let record = world.records(n + 2).await.pop().unwrap();
        assert_eq!(record.reason, Reason::AddressNotPublic, "{address}");
    }
    for address in ["8.8.8.8:443", "93.184.216.34:853"] {
        let mut stream = world.connect(address.parse().unwrap()).await;
        stream.write_all(b"x").await.unwrap();
        assert!(is_cut(&mut stream).await, "{address}");
    }
    assert_eq!(world.records(12).await[11].reason, Reason::ForeignResolver);
}

#[tokio::test]
async fn denials_can_be_read_by_the_client() {
    let world = World::new(LIST).await;
    let mut stream = world.connect("93.184.216.34:80".parse().unwrap()).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    timeout(LIMIT, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
    assert!(reply.starts_with("HTTP/1.1 403 "), "{reply}");
    for part in ["x-belljar-decision: deny", "not-resolved", "\"host\":\"93.184.216.34\""] {
        assert!(reply.contains(part), "{reply}");
    }
    assert_eq!(world.denied().await.reason, Reason::NotResolved);

    let mut stream = world.connect("93.184.216.34:443".parse().unwrap()).await;
    stream.write_all(&[22, 3, 1, 0, 1, 1]).await.unwrap();
    let mut alert = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut alert)).await.unwrap().unwrap();
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49]);
}

#[tokio::test]
async fn addresses_of_version_six_are_reached_through_their_names_too() {
    let world = World::new(LIST).await;
    let origin = echo("::1").await;
    world.upstream.set("good.example", &["::1"]);
    assert!(is_cut(&mut world.connect(origin).await).await, "never an answer");
    let mut named = rules(LIST);
    named.cidrs.push("::1/128".parse().unwrap());
    world.gate.set_rules(named);
    let reply = world.ask("good.example", RecordType::AAAA).await;
    assert_eq!(reply.answers.len(), 1);
    let mut stream = world.connect(origin).await;
    assert_eq!(says(&mut stream, b"six").await.unwrap(), b"six");
    drop(stream);
    assert_eq!(world.records(2).await[1].address, Some(origin.ip()));
}
