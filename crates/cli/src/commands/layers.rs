//! `belljar diff`, `apply` and `discard`: the changes in a workspace layer.

use belljar_api::v1;

use super::Done;
use crate::args::LayerArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, print, print_json};

pub(crate) async fn diff(context: &Context, args: &LayerArgs) -> Result<Done, Failure> {
    let request = v1::DiffLayerRequest { sandbox: args.sandbox.clone() };
    let answer = context
        .with_client(async |mut client| Ok(client.sandboxes.diff_layer(request).await?))
        .await?;
    show(&answer.into_inner().changes, args)
}

pub(crate) async fn apply(context: &Context, args: &LayerArgs) -> Result<Done, Failure> {
    let request = v1::ApplyLayerRequest { sandbox: args.sandbox.clone() };
    let answer = context
        .with_client(async |mut client| Ok(client.sandboxes.apply_layer(request).await?))
        .await?;
    show(&answer.into_inner().changes, args)
}

pub(crate) async fn discard(context: &Context, args: &LayerArgs) -> Result<Done, Failure> {
    let request = v1::DiscardLayerRequest { sandbox: args.sandbox.clone() };
    let answer = context
        .with_client(async |mut client| Ok(client.sandboxes.discard_layer(request).await?))
        .await?;
    show(&answer.into_inner().changes, args)
}

fn show(changes: &[v1::LayerChange], args: &LayerArgs) -> Result<Done, Failure> {
    if args.json {
        print_json(&changes)?;
    } else {
        print(&changes.iter().map(line).collect::<String>())?;
    }
    Ok(Done::Success)
}

/// `added  src/main.rs`. File names come from the sandbox, so they are made inert and kept on one line.
fn line(change: &v1::LayerChange) -> String {
    let slash = if change.kind == "directory" { "/" } else { "" };
    format!("{:<9} {}{slash}\n", change.change, Inert::line(change.path.as_bytes()))
}
