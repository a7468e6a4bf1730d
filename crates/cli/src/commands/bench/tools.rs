//! `belljar bench tools`: how long code in a sandbox waits for a function of the host.
//!
//! Python in a sandbox calls a function of this process, which is connected as any client is, and a program of the host.
//! Python itself takes the time, so that the figures are what a caller sees.

use std::sync::Arc;
use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_engine::{
    CreateRequest, Engine, ExecRequest, PolicyChoice, Program, SandboxId, SandboxPolicy,
};
use belljar_policy::document::{Document, Format, Layer};
use serde::Serialize;

use super::Done;
use super::answering::answer;
use super::stats::{Figures, table};
use super::tidy::{Bench, request};
use crate::args::BenchToolsArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

const POLICY: &str = "
name: bench
tool_allowlist: [function, program]
tools:
  - {name: program, command: [/bin/echo, '1']}
";

/// Calls each tool in turn and prints how long each call took, in nanoseconds.
const SCRIPT: &str = "
import json, sys, time
from belljar_tools import call
name, count = sys.argv[1], int(sys.argv[2])
for _ in range(20):
    call(name, number=1)
taken = []
for _ in range(count):
    begun = time.perf_counter_ns()
    call(name, number=1)
    taken.append(time.perf_counter_ns() - begun)
print(json.dumps(taken))
";

/// A program of the host takes a process each time; fewer rounds say as much.
const PROGRAM_SHARE: u32 = 10;

#[derive(Debug, Serialize)]
struct Report {
    calls: Vec<Figures>,
}

pub(super) async fn tools(bench: &Bench<'_>, args: &BenchToolsArgs) -> Result<Done, Failure> {
    let report = bench.with_engine(async |engine| measure(engine, args).await).await?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&format!("a call from Python in a sandbox\n{}", table(&report.calls)))?;
    }
    Ok(Done::Success)
}

async fn measure(engine: &Engine, args: &BenchToolsArgs) -> Result<Report, Failure> {
    let client = Client::new(belljar_server::embedded(engine.clone()), None)?;
    let id = engine.create(CreateRequest { policy: Some(policy()?), ..request() }).await?.id;
    let measured = async {
        let tools = vec![v1::ToolDeclaration { name: "function".to_owned(), ..Default::default() }];
        let hello = v1::CallbackHello { sandbox_id: id.to_string(), tools, ..Default::default() };
        let answering = answer(&client, hello, |_| v1::CallbackAnswer {
            tool_result: Some(v1::ToolResult { json: "1".to_owned() }),
            ..Default::default()
        })
        .await?;
        let function = calls(engine, &id, "function", args.count).await?;
        let program = calls(engine, &id, "program", (args.count / PROGRAM_SHARE).max(10)).await?;
        answering.abort();
        let calls = vec![
            Figures::of("a function of a client", function),
            Figures::of("a program of the host", program),
        ];
        Ok(Report { calls })
    }
    .await;
    engine.destroy(id.as_str()).await?;
    measured
}

fn policy() -> Result<PolicyChoice, Failure> {
    let document = Document::parse(POLICY, Format::Yaml).map_err(|refusal| {
        Failure::new(Code::Internal, "the policy of this benchmark").caused_by(&refusal)
    })?;
    let layer = Layer { origin: "bench".to_owned(), document };
    Ok(PolicyChoice::Documents(Arc::new(SandboxPolicy::new(vec![layer])?)))
}

async fn calls(
    engine: &Engine,
    id: &SandboxId,
    tool: &str,
    count: u32,
) -> Result<Vec<Duration>, Failure> {
    let argv = ["python3", "-c", SCRIPT, tool, &count.to_string()].map(Into::into).to_vec();
    let ended = engine.exec(id, ExecRequest::new(Program::Argv(argv))).await?.wait().await?;
    let taken: Result<Vec<u64>, _> = serde_json::from_slice(&ended.stdout.data);
    let taken = taken.map_err(|error| {
        let said = String::from_utf8_lossy(&ended.stderr.data);
        let said = said.lines().last().unwrap_or_default().to_owned();
        Failure::new(Code::ToolFailed, format!("calling from Python failed: {said}"))
            .caused_by(&error)
            .with_remedy("Python 3 must be in the sandbox's PATH")
    })?;
    Ok(taken.into_iter().map(Duration::from_nanos).collect())
}
