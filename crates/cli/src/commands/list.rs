//! `belljar list`.

use std::time::SystemTime;

use belljar_engine::{Engine, Sandbox, SandboxQuery};

use super::Done;
use crate::args::ListArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{SandboxShape, Table, age, print, print_json};

pub(crate) async fn list(context: &Context, args: &ListArgs) -> Result<Done, Failure> {
    let sandboxes = context.with_engine(async |engine| Ok(all(engine).await?)).await?;
    if args.json {
        print_json(&sandboxes.iter().map(SandboxShape::from).collect::<Vec<_>>())?;
    } else {
        let now = SystemTime::now();
        let mut table =
            Table::new(&["ID", "NAME", "TEMPLATE", "BACKEND", "NETWORK", "STATE", "AGE"]);
        for sandbox in &sandboxes {
            table.row([
                sandbox.id.as_str(),
                sandbox.name.as_deref().unwrap_or_default(),
                &sandbox.template,
                &sandbox.backend,
                &sandbox.isolation.network_mode,
                sandbox.state.as_str(),
                &age(sandbox.created_at, now),
            ]);
        }
        print(&table.render(0))?;
    }
    Ok(Done::Success)
}

/// Every sandbox that has not ended, page by page.
pub(super) async fn all(engine: &Engine) -> belljar_engine::Result<Vec<Sandbox>> {
    let mut query = SandboxQuery::default();
    let mut found = Vec::new();
    loop {
        let page = engine.list(&query).await?;
        found.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            return Ok(found);
        }
    }
}
