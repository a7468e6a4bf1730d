//! `belljar bench idle`.

use std::path::Path;
use std::time::Instant;

use belljar_engine::Engine;
use serde::Serialize;

use super::tidy::{Bench, request};
use super::{Done, create};
use crate::args::BenchIdleArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

#[derive(Debug, Serialize)]
struct Report {
    sandboxes: usize,
    /// What the host can give less than before, for each: everything, kernel memory included.
    available_kib_each: f64,
    /// Proportional share of agents and launcher, for each.
    proportional_kib_each: f64,
    /// Created per second: the first tenth and the last.
    first_per_second: f64,
    last_per_second: f64,
}

pub(super) async fn idle(bench: &Bench<'_>, args: &BenchIdleArgs) -> Result<Done, Failure> {
    let measured = bench.with_engine(async |engine| measure(engine, args.count as usize).await);
    let report = measured.await?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&format!(
            "{} idle sandboxes\n  {:.0} KiB each by memory that is no longer available\n  {:.0} KiB each by proportional share of \
             processes\n  {:.0}/s created at first, {:.0}/s at last\n",
            report.sandboxes,
            report.available_kib_each,
            report.proportional_kib_each,
            report.first_per_second,
            report.last_per_second
        ))?;
    }
    Ok(Done::Success)
}

async fn measure(engine: &Engine, count: usize) -> Result<Report, Failure> {
    // The first one builds what all share.
    let warm = create(engine, &request()).await?;
    engine.destroy(warm.as_str()).await?;
    let before = available_kib();
    let tenth = (count / 10).max(1);
    let mut laps = Vec::new();
    let mut started = Instant::now();
    for number in 1..=count {
        create(engine, &request()).await?;
        if number % tenth == 0 {
            laps.push(tenth as f64 / started.elapsed().as_secs_f64());
            started = Instant::now();
        }
    }
    let each = |kib: f64| kib / count as f64;
    Ok(Report {
        sandboxes: count,
        available_kib_each: each((before - available_kib()).max(0.0)),
        proportional_kib_each: each(proportional_kib()),
        first_per_second: laps.first().copied().unwrap_or_default(),
        last_per_second: laps.last().copied().unwrap_or_default(),
    })
}

fn available_kib() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    value(&text, "MemAvailable:").unwrap_or_default()
}

/// Proportional set sizes of all agents of this host, and of everything that runs this program: engine, launcher, helpers.
fn proportional_kib() -> f64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0.0 };
    let program = |process: &Path| std::fs::read_link(process.join("exe")).unwrap_or_default();
    let own = program(Path::new("/proc/self"));
    // By the program and not by the name: an agent is called differently by every kernel, for it was started without a path.
    let is_ours = |process: &Path| {
        let program = program(process);
        program == own || program.to_string_lossy().starts_with("/memfd:belljar-agent")
    };
    processes
        .flatten()
        .filter(|process| is_ours(&process.path()))
        .filter_map(|process| std::fs::read_to_string(process.path().join("smaps_rollup")).ok())
        .filter_map(|text| value(&text, "Pss:"))
        .sum()
}

fn value(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}
