//! `belljar destroy`: some sandboxes, or all.

use belljar_api::v1;
use serde::Serialize;

use super::Done;
use super::list::all;
use crate::args::DestroyArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{print, print_failure, print_json};

#[derive(Serialize)]
struct Destroyed {
    destroyed: Vec<String>,
}

pub(crate) async fn destroy(context: &Context, args: &DestroyArgs) -> Result<Done, Failure> {
    let mut destroyed = Vec::new();
    let mut failures = Vec::new();
    context
        .with_client(async |mut client| {
            let wanted = if args.all {
                let found = all(&client, v1::ListSandboxesRequest::default()).await?;
                found.into_iter().map(|sandbox| sandbox.sandbox_id).collect()
            } else {
                args.sandboxes.clone()
            };
            for sandbox in wanted {
                let request = v1::DestroySandboxRequest { sandbox: sandbox.clone() };
                match client.sandboxes.destroy_sandbox(request).await {
                    Ok(_) => destroyed.push(sandbox),
                    Err(status) => failures.push(Failure::from(status)),
                }
            }
            Ok(())
        })
        .await?;
    // Of several failures all but the last are told here, and the last where every failure is.
    let last = failures.pop();
    if args.json && last.is_none() {
        print_json(&Destroyed { destroyed })?;
    } else if !args.json {
        print(&destroyed.iter().map(|name| format!("{name}\n")).collect::<String>())?;
        failures.iter().for_each(|failure| print_failure(failure, false));
    }
    match last {
        Some(failure) => Err(failure),
        None => Ok(Done::Success),
    }
}
