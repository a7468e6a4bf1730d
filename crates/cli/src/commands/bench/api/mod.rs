//! `belljar bench api`: what the server costs on top of the engine.
//!
//! A server of its own runs beside, as a process of its own, on a state directory of its own. Rounds are interleaved,
//! so that the noise of the host meets all alike.

mod crowd;
mod exec;
mod rest;

use std::time::Instant;

use belljar_api::v1;
use belljar_client::Client;
use belljar_engine::Engine;
use serde::Serialize;

use self::crowd::{Followers, Idle};
use self::exec::{Exec, exec};
use self::rest::Rest;
use super::beside::Beside;
use super::stats::{Figures, table};
use super::tidy::{Bench, request};
use super::{Done, Stages, whole};
use crate::args::BenchApiArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Before figures are taken: templates are built, caches are warm.
const WARM_UP: u32 = 10;

/// Rounds of one way before the next has its turn. What is left of a sandbox is taken apart while the next one is made: in a
/// row, each way meets what it has left itself, and finds its own processes warm, as under load.
const IN_A_ROW: u32 = 10;

#[derive(Debug, Serialize)]
struct Report {
    /// Create + `true` + destroy: in process, over gRPC on the Unix socket, over REST on TCP.
    whole: Vec<Figures>,
    /// The parts of the first two.
    stages: Vec<Figures>,
    /// Divided by the figure in process, p50.
    ratios: Vec<(String, f64)>,
    /// Commands in sandboxes that exist.
    exec: Exec,
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
    let exec = Exec::measure(&client, args.count, beside.directory()).await?;
    let followers = Followers::measure(beside, &client, args.followers).await?;
    let idle = Idle::measure(beside, args.connections).await?;
    Ok(Report { whole, stages, ratios, exec, followers, idle })
}

async fn over_grpc(client: &Client) -> Result<Stages, Failure> {
    let begun = Instant::now();
    let sandbox = create(client).await?;
    let create = begun.elapsed();
    let ran = exec(client, &sandbox, "true").await;
    let exec = begun.elapsed() - create;
    destroy(client, sandbox).await?;
    ran.map(|()| Stages { create, exec, destroy: begun.elapsed() - create - exec })
}

async fn create(client: &Client) -> Result<String, Failure> {
    let request = v1::CreateSandboxRequest::default();
    Ok(client.sandboxes.clone().create_sandbox(request).await?.into_inner().sandbox_id)
}

async fn destroy(client: &Client, sandbox: String) -> Result<(), Failure> {
    client.sandboxes.clone().destroy_sandbox(v1::DestroySandboxRequest { sandbox }).await?;
    Ok(())
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
    text.push_str(&report.exec.render());
    text.push_str(&format!("\n{}\n{}\n", report.followers, report.idle));
    text
}
