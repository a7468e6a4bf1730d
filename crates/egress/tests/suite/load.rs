use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::origin::{echo, says};
use crate::world::{LIMIT, World};

const FLOWS: usize = 2000;
/// A flow has four sockets here: the client's, the door's, ours outside and the origin's.
const DESCRIPTORS: usize = FLOWS * 4 + 200;
/// What a connection that is not looked into may cost, in the server. Here the client and the origin are counted too.
const MOST_PER_FLOW: usize = 64 * 1024;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_flows_hold_little_memory() {
    if descriptors() < DESCRIPTORS {
        eprintln!("SKIPPED: needs {DESCRIPTORS} descriptors (ulimit -n)");
        return;
    }
    let world = World::new("network_allowlist: [good.example]").await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let first = world.reach("good.example", origin.port()).await;
    let before = resident();
    let mut flows = vec![first];
    for _ in 1..FLOWS {
        flows.push(world.connect(origin).await);
    }
    // Everyone moves more than a buffer, and then waits.
    for round in 0..2u8 {
        for stream in &mut flows {
            let sent = [round; 20_000];
            let moved = timeout(LIMIT, says(stream, &sent)).await.unwrap().unwrap();
            assert!(moved == sent);
        }
    }
    assert_eq!(world.gate.counts().open, FLOWS);
    let held = resident().saturating_sub(before) / FLOWS;
    assert!(held <= MOST_PER_FLOW, "{held} bytes per flow");
    eprintln!("{held} bytes per flow, with client and origin");

    for mut stream in flows {
        stream.shutdown().await.unwrap();
        timeout(LIMIT, stream.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    }
    assert_eq!(world.records(FLOWS).await.len(), FLOWS);
    assert_eq!(world.gate.counts().open, 0);
}
