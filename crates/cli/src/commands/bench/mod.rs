//! `belljar bench`: how fast and how small, beside peers, in one run.

mod answering;
mod api;
mod beside;
mod decisions;
mod egress;
mod engine;
mod idle;
mod nothing;
mod peers;
mod start;
mod stats;
mod tidy;
mod tools;

use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_engine::{CreateRequest, Engine, ExecRequest, Program, SandboxId, SessionRequest};

use self::tidy::Bench;
use super::Done;
use crate::args::{BenchArgs, BenchCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::note;

pub(crate) async fn bench(context: &Context, args: &BenchArgs) -> Result<Done, Failure> {
    let bench = &Bench::begin(context).await?;
    let done = match &args.command {
        BenchCommand::Start(args) => start::start(bench, args).await,
        BenchCommand::Api(args) => api::api(bench, args).await,
        BenchCommand::Idle(args) => idle::idle(bench, args).await,
        BenchCommand::Decisions(args) => decisions::decisions(bench, args).await,
        BenchCommand::Tools(args) => tools::tools(bench, args).await,
        BenchCommand::Egress(args) => egress::egress(bench, args).await,
    };
    match (done, bench.asked()) {
        (Err(failure), Some(status)) if failure.code == Code::Interrupted => {
            note(context.quiet, "the bench was interrupted; what it had made is removed");
            Ok(Done::Status(status))
        }
        (done, _) => done,
    }
}

/// A sandbox that lasts.
async fn create(engine: &Engine, wanted: &CreateRequest) -> Result<SandboxId, Failure> {
    Ok(engine.create(wanted.clone()).await?.id)
}

/// Runs `true` and waits for its end.
async fn exec_true(engine: &Engine, id: &SandboxId) -> Result<(), Failure> {
    let request = ExecRequest::new(Program::Argv(vec!["true".into()]));
    engine.exec(id, request).await?.wait().await?;
    Ok(())
}

/// How long each part of a whole life took.
struct Stages {
    create: Duration,
    exec: Duration,
    destroy: Duration,
}

/// A part of a life, by name.
type Part = (&'static str, fn(&Stages) -> Duration);

impl Stages {
    const PARTS: [Part; 3] =
        [("create", |one| one.create), ("exec", |one| one.exec), ("destroy", |one| one.destroy)];

    fn whole(&self) -> Duration {
        self.create + self.exec + self.destroy
    }
}

/// Create, `true`, destroy: what `run --ephemeral` does.
async fn whole(engine: &Engine, wanted: &CreateRequest) -> Result<Stages, Failure> {
    let begun = Instant::now();
    let session = engine.session(SessionRequest::Ephemeral(wanted.clone())).await?;
    let create = begun.elapsed();
    let ran = exec_true(engine, &session.sandbox.id).await;
    let exec = begun.elapsed() - create;
    session.end().await?;
    ran.map(|()| Stages { create, exec, destroy: begun.elapsed() - create - exec })
}
