//! `belljar webhooks`: addresses that events are sent to.

use std::io::Read;

use belljar_api::v1;
use belljar_codes::Code;
use serde::Serialize;

use super::{Done, enumeration};
use crate::args::{WebhooksArgs, WebhooksCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, print, print_json, word};

/// A longer secret is something else.
const MAX_SECRET: u64 = 4096;

pub(crate) async fn webhooks(context: &Context, args: WebhooksArgs) -> Result<Done, Failure> {
    match args.command {
        WebhooksCommand::Add { url, secret_file, kind, json } => {
            let kinds = enumeration::<v1::EventKind>(&kind)?;
            let request = v1::CreateWebhookRequest { url, secret: secret(&secret_file)?, kinds };
            add(context, request, json).await
        }
        WebhooksCommand::List { json } => list(context, json).await,
        WebhooksCommand::Rm { webhook, json } => remove(context, webhook, json).await,
    }
}

async fn add(
    context: &Context,
    request: v1::CreateWebhookRequest,
    json: bool,
) -> Result<Done, Failure> {
    let webhook = context
        .with_client(async |mut client| Ok(client.system.create_webhook(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&webhook)?;
    } else {
        print(&format!("{}\n", webhook.webhook_id))?;
    }
    Ok(Done::Success)
}

async fn list(context: &Context, json: bool) -> Result<Done, Failure> {
    let webhooks = context
        .with_client(async |mut client| {
            Ok(client.system.list_webhooks(v1::ListWebhooksRequest {}).await?)
        })
        .await?
        .into_inner()
        .webhooks;
    if json {
        print_json(&webhooks)?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["ID", "URL", "KINDS", "DELIVERED", "FAILURES", "LAST FAILURE"]);
    for webhook in &webhooks {
        let kinds: Vec<_> = webhook.kinds().map(|kind| word(&kind).replace('_', "-")).collect();
        let kinds = if kinds.is_empty() { "all".to_owned() } else { kinds.join(",") };
        table.row([
            webhook.webhook_id.as_str(),
            &webhook.url,
            &kinds,
            &webhook.delivered_seq.to_string(),
            &webhook.failures.to_string(),
            webhook.last_error.as_deref().unwrap_or_default(),
        ]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

#[derive(Serialize)]
struct Removed {
    removed: String,
}

async fn remove(context: &Context, webhook_id: String, json: bool) -> Result<Done, Failure> {
    let request = v1::RemoveWebhookRequest { webhook_id: webhook_id.clone() };
    context
        .with_client(async |mut client| Ok(client.system.remove_webhook(request).await?))
        .await?;
    if json {
        print_json(&Removed { removed: webhook_id })?;
    }
    Ok(Done::Success)
}

/// A secret on the command line would be seen by everybody on this machine, so it comes from a file.
fn secret(path: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path {
        "-" => std::io::stdin().lock().take(MAX_SECRET).read_to_string(&mut text),
        path => std::fs::File::open(path)
            .and_then(|file| file.take(MAX_SECRET).read_to_string(&mut text)),
    };
    read.map_err(|error| {
        Failure::new(Code::InvalidArgument, "the secret cannot be read").caused_by(&error)
    })?;
    match text.trim() {
        "" => Err(Failure::new(Code::InvalidArgument, "the secret is empty")
            .with_remedy("write a long random text into the file")),
        secret => Ok(secret.to_owned()),
    }
}
