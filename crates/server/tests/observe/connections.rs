use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::support::Server;

/// What the kernel's table says of the timer of the socket at `local` that is connected to `peer`.
fn timer(local: SocketAddr, peer: SocketAddr) -> Option<String> {
    // An address is in the machine's byte order, and both are 127.0.0.1.
    let port = |text: &str| u16::from_str_radix(text.rsplit_once(':')?.1, 16).ok();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let same =
            port(fields[1]) == Some(local.port()) && port(fields[2]) == Some(peer.port());
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
