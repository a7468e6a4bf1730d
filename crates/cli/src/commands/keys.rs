//! `belljar keys`: who may use a server.

use belljar_api::v1;

use super::Done;
use crate::args::{KeyCreateArgs, KeysArgs, KeysCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, note, print, print_json};
use crate::request;

pub(crate) async fn keys(context: &Context, args: KeysArgs) -> Result<Done, Failure> {
    match args.command {
        KeysCommand::Create(args) => create(context, args).await,
        KeysCommand::List { tenant, json } => list(context, tenant, json).await,
        KeysCommand::Revoke { key, json } => revoke(context, key, json).await,
    }
}

async fn create(context: &Context, args: KeyCreateArgs) -> Result<Done, Failure> {
    // A key for one sandbox is of that role, whether or not it is said.
    let role = args.role.or_else(|| args.sandbox.as_ref().map(|_| "sandbox".to_owned()));
    let request = v1::CreateKeyRequest {
        name: args.name,
        tenant: args.tenant,
        role,
        sandbox: args.sandbox,
        scopes: args.scopes,
        expires_in_secs: request::duration("--expires", args.expires.as_deref())?,
    };
    let created = context
        .with_client(async |mut client| Ok(client.system.create_key(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&created)?;
    } else {
        print(&format!("{}\n", created.secret))?;
        let id = created.key.map(|key| key.key_id).unwrap_or_default();
        note(context.quiet, &format!("this is key `{id}`; its secret is not shown again"));
    }
    Ok(Done::Success)
}

async fn list(context: &Context, tenant: Option<String>, json: bool) -> Result<Done, Failure> {
    let request = v1::ListKeysRequest { tenant };
    let keys = context
        .with_client(async |mut client| Ok(client.system.list_keys(request).await?))
        .await?
        .into_inner()
        .keys;
    if json {
        print_json(&keys)?;
    } else {
        print(&render(&keys))?;
    }
    Ok(Done::Success)
}

async fn revoke(context: &Context, key_id: String, json: bool) -> Result<Done, Failure> {
    let request = v1::RevokeKeyRequest { key_id };
    let key = context
        .with_client(async |mut client| Ok(client.system.revoke_key(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&key)?;
    } else {
        print(&format!("{}\n", key.key_id))?;
    }
    Ok(Done::Success)
}

fn render(keys: &[v1::Key]) -> String {
    let mut table = Table::new(&["ID", "NAME", "TENANT", "ROLE", "SCOPES", "AGE", "USED", "STATE"]);
    for key in keys {
        let used = key.last_used_at.as_ref();
        let used = used.map_or_else(|| "never".to_owned(), |at| age(Some(at)) + " ago");
        let state = if key.revoked_at.is_some() { "revoked" } else { "" };
        table.row([
            key.key_id.as_str(),
            &key.name,
            &key.tenant,
            &key.sandbox_id.as_ref().map_or_else(|| key.role.clone(), |id| format!("sandbox {id}")),
            &key.scopes.join(","),
            &age(key.created_at.as_ref()),
            &used,
            state,
        ]);
    }
    table.render(0)
}
