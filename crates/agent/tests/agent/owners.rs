//! Whose connections are: asked by the host, found among the agent's processes.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use belljar_protocol::v1::{Configure, Ends, FindOwners, Lease, Owner, Transport, frame::Body};

use crate::host::{Agent, Host, Run, argv, configuration};

fn asking() -> (Agent, Host) {
    Agent::configured_with(Configure { find_owners: true, ..configuration() })
}

fn ends(transport: Transport, local: SocketAddr, remote: SocketAddr) -> Ends {
    let bytes = |end: SocketAddr| match end.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    Ends {
        transport: transport.into(),
        local_address: bytes(local),
        local_port: local.port().into(),
        remote_address: bytes(remote),
        remote_port: remote.port().into(),
    }
}

fn owners(host: &mut Host, connections: Vec<Ends>) -> Vec<Owner> {
    match host.ask(Body::FindOwners(FindOwners { connections })) {
        Body::Owners(owners) => owners.owners,
        other => panic!("no owners: {other:?}"),
    }
}

#[test]
fn a_connection_has_an_owner_for_as_long_as_somebody_holds_it() {
    let (_agent, mut host) = asking();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = listener.local_addr().unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = datagrams.local_addr().unwrap();
    let program = "import socket, sys
tcp = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.sendto(b'x', ('127.0.0.1', int(sys.argv[2])))
open('/proc/self/comm', 'w').write('a\\x1b]b')
print('there', flush=True)
sys.stdin.read()";
    let (door_port, far_port) = (door.port().to_string(), far.port().to_string());
    // Below a shell, so that the process of the host is not the one that connects.
    let line = "python3 -c \"$0\" \"$1\" \"$2\"; true";
    let mut start = argv(&["sh", "-c", line, program, &door_port, &far_port]);
    start.stdin = true;
    let (stream, shell) = host.start(&start);
    let (connection, client) = listener.accept().unwrap();
    let (_, sender) = datagrams.recv_from(&mut [0; 8]).unwrap();
    let said = host.read_until(stream, "there");
    let stranger = SocketAddr::from(([127, 0, 0, 1], 1));
    let asked = vec![
        ends(Transport::Udp, sender, far),
        ends(Transport::Tcp, stranger, door),
        ends(Transport::Tcp, client, door),
        // Our own end: the socket exists, and no process of the agent has it.
        ends(Transport::Tcp, door, client),
        Ends::default(),
    ];
    let found = owners(&mut host, asked.clone());
    let nobody = Owner::default();
    assert_eq!((&found[1], &found[3], &found[4]), (&nobody, &nobody, &nobody));
    for owner in [&found[0], &found[2]] {
        assert!(owner.pid != 0 && owner.pid != shell, "{owner:?}");
        assert_eq!((owner.program.as_slice(), &owner.process), (&b"a\x1b]b"[..], &start.process));
    }
    host.send(stream, Body::Input(belljar_protocol::v1::Input { data: Vec::new(), close: true }));
    host.finish_after(stream, Run { stdout: said.into_bytes(), ..Run::default() });
    // The far end is still there; whoever held the near one is not.
    drop(connection);
    assert!(owners(&mut host, asked).iter().all(|owner| *owner == nobody));
}

#[test]
fn too_many_at_once_are_refused_and_an_agent_that_was_not_told_knows_nobody() {
    let (_agent, mut host) = asking();
    assert!(owners(&mut host, Vec::new()).is_empty());
    assert_eq!(owners(&mut host, vec![Ends::default(); 64]).len(), 64);
    let many = FindOwners { connections: vec![Ends::default(); 65] };
    assert_eq!(host.ask_failing(Body::FindOwners(many)).code, "invalid-argument");

    let (_agent, mut host) = Agent::configured();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = listener.local_addr().unwrap();
    let program = "import socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
time.sleep(1000)";
    host.start(&argv(&["python3", "-c", program, &door.port().to_string()]));
    let (_connection, client) = listener.accept().unwrap();
    let found = owners(&mut host, vec![ends(Transport::Tcp, client, door)]);
    assert_eq!(found, [Owner::default()]);
}

#[test]
fn asking_does_not_keep_an_idle_sandbox() {
    let (mut agent, mut host) = asking();
    assert!(matches!(host.ask(Body::Lease(Lease { idle_ms: 300, hard_ms: 0 })), Body::Done(_)));
    // Asks for as long as somebody answers.
    loop {
        host.request(Body::FindOwners(FindOwners::default()));
        match host.receive() {
            Some((0, Body::Event(_))) => break,
            Some((_, Body::Owners(_))) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert!(agent.child.wait().unwrap().success());
}
