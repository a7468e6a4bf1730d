use std::time::{Duration, Instant};

use belljar_egress::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::origin::{echo, is_cut, says};
use crate::web::Inspected;
use crate::world::{LIMIT, World, rules};

#[tokio::test]
async fn bytes_end_with_the_budget() {
    let world = World::new(
        "
network:
  rules:
    - {name: small, host: good.example, verdict: allow, budgets: [{bytes: 100}]}
    - {host: also.example, verdict: allow}
",
    )
    .await;
    let origin = echo("127.0.0.2").await;
    let other = echo("127.0.0.3").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    world.upstream.set("also.example", &["127.0.0.3"]);
    let mut stream = world.reach("good.example", origin.port()).await;
    assert_eq!(says(&mut stream, &[1; 40]).await.unwrap(), [1; 40]);
    stream.write_all(&[1; 40]).await.unwrap();
    assert!(is_cut(&mut stream).await);
    let record = world.denied().await;
    assert_eq!((record.reason, record.rule.as_deref()), (Reason::BudgetSpent, Some("small")));
    assert!(is_cut(&mut world.reach("good.example", origin.port()).await).await);
    let mut stream = world.reach("also.example", other.port()).await;
    assert_eq!(says(&mut stream, &[1; 400]).await.unwrap(), [1; 400]);
}

#[tokio::test]
async fn flows_are_counted_for_the_sandbox_as_a_whole() {
    let world = World::new(
        "
network_allowlist: [good.example, also.example]
network: {rules: [], budgets: [{requests: 2, per_seconds: 3600}]}
",
    )
    .await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    world.upstream.set("also.example", &["127.0.0.2"]);
    for name in ["good.example", "also.example"] {
        let mut stream = world.reach(name, origin.port()).await;
        assert_eq!(says(&mut stream, b"a").await.unwrap(), b"a");
    }
    let mut stream = world.reach("good.example", origin.port()).await;
    stream.write_all(b"a").await.unwrap();
    assert!(is_cut(&mut stream).await);
    let records = world.records(3).await;
    assert!(records.iter().any(|record| record.reason == Reason::BudgetSpent));
}

#[tokio::test]
async fn what_is_said_beside_bodies_counts_too() {
    let inspected = Inspected::new(
        "
network:
  rules:
    - {name: small, host: good.example, path: /*, verdict: allow, budgets: [{bytes: 6000}]}
    - {host: also.example, path: /*, verdict: allow}
",
    )
    .await;
    let long = "x".repeat(8000);
    let (fields, target) = ([("x-long", long.as_str())], format!("/x?{long}"));
    for two in [false, true] {
        let inspected = &inspected;
        let client = async |name| match two {
            true => inspected.two(name).await,
            false => inspected.one(name).await,
        };
        let mut other = client("also.example").await;
        assert_eq!(other.ask("HEAD", "/x", &fields, "").await.status, 200);
        assert_eq!(other.ask("HEAD", &target, &[], "").await.status, 200);
        let mut small = client("good.example").await;
        if !two {
            assert_eq!(small.ask("HEAD", "/x", &[], "").await.status, 200);
        }
        assert_eq!(small.ask("HEAD", "/x", &fields, "").await.status, 429);
        assert_eq!(small.ask("HEAD", &target, &[], "").await.status, 429);
    }
    let sent = inspected.web.seen();
    assert_eq!(sent.len(), 5, "nothing goes out once it is spent: {sent:?}");
}

#[tokio::test]
async fn a_body_that_is_too_much_is_told_so() {
    let inspected = Inspected::new(
        "
network:
  rules:
    - {name: small, host: good.example, path: /*, verdict: allow, budgets: [{bytes: 6000}]}
",
    )
    .await;
    let mut client = inspected.one("good.example").await;
    assert_eq!(client.ask("POST", "/x", &[], vec![1; 1000]).await.status, 200);
    client.ask("POST", "/x", &[], vec![1; 100_000]).await.refused(429, "budget-spent");
    let records = inspected.world.records(2).await;
    assert!(records.iter().any(|record| record.reason == Reason::BudgetSpent), "{records:?}");
}

#[tokio::test]
async fn bandwidth_is_kept_also_by_bulk() {
    const RATE: u64 = 4 << 20;
    const SIZE: usize = 2 << 20;
    let world = World::new("network_allowlist: [good.example]").await;
    let mut limited = rules("network_allowlist: [good.example]");
    limited.bandwidth = Some(RATE);
    world.gate.set_rules(limited);
    let origin = echo("127.0.0.2").await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    let stream = world.reach("good.example", origin.port()).await;
    let (mut read, mut write) = stream.into_split();
    let begin = Instant::now();
    let writer = tokio::spawn(async move { write.write_all(&vec![1; SIZE]).await.map(|()| write) });
    let mut back = vec![0; SIZE];
    timeout(LIMIT, read.read_exact(&mut back)).await.unwrap().unwrap();
    let _write = writer.await.unwrap().unwrap();
    let least = Duration::from_secs_f64(SIZE as f64 / RATE as f64 * 0.7);
    assert!(begin.elapsed() >= least, "{:?} is faster than allowed", begin.elapsed());
}
