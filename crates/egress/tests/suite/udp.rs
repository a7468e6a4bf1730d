use std::sync::Arc;

use belljar_egress::{NoApprover, Reason};
use belljar_policy::document::Transport;
use belljar_sys::socket::{Version, set_packet_information};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::world::{LIMIT, World, rules};

/// A door at an address of an origin. In a real gateway every address is the door's; here its port is another one, and
/// the port that the rules see is told beside the socket.
fn door(address: &str) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind((address, 0)).unwrap();
    set_packet_information(&socket, Version::V4).unwrap();
    socket
}

#[tokio::test]
async fn datagrams_pass_where_a_rule_names_their_port_and_host() {
    let origin = UdpSocket::bind("127.0.0.4:0").await.unwrap();
    let port = origin.local_addr().unwrap().port();
    let (allowed, other) = (door("127.0.0.4"), door("127.0.0.5"));
    let [at_allowed, at_other] = [&allowed, &other].map(|door| door.local_addr().unwrap());
    let list = format!(
        "
network_allowlist: [listed.example]
network: {{rules: [{{host: time.example, transport: udp, port: {port}, verdict: allow}}]}}
"
    );
    let doors = vec![(port, allowed), (port, other)];
    let world = World::with(rules(&list), Arc::new(NoApprover), doors).await;
    world.upstream.set("time.example", &["127.0.0.4"]);
    world.upstream.set("listed.example", &["127.0.0.5"]);
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();

    client.send_to(b"early", at_allowed).await.unwrap();
    assert_eq!(world.denied().await.reason, Reason::NotResolved);

    world.resolve("time.example").await.unwrap();
    world.resolve("listed.example").await.unwrap();
    // The first flow of this client is known as denied; another one is judged anew.
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.send_to(b"time?", at_allowed).await.unwrap();
    let mut buffer = [0; 64];
    let (length, from) = timeout(LIMIT, origin.recv_from(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(&buffer[..length], b"time?");
    origin.send_to(b"noon", from).await.unwrap();
    let (length, from) = timeout(LIMIT, client.recv_from(&mut buffer)).await.unwrap().unwrap();
    assert_eq!((&buffer[..length], from), (&b"noon"[..], at_allowed));

    // A host that is allowed for TCP is not for UDP.
    client.send_to(b"quic", at_other).await.unwrap();
    let record = world.records(2).await.remove(1);
    assert_eq!((record.reason, record.transport), (Reason::NotListed, Transport::Udp));
    assert_eq!(record.host.as_deref(), Some("listed.example"));

    world.gate.set_rules(rules("network_allowlist: [listed.example]"));
    let record = world.records(3).await.remove(2);
    assert_eq!((record.reason, record.bytes_up, record.bytes_down), (Reason::Revoked, 5, 4));
}
