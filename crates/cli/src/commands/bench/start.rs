//! `belljar bench start`.

use std::path::Path;
use std::time::{Duration, Instant};

use belljar_engine::{BackendChoice, CreateRequest, Engine};
use serde::Serialize;

use super::peers::Peer;
use super::stats::{Figures, table};
use super::tidy::{Bench, request};
use super::{Done, Stages, create, exec_true, peers, whole};
use crate::args::BenchStartArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::settings::Key;

/// Before figures are taken: templates are built, caches are warm.
const WARM_UP: u32 = 10;
/// How many whole cycles are under way at once for the rate.
const AT_ONCE: usize = 2;
/// The backend that commands are compared with.
const NATIVE: &str = "native";

#[derive(Debug, Serialize)]
struct Report {
    /// Create + `true` + destroy, and the peers' equivalent.
    whole: Vec<Figures>,
    /// The parts of ours.
    stages: Vec<Figures>,
    /// `true` in a sandbox that exists, and a plain child on the host.
    exec: Vec<Figures>,
    sandboxes_per_second: f64,
    at_once: usize,
    /// Ours divided by the peer's, p50.
    ratios: Vec<(String, f64)>,
    absent: Vec<String>,
}

pub(super) async fn start(bench: &Bench<'_>, args: &BenchStartArgs) -> Result<Done, Failure> {
    let context = bench.context;
    let report = bench.with_engine(async |engine| measure(context, engine, args).await).await?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    Ok(Done::Success)
}

/// A sandbox with all defaults but the wall.
fn wanted(args: &BenchStartArgs) -> CreateRequest {
    let backend = match args.backend.as_deref() {
        None | Some("auto") => BackendChoice::Auto,
        Some(name) => BackendChoice::Named(name.to_owned()),
    };
    CreateRequest { backend, runtime: args.runtime.clone(), ..request() }
}

/// Who does the same beside us: those of this host, or whoever asks the same engine.
fn beside(context: &Context, args: &BenchStartArgs, scratch: &Path) -> (Vec<Peer>, Vec<String>) {
    if args.no_peers {
        return (Vec::new(), Vec::new());
    }
    if args.backend.as_deref() != Some("docker") {
        return peers::all(scratch);
    }
    let host = context.settings.get(Key::DockerHost).value.as_ref();
    match super::engine::peer(scratch, host.map(|host| host.to_string_lossy()).as_deref()) {
        Ok(peer) => (vec![peer], Vec::new()),
        Err(reason) => (Vec::new(), vec![reason]),
    }
}

/// The native backend's sandbox, where something else is measured.
fn native(args: &BenchStartArgs) -> Option<CreateRequest> {
    let other = args.backend.as_deref().is_some_and(|name| !["auto", NATIVE].contains(&name));
    (other && !args.no_peers)
        .then(|| CreateRequest { backend: BackendChoice::Named(NATIVE.to_owned()), ..request() })
}

async fn measure(
    context: &Context,
    engine: &Engine,
    args: &BenchStartArgs,
) -> Result<Report, Failure> {
    let wanted = &wanted(args);
    let scratch = context.settings.state_dir()?.join("bench");
    for _ in 0..WARM_UP {
        whole(engine, wanted).await?;
    }
    let (peers, absent) = beside(context, args, &scratch);
    let mut ours = Vec::new();
    let mut theirs: Vec<Vec<Duration>> = peers.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.count {
        ours.push(whole(engine, wanted).await?);
        for (peer, durations) in peers.iter().zip(&mut theirs) {
            durations.extend(peer.measure().ok());
        }
    }
    let (inside, plain) = measure_exec(engine, wanted, args.count).await?;
    let natively = match native(args) {
        Some(native) => Some(measure_exec(engine, &native, args.count).await?.0),
        None => None,
    };
    let rate = measure_rate(engine, wanted, args.count).await?;
    let _ = std::fs::remove_dir_all(scratch);

    let mut whole = vec![Figures::of("belljar", ours.iter().map(Stages::whole).collect())];
    let stages = Stages::PARTS
        .map(|(stage, duration)| Figures::of(stage, ours.iter().map(duration).collect()))
        .into();
    for (peer, durations) in peers.iter().zip(theirs) {
        whole.push(Figures::of(peer.name, durations));
    }
    let mut exec = vec![Figures::of("belljar exec", inside), Figures::of("fork + exec", plain)];
    exec.extend(natively.map(|natively| Figures::of("belljar exec, native", natively)));
    let mut ratios: Vec<(String, f64)> =
        whole[1..].iter().map(|peer| (peer.name.clone(), whole[0].p50_ms / peer.p50_ms)).collect();
    ratios.extend(exec[1..].iter().map(|one| (one.name.clone(), exec[0].p50_ms / one.p50_ms)));
    Ok(Report { whole, stages, exec, sandboxes_per_second: rate, at_once: AT_ONCE, ratios, absent })
}

async fn measure_exec(
    engine: &Engine,
    wanted: &CreateRequest,
    count: u32,
) -> Result<(Vec<Duration>, Vec<Duration>), Failure> {
    let id = create(engine, wanted).await?;
    let (mut inside, mut plain) = (Vec::new(), Vec::new());
    let mut measured = Ok(());
    for _ in 0..count {
        let started = Instant::now();
        measured = exec_true(engine, &id).await;
        if measured.is_err() {
            break;
        }
        inside.push(started.elapsed());
        plain.extend(peers::fork_and_exec("true".as_ref()).ok());
    }
    engine.destroy(id.as_str()).await?;
    measured.map(|()| (inside, plain))
}

async fn measure_rate(engine: &Engine, wanted: &CreateRequest, count: u32) -> Result<f64, Failure> {
    let each = count as usize / AT_ONCE;
    let one = async || {
        for _ in 0..each {
            whole(engine, wanted).await?;
        }
        Ok::<(), Failure>(())
    };
    let started = Instant::now();
    let (first, second) = tokio::join!(one(), one());
    first.and(second)?;
    Ok((each * AT_ONCE) as f64 / started.elapsed().as_secs_f64())
}

fn render(report: &Report) -> String {
    let mut text = String::from("create + `true` + destroy\n");
    text.push_str(&table(&report.whole));
    text.push_str("\nof which\n");
    text.push_str(&table(&report.stages));
    text.push_str("\n`true` in a sandbox that exists\n");
    text.push_str(&table(&report.exec));
    text.push_str("\nours divided by theirs (p50)\n");
    for (name, ratio) in &report.ratios {
        text.push_str(&format!("  {name}: {ratio:.2}\n"));
    }
    text.push_str(&format!(
        "\n{:.0} sandboxes per second, {} at once\n",
        report.sandboxes_per_second, report.at_once
    ));
    for line in &report.absent {
        text.push_str(&format!("left out: {line}\n"));
    }
    text
}
