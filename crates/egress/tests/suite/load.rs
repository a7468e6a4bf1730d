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

/// What one client does with its connection.
async fn behave(world: &World, origin: std::net::SocketAddr, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let size = random.usize(1..600_000);
    match random.u8(0..6) {
        // Leaves without a word.
        0 => drop(world.connect(origin).await),
        // Breaks off in the middle.
        1 => {
            let mut stream = world.connect(origin).await;
            let _ = stream.write_all(&vec![1; size]).await;
            stream.set_zero_linger().unwrap();
        }
        // Is refused.
        2 => {
            let stream = world.try_connect("93.184.216.34:80".parse().unwrap()).await;
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            let _ = timeout(LIMIT, stream.read_to_end(&mut Vec::new())).await.unwrap();
        }
        // Says the beginning of a greeting.
        3 => {
            let mut stream = world.connect(origin).await;
            let _ = stream.write_all(&[22, 3, 1, 0, 100, 1]).await;
        }
        // Sends all, ends, and reads all.
        _ => {
            let stream = world.connect(origin).await;
            let sent: Vec<u8> = std::iter::repeat_with(|| random.u8(23..)).take(size).collect();
            let (mut read, mut write) = stream.into_split();
            let expected = sent.clone();
            let writer = tokio::spawn(async move {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            });
            let mut back = Vec::new();
            timeout(LIMIT, read.read_to_end(&mut back)).await.unwrap().unwrap();
            writer.await.unwrap();
            assert!(back == expected, "{} of {size} bytes", back.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_after_a_storm() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let world = std::sync::Arc::new(World::new("network_allowlist: [good.example]").await);
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    world.resolve("good.example").await.unwrap();
    let before = descriptors();
    let mut clients = tokio::task::JoinSet::new();
    for seed in 0..300 {
        let world = std::sync::Arc::clone(&world);
        clients.spawn(async move { behave(&world, origin, seed).await });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    // One record for each, and then nothing is open: not in the gate, not in the process.
    assert_eq!(world.records(300).await.len(), 300);
    assert_eq!(world.gate.counts().open, 0);
    let closed = async {
        while descriptors() > before {
            tokio::task::yield_now().await;
        }
    };
    assert!(timeout(LIMIT, closed).await.is_ok(), "{} of {before}", descriptors());
}
