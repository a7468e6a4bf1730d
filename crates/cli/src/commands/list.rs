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

/// Whose each is stands there only where they are not all of one tenant: names are unique within one.
fn render(sandboxes: &[v1::Sandbox]) -> String {
    let mixed = sandboxes.iter().any(|sandbox| sandbox.tenant != sandboxes[0].tenant);
    let tenant = |text| mixed.then_some(text);
    let heading = ["ID", "NAME"].into_iter().chain(tenant("TENANT"));
    let heading = heading.chain(["TEMPLATE", "BACKEND", "NETWORK", "STATE", "AGE"]);
    let mut table = Table::new(&heading.collect::<Vec<_>>());
    for sandbox in sandboxes {
        let (state, age) = (word(&sandbox.state()), age(sandbox.created_at.as_ref()));
        let isolation = sandbox.isolation.as_ref();
        let cells = [sandbox.sandbox_id.as_str(), sandbox.name.as_deref().unwrap_or_default()];
        table.row(cells.into_iter().chain(tenant(&sandbox.tenant)).chain([
            sandbox.template.as_str(),
            &sandbox.backend,
            isolation.map_or("", |isolation| &isolation.network_mode),
            &state,
            &age,
        ]));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_shown_where_there_are_several() {
        let of = |tenant: &str| v1::Sandbox {
            sandbox_id: format!("of-{tenant}"),
            tenant: tenant.to_owned(),
            ..v1::Sandbox::default()
        };
        let both = render(&[of("blue"), of("red")]);
        let mut lines = both.lines().map(|line| line.split_whitespace().nth(2));
        assert_eq!(lines.next(), Some(Some("TENANT")));
        assert_eq!(lines.collect::<Vec<_>>(), [Some("blue"), Some("red")]);
        assert!(!render(&[of("blue"), of("blue")]).contains("TENANT"));
        assert_eq!(render(&[]).lines().count(), 1);
    }
}
