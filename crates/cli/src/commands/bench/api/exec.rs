//! Commands in sandboxes that exist: one after the other, and many at once, beside the same without a sandbox.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use serde::Serialize;

use super::super::stats::{Figures, table};
use super::super::{nothing, peers};
use super::{create, destroy};
use crate::failure::Failure;

/// Commands under way at once.
const AT_ONCE: usize = 16;

/// Where a program that does nothing is put in each sandbox.
const NOTHING: &str = "/workspace/nothing";

/// Before figures are taken, in each sandbox.
const WARM_UP: u32 = 3;

#[derive(Debug, Serialize)]
pub(super) struct Exec {
    /// `true`: one after the other, and many at once, in a sandbox each, in the same, and on the host.
    pub(super) rounds: Vec<Figures>,
    /// A program that does nothing, the same ways.
    nothing: Vec<Figures>,
    /// Many at once in a sandbox each, divided by the same on the host, p99: `true` and nothing.
    crowd_ratios: [f64; 2],
}

impl Exec {
    pub(super) async fn measure(
        client: &Client,
        count: u32,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let mut sandboxes = Vec::new();
        for _ in 0..AT_ONCE {
            sandboxes.push(create(client).await?);
        }
        let measured = async {
            for sandbox in &sandboxes {
                put_nothing(client, sandbox).await?;
                one_after_the_other(client, sandbox, "true", WARM_UP).await?;
            }
            let plain = nothing::put_into(directory).map_err(|error| {
                let text = format!("a program cannot be put into `{}`", directory.display());
                Failure::new(Code::Internal, text).caused_by(&error)
            })?;
            let rounds = figures(client, &sandboxes, "true", OsStr::new("true"), count).await?;
            let nothing = figures(client, &sandboxes, NOTHING, plain.as_os_str(), count).await?;
            let ratio = |figures: &[Figures]| figures[1].p99_ms / figures[3].p99_ms;
            let crowd_ratios = [ratio(&rounds), ratio(&nothing)];
            Ok(Self { rounds, nothing, crowd_ratios })
        }
        .await;
        for sandbox in sandboxes {
            destroy(client, sandbox).await?;
        }
        measured
    }

    pub(super) fn render(&self) -> String {
        let [with_true, with_nothing] = self.crowd_ratios;
        format!(
            "\n`true` in a sandbox that exists, over gRPC\n{}\na program that does nothing, the same ways\n{}\n\
             {AT_ONCE} at once, a sandbox each, divided by fork + exec (p99)\n  `true`: {with_true:.2}\n  nothing: {with_nothing:.2}\n",
            table(&self.rounds),
            table(&self.nothing),
        )
    }
}

/// One program, in all ways.
async fn figures(
    client: &Client,
    sandboxes: &[String],
    program: &str,
    plain: &OsStr,
    count: u32,
) -> Result<Vec<Figures>, Failure> {
    let alone = one_after_the_other(client, &sandboxes[0], program, count).await?;
    let apart = at_once(client, sandboxes.iter(), program, count).await?;
    // All of them share the one CPU that a sandbox has unless more is asked for.
    let together = at_once(client, [&sandboxes[0]; AT_ONCE].into_iter(), program, count).await?;
    let plain = plain_at_once(plain, count).await;
    Ok(vec![
        Figures::of("one after the other", alone),
        Figures::of(&format!("{AT_ONCE} at once, a sandbox each"), apart),
        Figures::of(&format!("{AT_ONCE} at once in one sandbox"), together),
        Figures::of(&format!("{AT_ONCE} at once, fork + exec"), plain),
    ])
}

/// About `count` commands, as many under way at once as there are sandboxes.
async fn at_once(
    client: &Client,
    sandboxes: impl ExactSizeIterator<Item = &String>,
    program: &str,
    count: u32,
) -> Result<Vec<Duration>, Failure> {
    let each = (count as usize).div_ceil(sandboxes.len());
    let each = u32::try_from(each).unwrap_or(1);
    let several = sandboxes.map(|sandbox| one_after_the_other(client, sandbox, program, each));
    Ok(futures_util::future::try_join_all(several).await?.concat())
}

/// The same on the host itself, without any server or sandbox: what these processors can do.
async fn plain_at_once(program: &OsStr, count: u32) -> Vec<Duration> {
    let each = (count as usize).div_ceil(AT_ONCE);
    let several = (0..AT_ONCE).map(|_| {
        let program = program.to_owned();
        tokio::task::spawn_blocking(move || {
            let rounds = (0..each).filter_map(|_| peers::fork_and_exec(&program).ok());
            rounds.collect::<Vec<_>>()
        })
    });
    let all = futures_util::future::join_all(several).await;
    all.into_iter().flatten().flatten().collect()
}

async fn one_after_the_other(
    client: &Client,
    sandbox: &str,
    program: &str,
    count: u32,
) -> Result<Vec<Duration>, Failure> {
    let mut durations = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        exec(client, sandbox, program).await?;
        durations.push(begun.elapsed());
    }
    Ok(durations)
}

pub(super) async fn exec(client: &Client, sandbox: &str, program: &str) -> Result<(), Failure> {
    let command = v1::Command { argv: vec![program.to_owned()], ..v1::Command::default() };
    let request = v1::ExecRequest {
        sandbox: sandbox.to_owned(),
        command: Some(command),
        ..v1::ExecRequest::default()
    };
    let ended = client.processes.clone().exec(request).await?.into_inner();
    if ended.exit_code != 0 {
        let text = format!("`{program}` ended with {}", ended.exit_code);
        return Err(Failure::new(Code::Internal, text));
    }
    Ok(())
}

async fn put_nothing(client: &Client, sandbox: &str) -> Result<(), Failure> {
    let request = v1::WriteFileRequest {
        sandbox: sandbox.to_owned(),
        path: NOTHING.to_owned(),
        permissions: Some(0o755),
        data: nothing::program().into(),
        ..v1::WriteFileRequest::default()
    };
    client.files.clone().write_file(tokio_stream::once(request)).await?;
    Ok(())
}
