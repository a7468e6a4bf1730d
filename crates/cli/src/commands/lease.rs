//! `belljar extend`, `pause` and `resume`: how long a sandbox lives, and whether it runs.

use belljar_api::v1;

use super::Done;
use crate::args::{ExtendArgs, PauseArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{print, print_json, time, word};
use crate::request;

pub(crate) async fn extend(context: &Context, args: &ExtendArgs) -> Result<Done, Failure> {
    let request = v1::ExtendSandboxRequest {
        sandbox: args.sandbox.clone(),
        idle_timeout_secs: request::duration("--idle-timeout", args.idle_timeout.as_deref())?,
        lease_secs: request::duration("--lease", args.lease.as_deref())?,
    };
    let sandbox = context
        .with_client(async |mut client| Ok(client.sandboxes.extend_sandbox(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&sandbox)?;
    } else {
        print(&format!("expires {}\n", time(sandbox.expires_at.as_ref())))?;
    }
    Ok(Done::Success)
}

pub(crate) async fn pause(context: &Context, args: &PauseArgs) -> Result<Done, Failure> {
    let request = v1::PauseSandboxRequest { sandbox: args.sandbox.clone() };
    let sandbox = context
        .with_client(async |mut client| Ok(client.sandboxes.pause_sandbox(request).await?))
        .await?;
    show(&sandbox.into_inner(), args.json)
}

pub(crate) async fn resume(context: &Context, args: &PauseArgs) -> Result<Done, Failure> {
    let request = v1::ResumeSandboxRequest { sandbox: args.sandbox.clone() };
    let sandbox = context
        .with_client(async |mut client| Ok(client.sandboxes.resume_sandbox(request).await?))
        .await?;
    show(&sandbox.into_inner(), args.json)
}

fn show(sandbox: &v1::Sandbox, json: bool) -> Result<Done, Failure> {
    if json {
        print_json(sandbox)?;
    } else {
        print(&format!("{}\n", word(&sandbox.state())))?;
    }
    Ok(Done::Success)
}
