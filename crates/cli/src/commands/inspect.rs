//! `belljar inspect`.

use belljar_engine::Sandbox;

use super::Done;
use crate::args::InspectArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{ExplainShape, SandboxShape, print, print_json, rfc3339, rules_table};

pub(crate) async fn inspect(context: &Context, args: &InspectArgs) -> Result<Done, Failure> {
    let sandbox =
        context.with_engine(async |engine| Ok(engine.inspect(&args.sandbox).await?)).await?;
    if args.json {
        let explain = args.explain.then(|| ExplainShape::from(&sandbox));
        print_json(&SandboxShape { explain, ..SandboxShape::from(&sandbox) })?;
    } else {
        print(&render(&sandbox, args.explain))?;
    }
    Ok(Done::Success)
}

fn render(sandbox: &Sandbox, explain: bool) -> String {
    let isolation = &sandbox.isolation;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    line("id", sandbox.id.as_str());
    line("name", sandbox.name.as_deref().unwrap_or("-"));
    line("state", sandbox.state.as_str());
    if let Some(failure) = &sandbox.failure {
        line("failure", failure);
    }
    line("template", &sandbox.template);
    line("backend", &format!("{} ({})", sandbox.backend, isolation.class.as_str()));
    line("network", &format!("{} ({})", isolation.network_mode, isolation.network_enforcement));
    line("user", &sandbox.user.to_string());
    if let Some(workspace) = &sandbox.workspace {
        line("workspace", &format!("{} ({})", workspace.path.display(), workspace.mode.as_str()));
    }
    line("writable", &isolation.writable_paths.join(" "));
    line("created", &rfc3339(sandbox.created_at));
    line("expires", &sandbox.expires_at.map_or_else(|| "-".to_owned(), rfc3339));
    for (key, value) in &sandbox.labels {
        line("label", &format!("{key}={value}"));
    }
    if explain {
        text.push_str("rules\n");
        text.push_str(&rules_table(&sandbox.enforcement).render(2));
    }
    text
}
