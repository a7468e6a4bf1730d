//! `belljar diff`, `apply` and `discard`: the changes in a workspace layer.

use belljar_engine::LayerChange;

use super::Done;
use crate::args::LayerArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{ChangeShape, Inert, print, print_json};

pub(crate) async fn diff(context: &Context, args: &LayerArgs) -> Result<Done, Failure> {
    let changes = context.with_engine(async |engine| Ok(engine.diff(&args.sandbox).await?)).await?;
    show(&changes, args)
}

pub(crate) async fn apply(context: &Context, args: &LayerArgs) -> Result<Done, Failure> {
    let changes =
        context.with_engine(async |engine| Ok(engine.apply(&args.sandbox).await?)).await?;
    show(&changes, args)
}

pub(crate) async fn discard(context: &Context, args: &LayerArgs) -> Result<Done, Failure> {
    let changes =
        context.with_engine(async |engine| Ok(engine.discard(&args.sandbox).await?)).await?;
    show(&changes, args)
}

fn show(changes: &[LayerChange], args: &LayerArgs) -> Result<Done, Failure> {
    let shapes: Vec<ChangeShape> = changes.iter().map(ChangeShape::from).collect();
    if args.json {
        print_json(&shapes)?;
    } else {
        print(&shapes.iter().map(line).collect::<String>())?;
    }
    Ok(Done::Success)
}

/// `added  src/main.rs`. File names come from the sandbox, so they are made inert and kept on one line.
fn line(change: &ChangeShape) -> String {
    let path = change.path.replace(['\n', '\r'], "\u{fffd}");
    let slash = if change.kind == "directory" { "/" } else { "" };
    format!("{:<9} {}{slash}\n", change.change, Inert::default().push(path.as_bytes()))
}
