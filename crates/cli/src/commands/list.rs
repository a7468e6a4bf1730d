//! `belljar list`.

use belljar_api::v1;
use belljar_client::Client;

use super::{Done, enumeration};
use crate::args::ListArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, print, print_json, word};
use crate::request;

pub(crate) async fn list(context: &Context, args: &ListArgs) -> Result<Done, Failure> {
    let query = v1::ListSandboxesRequest {
        labels: request::labels(&args.label)?,
        metadata: request::metadata(&args.metadata)?,
        states: enumeration::<v1::SandboxState>(&args.state)?,
        name_prefix: args.name_prefix.clone(),
        tenant: args.tenant.clone(),
        ..v1::ListSandboxesRequest::default()
    };
    let sandboxes = context.with_client(async |client| all(&client, query).await).await?;
    if args.json {
        print_json(&sandboxes)?;
    } else {
        print(&render(&sandboxes))?;
    }
    Ok(Done::Success)
}

fn render(sandboxes: &[v1::Sandbox]) -> String {
    let mut table = Table::new(&["ID", "NAME", "TEMPLATE", "BACKEND", "NETWORK", "STATE", "AGE"]);
    for sandbox in sandboxes {
        table.row([
            sandbox.sandbox_id.as_str(),
            sandbox.name.as_deref().unwrap_or_default(),
            &sandbox.template,
            &sandbox.backend,
            sandbox.isolation.as_ref().map_or("", |isolation| &isolation.network_mode),
            &word(&sandbox.state()),
            &age(sandbox.created_at.as_ref()),
        ]);
    }
    table.render(0)
}

/// Every sandbox that matches, page by page.
pub(super) async fn all(
    client: &Client,
    mut query: v1::ListSandboxesRequest,
) -> Result<Vec<v1::Sandbox>, Failure> {
    let mut sandboxes = client.sandboxes.clone();
    let mut found = Vec::new();
    loop {
        let page = sandboxes.list_sandboxes(query.clone()).await?.into_inner();
        found.extend(page.sandboxes);
        query.page_token = page.next_page_token;
        if query.page_token.is_none() {
            return Ok(found);
        }
    }
}
