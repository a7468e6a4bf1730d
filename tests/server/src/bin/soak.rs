//! `belljar-soak [MINUTES]`: a server under load for a long time, with everything compared and nothing growing.
//!
//! Workers create, run, stream, move files and destroy through the client; every byte is compared with what it must be.
//! Memory, descriptors and threads of server and launcher are shown at intervals; the run fails when they grow after the
//! first fifth of the time, or when the leak check finds anything.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_server_tests::load::{Counts, Worker};
use belljar_server_tests::measure::{Usage, usage};
use belljar_server_tests::{Host, settled};

const WORKERS: usize = 4;
const DEFAULT_MINUTES: f64 = 20.0;
const INTERVAL: Duration = Duration::from_secs(10);

/// What may come and go between two looks without being growth.
const MEMORY_SLACK: u64 = 12 << 20;
const DESCRIPTOR_SLACK: usize = 16;
const THREAD_SLACK: u64 = 4;

#[derive(Clone, Copy)]
struct Look {
    server: Usage,
    launcher: Usage,
    leaks: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let minutes = std::env::args().nth(1).map_or(Some(DEFAULT_MINUTES), |word| word.parse().ok());
    let Some(minutes) = minutes else {
        eprintln!("usage: belljar-soak [MINUTES]");
        return ExitCode::from(2);
    };
    let Some(host) = Host::serving("soak") else { return ExitCode::from(2) };
    let seed = std::env::var("BELLJAR_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}, {minutes} minutes, {WORKERS} workers");
    let looks = soak(&host, seed, Duration::from_secs_f64(minutes * 60.0)).await;
    host.finish().await;
    match grown(&looks) {
        Some(what) => {
            println!("FAILED: {what}");
            ExitCode::FAILURE
        }
        None => {
            println!("flat");
            ExitCode::SUCCESS
        }
    }
}

async fn soak(host: &Host, seed: u64, time: Duration) -> Vec<Look> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for index in 0..WORKERS {
        let (client, stop) = (host.client().await, Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let mut worker = Worker::new(seed, index);
            worker.work(&client, &stop).await.unwrap_or_else(|failure| panic!("{failure:?}"));
            worker
        }));
    }
    let begun = Instant::now();
    let mut looks = Vec::new();
    println!(
        "    time      server: memory  descriptors  threads   launcher: memory  descriptors   leaks"
    );
    while begun.elapsed() < time && tasks.iter().all(|task| !task.is_finished()) {
        tokio::time::sleep(INTERVAL.min(time)).await;
        let look = look(host).await;
        println!(
            "{:>7.0} s {:>14.1} MiB {:>12} {:>8} {:>14.1} MiB {:>12} {:>7}",
            begun.elapsed().as_secs_f64(),
            mebibytes(look.server.resident),
            look.server.descriptors,
            look.server.threads,
            mebibytes(look.launcher.resident),
            look.launcher.descriptors,
            look.leaks,
        );
        looks.push(look);
    }
    stop.store(true, Ordering::Relaxed);
    let client = host.client().await;
    let mut counts = Counts::default();
    for task in tasks {
        let mut worker = task.await.unwrap();
        worker.verify(&client).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        worker.finish(&client).await.unwrap_or_else(|failure| panic!("{failure:?}"));
        counts += worker.counts;
    }
    println!("{counts:?}");
    looks
}

async fn look(host: &Host) -> Look {
    // What is being made or removed at this moment is no leak; what stays is.
    let leaks = settled(async || {
        let leaks = host.leaks().await;
        leaks.is_empty().then_some(0).ok_or(leaks.len())
    });
    Look {
        server: usage(host.server_process()).unwrap_or_default(),
        launcher: host.launcher_process().and_then(usage).unwrap_or_default(),
        leaks: leaks.await.unwrap_or_else(|count| count),
    }
}

/// What grew between the time after warming up and the end.
fn grown(looks: &[Look]) -> Option<String> {
    if let Some(look) = looks.iter().find(|look| look.leaks > 0) {
        return Some(format!("{} leaks", look.leaks));
    }
    let settled = &looks[looks.len() / 5..];
    let third = (settled.len() / 3).max(1);
    let (early, late) =
        (&settled[..third.min(settled.len())], &settled[settled.len().saturating_sub(third)..]);
    let compare = |name: &str, slack: u64, of: fn(&Look) -> u64| {
        let (before, after) = (median(early, of)?, median(late, of)?);
        (after > before + slack).then(|| format!("{name}: {before} became {after}"))
    };
    let (memory, descriptors) = (MEMORY_SLACK, DESCRIPTOR_SLACK as u64);
    compare("memory of the server", memory, |look| look.server.resident)
        .or_else(|| compare("memory of the launcher", memory, |look| look.launcher.resident))
        .or_else(|| {
            compare("descriptors of the server", descriptors, |look| look.server.descriptors as u64)
        })
        .or_else(|| {
            compare("descriptors of the launcher", descriptors, |look| {
                look.launcher.descriptors as u64
            })
        })
        .or_else(|| compare("threads of the server", THREAD_SLACK, |look| look.server.threads))
}

fn median(looks: &[Look], of: fn(&Look) -> u64) -> Option<u64> {
    let mut values: Vec<u64> = looks.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
