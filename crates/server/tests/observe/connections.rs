use std::net::SocketAddr;
use std::time::Duration;

use belljar_server::{Claim, Options, Status, serve};
use rustix::fs::{FlockOperation, flock};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::fake::Setup;
use crate::support::Server;

/// What the kernel's table says of the timer of the socket at `local` that is connected to `peer`.
fn timer(local: SocketAddr, peer: SocketAddr) -> Option<String> {
    // An address is in the machine's byte order, and both are 127.0.0.1.
    let port = |text: &str| u16::from_str_radix(text.rsplit_once(':')?.1, 16).ok();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let same = port(fields[1]) == Some(local.port()) && port(fields[2]) == Some(peer.port());
        same.then(|| fields[5].split(':').next().unwrap().to_owned())
    })
}

#[tokio::test]
async fn the_kernel_asks_whether_a_silent_client_is_still_there() {
    const ASKS: &str = "02";
    let server = Server::start().await;
    let client = TcpStream::connect(server.address).await.unwrap();
    let mine = client.local_addr().unwrap();
    let asked = async {
        while timer(server.address, mine).as_deref() != Some(ASKS) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asked).await.expect("the timer runs");
    // The twin, on the same machine: nobody asks for the client's end, which did not want it.
    assert_eq!(timer(mine, server.address).as_deref(), Some("00"));
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_waits_for_a_name_keeps_no_thread_of_its_own_waiting() {
    let setup = Setup::new().await;
    let state = setup.state();
    // As another server has it while it changes what names in there lead to.
    let turn = std::fs::File::open(&state).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    let (told, mut ready) = oneshot::channel();
    let (claim, engine) = (Claim::take(&state).unwrap(), setup.second().await);
    let ready_to = |status: &Status| told.send(status.addresses.clone()).unwrap();
    let serving = serve(claim, engine, Options::default(), ready_to);
    let looking = async {
        // What it waits with. There is one thread here, and it is not the one that waits.
        while !state.join("server.new").exists() {
            assert!(ready.try_recv().is_err(), "nothing else was done meanwhile");
            tokio::task::yield_now().await;
        }
        drop(turn);
        ready.await.unwrap()
    };
    tokio::select! {
        ended = serving => panic!("{ended:?}"),
        addresses = looking => assert_eq!(addresses.len(), 1),
    }
}
