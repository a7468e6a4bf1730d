//! `belljar inspect`.

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_policy::ProcessId;

use super::Done;
use crate::args::InspectArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, SandboxShape, print, print_json, rules_table, time, word};

pub(crate) async fn inspect(context: &Context, args: &InspectArgs) -> Result<Done, Failure> {
    let found = context.with_client(async |client| find(client, args).await).await?;
    match found {
        Found::Sandbox(shape) if args.json => print_json(&shape)?,
        Found::Sandbox(shape) => print(&render(&shape.sandbox, args.explain))?,
        Found::Process(process) if args.json => print_json(&process)?,
        Found::Process(process) => print(&render_process(&process))?,
    }
    Ok(Done::Success)
}

enum Found {
    Sandbox(Box<SandboxShape>),
    Process(Box<v1::Process>),
}

/// Sandboxes come first: a name may look like the id of a process.
async fn find(mut client: Client, args: &InspectArgs) -> Result<Found, Failure> {
    let wanted = v1::GetSandboxRequest { sandbox: args.subject.clone() };
    let sandbox = match client.sandboxes.get_sandbox(wanted).await {
        Ok(sandbox) => sandbox.into_inner(),
        Err(status) => return find_process(client, args, status.into()).await,
    };
    let explain = match args.explain && args.json {
        true => {
            let sandbox = Some(sandbox.sandbox_id.clone());
            let wanted = v1::ExplainSandboxRequest { create: None, sandbox };
            Some(client.sandboxes.explain_sandbox(wanted).await?.into_inner())
        }
        false => None,
    };
    Ok(Found::Sandbox(Box::new(SandboxShape { sandbox, explain })))
}

/// The process of that id; where there is none either, `no_sandbox` tells.
async fn find_process(
    mut client: Client,
    args: &InspectArgs,
    no_sandbox: Failure,
) -> Result<Found, Failure> {
    let may_be =
        no_sandbox.code == Code::SandboxNotFound && ProcessId::parse(&args.subject).is_ok();
    if !may_be {
        return Err(no_sandbox);
    }
    let wanted = v1::GetProcessRequest { process_id: args.subject.clone() };
    let process = match client.processes.get_process(wanted).await.map_err(Failure::from) {
        Ok(process) => process.into_inner(),
        Err(failure) if failure.code == Code::ProcessNotFound => return Err(no_sandbox),
        Err(failure) => return Err(failure),
    };
    if args.explain {
        let sandbox = &process.sandbox_id;
        return Err(Failure::new(
            Code::ConflictingOptions,
            format!("`{}` is a process, and only sandboxes have rules", process.process_id),
        )
        .with_remedy(format!("`belljar inspect --explain {sandbox}` shows those of its sandbox")));
    }
    Ok(Found::Process(Box::new(process)))
}

fn render_process(process: &v1::Process) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    line("id", &process.process_id);
    line("sandbox", &process.sandbox_id);
    line("tenant", &process.tenant);
    line("command", &inert(&process.command));
    line("status", &word(&process.status()));
    if let Some(code) = process.exit_code {
        line("exit", &code.to_string());
    }
    if process.reason.is_some() {
        line("reason", &word(&process.reason()));
    }
    if !process.limits_hit.is_empty() {
        line("limits", &process.limits_hit.join(" "));
    }
    line("timeout", &process.timeout_secs.map_or("none".to_owned(), |secs| format!("{secs} s")));
    line("started", &time(process.started_at.as_ref()));
    line("finished", &time(process.finished_at.as_ref()));
    line("expires", &time(process.expires_at.as_ref()));
    let end = process.log_end.unwrap_or_default();
    line("log", &format!("{} bytes of stdout, {} of stderr", end.stdout, end.stderr));
    text
}

/// A command may hold what a terminal would obey.
fn inert(text: &str) -> String {
    let mut inert = Inert::default();
    inert.push(text.as_bytes()).replace('\n', "\n            ")
}

fn render(sandbox: &v1::Sandbox, explain: bool) -> String {
    let isolation = sandbox.isolation.clone().unwrap_or_default();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    line("id", &sandbox.sandbox_id);
    line("name", sandbox.name.as_deref().unwrap_or("-"));
    line("state", &word(&sandbox.state()));
    if let Some(failure) = &sandbox.failure {
        line("failure", failure);
    }
    line("tenant", &sandbox.tenant);
    line("template", &sandbox.template);
    let wall = isolation.runtime.as_ref().map_or_else(
        || sandbox.backend.clone(),
        |runtime| format!("{}/{runtime}", sandbox.backend),
    );
    line("backend", &format!("{wall} ({}; {})", isolation.class, isolation.reason));
    line("network", &format!("{} ({})", isolation.network_mode, isolation.network_enforcement));
    line("user", &sandbox.user);
    if let Some(policy) = &sandbox.policy {
        line("policy", &policy_name(policy));
        line("digest", &policy.digest);
    }
    if let Some(workspace) = &sandbox.workspace {
        let mode = workspace.mode.as_deref().unwrap_or("overlay");
        line("workspace", &format!("{} ({mode})", workspace.path));
    }
    line("writable", &isolation.writable_paths.join(" "));
    line("created", &time(sandbox.created_at.as_ref()));
    line("used", &time(sandbox.used_at.as_ref()));
    line("expires", &time(sandbox.expires_at.as_ref()));
    for (key, value) in &sandbox.labels {
        line("label", &format!("{key}={value}"));
    }
    for (key, value) in &sandbox.metadata {
        line("metadata", &format!("{key}={value}"));
    }
    if explain {
        text.push_str("rules\n");
        text.push_str(&rules_table(&sandbox.enforcement).render(2));
    }
    text
}

/// What a sandbox runs under, in a few words.
pub(super) fn policy_name(policy: &v1::SandboxPolicy) -> String {
    let version = policy.version.map_or(String::new(), |version| format!("@{version}"));
    let recording = if policy.recording { " (recording)" } else { "" };
    format!("{}{version}{recording}", belljar_policy::shown(&policy.name))
}
