//! `belljar secrets`: values that requests of sandboxes are given on the host. None is ever printed.

use std::io::{IsTerminal, Read};

use belljar_api::v1;
use belljar_codes::Code;
use serde::Serialize;

use super::Done;
use crate::args::{SecretSetArgs, SecretsArgs, SecretsCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, print, print_json};

/// One more than what the server takes, with a line end.
const MAX_SECRET: u64 = (64 << 10) + 3;

pub(crate) async fn secrets(context: &Context, args: SecretsArgs) -> Result<Done, Failure> {
    match args.command {
        SecretsCommand::Set(args) => set(context, args).await,
        SecretsCommand::List { json } => list(context, json).await,
        SecretsCommand::Rm { name, tenant, json } => remove(context, name, tenant, json).await,
    }
}

async fn set(context: &Context, args: SecretSetArgs) -> Result<Done, Failure> {
    // Whoever wrote the value itself is not shown it again.
    if args.input.as_deref().is_some_and(|input| input != "-") {
        return Err(Failure::new(
            Code::InvalidArgument,
            "a secret is not taken from the command line",
        )
        .with_remedy("pipe it in, or use `--from-file FILE` or `--env VARIABLE`"));
    }
    let value = value(&args)?;
    let request = v1::SetSecretRequest { name: args.name, value, tenant: args.tenant };
    let secret = context
        .with_client(async |mut client| Ok(client.secrets.set_secret(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&secret)?;
    }
    Ok(Done::Success)
}

async fn list(context: &Context, json: bool) -> Result<Done, Failure> {
    let secrets = context
        .with_client(async |mut client| {
            Ok(client.secrets.list_secrets(v1::ListSecretsRequest {}).await?)
        })
        .await?
        .into_inner()
        .secrets;
    if json {
        print_json(&secrets)?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["NAME", "TENANT", "SET"]);
    for secret in &secrets {
        let changed = age(secret.changed_at.as_ref()) + " ago";
        table.row([secret.name.as_str(), &secret.tenant, &changed]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

#[derive(Serialize)]
struct Removed {
    removed: String,
}

async fn remove(
    context: &Context,
    name: String,
    tenant: Option<String>,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::RemoveSecretRequest { name: name.clone(), tenant };
    context
        .with_client(async |mut client| Ok(client.secrets.remove_secret(request).await?))
        .await?;
    if json {
        print_json(&Removed { removed: name })?;
    }
    Ok(Done::Success)
}

/// The value, without the line end that editors and `echo` put after it.
fn value(args: &SecretSetArgs) -> Result<String, Failure> {
    let unreadable = |what: String, error: &(dyn std::error::Error + 'static)| {
        Failure::new(Code::InvalidArgument, what).caused_by(error)
    };
    let text = match (&args.from_file, &args.env) {
        (Some(path), _) => std::fs::File::open(path)
            .and_then(read)
            .map_err(|error| unreadable(format!("`{}` cannot be read", path.display()), &error))?,
        (None, Some(variable)) => std::env::var(variable).map_err(|error| {
            // An error for a value that is not text would repeat the value.
            let why = match error {
                std::env::VarError::NotPresent => "is not set",
                std::env::VarError::NotUnicode(_) => "is not text",
            };
            Failure::new(Code::InvalidArgument, format!("variable `{variable}` {why}"))
        })?,
        (None, None) => {
            let input = std::io::stdin();
            if input.is_terminal() && args.input.is_none() {
                return Err(Failure::new(Code::InvalidArgument, "there is no value")
                    .with_remedy("pipe it in, or use `--from-file FILE` or `--env VARIABLE`"));
            }
            read(input.lock())
                .map_err(|error| unreadable("standard input cannot be read".to_owned(), &error))?
        }
    };
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn read(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(MAX_SECRET).read_to_string(&mut text)?;
    Ok(text)
}
