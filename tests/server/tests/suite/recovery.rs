//! Whatever dies, whenever: nothing that was confirmed is lost, doubled or left behind.
//!
//! Seeded; `BELLJAR_TEST_SEED` repeats a run, `BELLJAR_TEST_SECONDS` makes it longer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_client::{Client, Failure};
use belljar_codes::Code;
use belljar_server_tests::load::{Counts, Worker, is_broken};
use belljar_server_tests::{Host, settled};

const WORKERS: usize = 3;

/// How a round ends.
#[derive(Debug)]
enum Death {
    /// The server, after a time.
    Server(Duration),
    /// The launcher, after a time; the server goes on for as long again.
    Launcher(Duration),
    /// Whoever comes to this point first.
    Point(&'static str),
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn choose(random: &mut fastrand::Rng) -> Death {
    let time = Duration::from_millis(random.u64(50..1500));
    match random.u8(..10) {
        0..5 => Death::Server(time),
        5..7 => Death::Launcher(time),
        _ => {
            let points = [belljar_engine::fault::POINTS, belljar_launcher::fault::POINTS].concat();
            Death::Point(points[random.usize(..points.len())])
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_doubled_or_left_when_server_or_launcher_are_killed() {
    let Some(host) = Host::empty("recovery") else { return };
    let seed = number("BELLJAR_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = number("BELLJAR_TEST_SECONDS").unwrap_or(45);
    println!("seed {seed} (BELLJAR_TEST_SEED={seed} repeats this run)");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut workers: Vec<Worker> = (0..WORKERS).map(|index| Worker::new(seed, index)).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0;
    while Instant::now() < end {
        rounds += 1;
        let death = choose(&mut random);
        println!("round {rounds}: {death:?}");
        workers = round(&host, workers, &death).await;
        // Processes go on, and end, while there is no server.
        tokio::time::sleep(Duration::from_millis(random.u64(..600))).await;
        host.serve(&[], &[]);
        let client = host.client().await;
        for worker in &mut workers {
            worker.resolve(&client).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        }
        verify(&host, &client, &mut workers).await;
        // The next one may die at a point, which is chosen at its start.
        host.kill();
    }
    host.serve(&[], &[]);
    let client = host.client().await;
    verify(&host, &client, &mut workers).await;
    let mut counts = Counts::default();
    for worker in &mut workers {
        worker.finish(&client).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        counts += worker.counts;
    }
    println!("seed {seed}: {rounds} rounds, {counts:?}");
    host.finish().await;
}

/// Works until something dies. The server is dead afterwards.
async fn round(host: &Host, workers: Vec<Worker>, death: &Death) -> Vec<Worker> {
    let client = match death {
        Death::Point(point) => {
            // What it finds to do at its start may lead it there already.
            let variables = [("BELLJAR_FAULT", *point)];
            let started = host.try_serve(&["--listen", "127.0.0.1:0"], &[], &variables);
            match (started, host.try_client().await) {
                (Ok(()), Ok(client)) => client,
                _ => {
                    host.kill();
                    return workers;
                }
            }
        }
        _ => {
            host.serve(&[], &[]);
            host.client().await
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for mut worker in workers {
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let outcome = worker.work(&client, &stop).await;
            (worker, outcome)
        }));
    }
    match death {
        Death::Server(time) => tokio::time::sleep(*time).await,
        Death::Launcher(time) => {
            tokio::time::sleep(*time).await;
            host.kill_launcher();
            tokio::time::sleep(*time).await;
        }
        // Some points are not on the way of this load; then it is killed like others.
        Death::Point(_) => {
            let end = Instant::now() + Duration::from_secs(2);
            while !host.has_ended() && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    host.kill();
    let mut workers = Vec::new();
    for task in tasks {
        let (worker, outcome) = task.await.unwrap();
        if let Err(failure) = outcome {
            assert!(is_excused(&failure, death), "{death:?}: {failure:?}");
        }
        workers.push(worker);
    }
    workers
}

/// A request may fail because of what died, and only because of that.
fn is_excused(failure: &Failure, death: &Death) -> bool {
    let of_launcher = matches!(failure.code, Code::LauncherFailed | Code::StartFailed);
    let launcher_may_die = !matches!(death, Death::Server(_));
    is_broken(failure) || (of_launcher && launcher_may_die)
}

async fn verify(host: &Host, client: &Client, workers: &mut [Worker]) {
    let mut expected = BTreeSet::new();
    for worker in workers {
        worker.verify(client).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        expected.append(&mut worker.living());
    }
    let request =
        v1::ListSandboxesRequest { page_size: Some(1000), ..v1::ListSandboxesRequest::default() };
    let listed = client.sandboxes.clone().list_sandboxes(request).await.unwrap().into_inner();
    let listed: Vec<String> =
        listed.sandboxes.into_iter().map(|sandbox| sandbox.sandbox_id).collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), expected, "sandboxes");
    assert_eq!(listed.len(), expected.len(), "a sandbox is listed twice");
    let clean = settled(async || {
        let leaks = host.leaks().await;
        leaks.is_empty().then_some(()).ok_or(leaks)
    });
    if let Err(leaks) = clean.await {
        panic!("the leak check found {leaks:#?}");
    }
}
