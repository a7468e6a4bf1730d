//! `belljar bench api`: what the server costs on top of the engine.
//!
//! A server of its own runs beside, as a process of its own, on a state directory of its own. Rounds are interleaved,
//! so that the noise of the host meets all alike.

mod crowd;
mod rest;

use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_client::Client;
use belljar_engine::Engine;
use serde::Serialize;

use self::crowd::{Followers, Idle};
use self::rest::Rest;
use super::beside::Beside;
use super::stats::{Figures, table};
use super::tidy::{Bench, request};
use super::{Done, Stages, peers, whole};
use crate::args::BenchApiArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Before figures are taken: templates are built, caches are warm.
const WARM_UP: u32 = 10;

/// Rounds of one way before the next has its turn. What is left of a sandbox is taken apart while the next one is made: in a
/// row, each way meets what it has left itself, and finds its own processes warm, as under load.
const IN_A_ROW: u32 = 10;

/// Commands under way at once.
const AT_ONCE: usize = 16;

#[derive(Debug, Serialize)]
struct Report {
    /// Create + `true` + destroy: in process, over gRPC on the Unix socket, over REST on TCP.
    whole: Vec<Figures>,
    /// The parts of the first two.
    stages: Vec<Figures>,
    /// Divided by the figure in process, p50.
    ratios: Vec<(String, f64)>,
    /// `true` in a sandbox that exists: one after the other, and many at once, in a sandbox each and in the same.
    exec: Vec<Figures>,
    followers: Followers,
    idle: Idle,
}

pub(super) async fn api(bench: &Bench<'_>, args: &BenchApiArgs) -> Result<Done, Failure> {
    let beside = Beside::start()?;
    let measured = bench.with_engine(async |engine| measure(engine, &beside, args).await).await;
    drop(beside);
    let report = measured?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    Ok(Done::Success)
}

async fn measure(engine: &Engine, beside: &Beside, args: &BenchApiArgs) -> Result<Report, Failure> {
    let client = beside.client().await?;
    let mut rest = Rest::connect(beside.tcp()).await?;
    for _ in 0..WARM_UP {
        whole(engine, &request()).await?;
        over_grpc(&client).await?;
        rest.whole().await?;
    }
    let (mut inside, mut grpc, mut http) = (Vec::new(), Vec::new(), Vec::new());
    let mut left = args.count;
    while left > 0 {
        let turn = left.min(IN_A_ROW);
        for _ in 0..turn {
            inside.push(whole(engine, &request()).await?);
        }
        for _ in 0..turn {
            grpc.push(over_grpc(&client).await?);
        }
        for _ in 0..turn {
            http.push(rest.whole().await?);
        }
        left -= turn;
    }
    let all = |rounds: &[Stages]| rounds.iter().map(Stages::whole).collect();
    let whole = vec![
        Figures::of("in process", all(&inside)),
        Figures::of("gRPC, Unix socket", all(&grpc)),
        Figures::of("REST, TCP", http),
    ];
    let mut stages = Vec::new();
    for (name, rounds) in [("in process", &inside), ("gRPC", &grpc)] {
        for (stage, duration) in Stages::PARTS {
            let durations = rounds.iter().map(duration).collect();
            stages.push(Figures::of(&format!("{name}: {stage}"), durations));
        }
    }
    let ratios =
        whole[1..].iter().map(|one| (one.name.clone(), one.p50_ms / whole[0].p50_ms)).collect();
    let exec = exec(&client, args.count).await?;
    let followers = Followers::measure(beside, &client, args.followers).await?;
    let idle = Idle::measure(beside, args.connections).await?;
    Ok(Report { whole, stages, ratios, exec, followers, idle })
}

async fn over_grpc(client: &Client) -> Result<Stages, Failure> {
    let begun = Instant::now();
    let sandbox = create(client).await?;
    let create = begun.elapsed();
    let ran = exec_true(client, &sandbox).await;
    let exec = begun.elapsed() - create;
    destroy(client, sandbox).await?;
    ran.map(|()| Stages { create, exec, destroy: begun.elapsed() - create - exec })
}

