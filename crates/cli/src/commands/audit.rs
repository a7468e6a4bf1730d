//! `belljar audit`: who did what to which sandbox.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_api::{Timestamp, rfc3339, v1};
use belljar_codes::Code;
use belljar_engine::{AuditLog, AuditReport};
use belljar_policy::shown;
use serde::Serialize;

use super::Done;
use crate::args::{AuditArgs, AuditCommand, AuditQueryArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, print, print_json, print_json_line};
use crate::request;

pub(crate) async fn audit(context: &Context, args: AuditArgs) -> Result<Done, Failure> {
    match args.command {
        AuditCommand::Verify { anchor, json } => verify(context, anchor.as_deref(), json).await,
        AuditCommand::Tail { last, follow, json } => {
            let request = v1::QueryAuditRequest { last: Some(last), follow, ..Default::default() };
            query(context, request, json).await
        }
        AuditCommand::Query(args) => query(context, query_of(&args)?, args.json).await,
    }
}

#[derive(Serialize)]
struct Verified {
    records: u64,
    first_seq: u64,
    last_seq: u64,
    last_hash: String,
}

/// Reads the files directly: whoever doubts the log may doubt the server too.
async fn verify(context: &Context, anchor: Option<&str>, json: bool) -> Result<Done, Failure> {
    let anchor = anchor.map(anchor_of).transpose()?;
    let report = AuditLog::of(&context.settings.state_dir()?).verify(anchor).await?;
    let AuditReport { records, first_seq, last_seq, last_hash } = report;
    if json {
        print_json(&Verified { records, first_seq, last_seq, last_hash })?;
    } else {
        print(&format!(
            "{records} records are as they were written\nlast {last_seq}:{last_hash}\n"
        ))?;
    }
    Ok(Done::Success)
}

fn anchor_of(text: &str) -> Result<(u64, String), Failure> {
    let parts = text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash)));
    match parts {
        Some((seq, hash)) => Ok((seq, hash.to_owned())),
        None => Err(Failure::new(
            Code::InvalidArgument,
            format!("`--anchor {}` is not a number and a hash", shown(text)),
        )
        .with_remedy("write `NUMBER:HASH` as `belljar audit verify` prints it")),
    }
}

fn query_of(args: &AuditQueryArgs) -> Result<v1::QueryAuditRequest, Failure> {
    let ago = |flag: &str, text: &Option<String>| {
        request::duration(flag, text.as_deref()).map(|ago| ago.map(time_ago))
    };
    Ok(v1::QueryAuditRequest {
        sandbox: args.sandbox.clone(),
        actor: args.actor.clone(),
        action: args.action.clone(),
        outcome: args.outcome.clone(),
        verdict: args.verdict.clone(),
        rule: args.rule.clone(),
        policy: args.policy.clone(),
        since: ago("--since", &args.since)?,
        until: ago("--until", &args.until)?,
        ..v1::QueryAuditRequest::default()
    })
}

async fn query(
    context: &Context,
    request: v1::QueryAuditRequest,
    json: bool,
) -> Result<Done, Failure> {
    context
        .with_client(async |mut client| {
            let mut records = client.system.query_audit(request).await?.into_inner();
            while let Some(record) = records.message().await? {
                if json {
                    print_json_line(&record)?;
                } else {
                    print(&render(&record))?;
                }
            }
            Ok(Done::Success)
        })
        .await
}

/// `2026-01-02T03:04:05.678Z  uid:0  sandbox.create  n0a1…  ok`.
fn render(record: &v1::AuditRecord) -> String {
    let at = record.at.as_ref().map(rfc3339).unwrap_or_default();
    let sandbox = record.sandbox_id.as_deref().unwrap_or("-");
    let mut line =
        format!("{at}  {}  {}  {sandbox}  {}", record.actor, record.action, record.outcome);
    for (name, value) in &record.detail {
        line.push_str(&format!("  {name}={value}"));
    }
    let line = line.replace(['\n', '\r'], "\u{fffd}");
    Inert::default().push(line.as_bytes()) + "\n"
}

fn time_ago(seconds: f64) -> Timestamp {
    let then = SystemTime::now()
        .checked_sub(Duration::from_secs_f64(seconds))
        .and_then(|then| then.duration_since(UNIX_EPOCH).ok())
        .unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(then.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(then.subsec_nanos()).unwrap_or(0),
    }
}
