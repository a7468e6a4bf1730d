//! `belljar inspect`.

use belljar_api::v1;

use super::Done;
use crate::args::InspectArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{SandboxShape, print, print_json, rules_table, time, word};

pub(crate) async fn inspect(context: &Context, args: &InspectArgs) -> Result<Done, Failure> {
    let (sandbox, explain) = context
        .with_client(async |mut client| {
            let wanted = v1::GetSandboxRequest { sandbox: args.sandbox.clone() };
            let sandbox = client.sandboxes.get_sandbox(wanted).await?.into_inner();
            let explain = match args.explain && args.json {
                true => {
                    let sandbox = Some(sandbox.sandbox_id.clone());
                    let wanted = v1::ExplainSandboxRequest { create: None, sandbox };
                    Some(client.sandboxes.explain_sandbox(wanted).await?.into_inner())
                }
                false => None,
            };
            Ok((sandbox, explain))
        })
        .await?;
    if args.json {
        print_json(&SandboxShape { sandbox, explain })?;
    } else {
        print(&render(&sandbox, args.explain))?;
    }
    Ok(Done::Success)
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