async fn create(client: &Client) -> Result<String, Failure> {
    let request = v1::CreateSandboxRequest::default();
    Ok(client.sandboxes.clone().create_sandbox(request).await?.into_inner().sandbox_id)
}

async fn exec_true(client: &Client, sandbox: &str) -> Result<(), Failure> {
    let command = v1::Command { argv: vec!["true".to_owned()], ..v1::Command::default() };
    let request = v1::ExecRequest {
        sandbox: sandbox.to_owned(),
        command: Some(command),
        ..v1::ExecRequest::default()
    };
    client.processes.clone().exec(request).await?;
    Ok(())
}

async fn destroy(client: &Client, sandbox: String) -> Result<(), Failure> {
    client.sandboxes.clone().destroy_sandbox(v1::DestroySandboxRequest { sandbox }).await?;
    Ok(())
}

async fn exec(client: &Client, count: u32) -> Result<Vec<Figures>, Failure> {
    let mut sandboxes = Vec::new();
    for _ in 0..AT_ONCE {
        sandboxes.push(create(client).await?);
    }
    let measured = async {
        let alone = one_after_the_other(client, &sandboxes[0], count).await?;
        let apart = at_once(client, sandboxes.iter(), count).await?;
        // All of them share the one CPU that a sandbox has unless more is asked for.
        let together = at_once(client, [&sandboxes[0]; AT_ONCE].into_iter(), count).await?;
        let plain = plain_at_once(count).await;
        Ok(vec![
            Figures::of("one after the other", alone),
            Figures::of(&format!("{AT_ONCE} at once, a sandbox each"), apart),
            Figures::of(&format!("{AT_ONCE} at once in one sandbox"), together),
            Figures::of(&format!("{AT_ONCE} at once, fork + exec"), plain),
        ])
    }
    .await;
    for sandbox in sandboxes {
        destroy(client, sandbox).await?;
    }
    measured
}

/// About `count` commands, as many under way at once as there are sandboxes.
async fn at_once(
    client: &Client,
    sandboxes: impl ExactSizeIterator<Item = &String>,
    count: u32,
) -> Result<Vec<Duration>, Failure> {
    let each = (count as usize).div_ceil(sandboxes.len());
    let each = u32::try_from(each).unwrap_or(1);
    let several = sandboxes.map(|sandbox| one_after_the_other(client, sandbox, each));
    Ok(futures_util::future::try_join_all(several).await?.concat())
}

/// The same on the host itself, without any server or sandbox: what these processors can do.
async fn plain_at_once(count: u32) -> Vec<Duration> {
    let each = (count as usize).div_ceil(AT_ONCE);
    let one = move || (0..each).filter_map(|_| peers::fork_and_exec().ok()).collect::<Vec<_>>();
    let several = (0..AT_ONCE).map(|_| tokio::task::spawn_blocking(one));
    let all = futures_util::future::join_all(several).await;
    all.into_iter().flatten().flatten().collect()
}

async fn one_after_the_other(
    client: &Client,
    sandbox: &str,
    count: u32,
) -> Result<Vec<Duration>, Failure> {
    let mut durations = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        exec_true(client, sandbox).await?;
        durations.push(begun.elapsed());
    }
    Ok(durations)
}

fn render(report: &Report) -> String {
    let mut text = String::from("create + `true` + destroy\n");
    text.push_str(&table(&report.whole));
    text.push_str("\nof which\n");
    text.push_str(&table(&report.stages));
    text.push_str("\ndivided by the figure in process (p50)\n");
    for (name, ratio) in &report.ratios {
        text.push_str(&format!("  {name}: {ratio:.2}\n"));
    }
    text.push_str("\n`true` in a sandbox that exists, over gRPC\n");
    text.push_str(&table(&report.exec));
    text.push_str(&format!("\n{}\n{}\n", report.followers, report.idle));
    text
}
