//! Single requests: stat, mkdir, mv, cp, rm, chmod.

use belljar_api::v1;
use serde::Serialize;

use super::{harmless, show};
use crate::args::Place;
use crate::commands::Done;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{note, print_json};

pub(super) async fn stat(
    context: &Context,
    at: Place,
    follow: bool,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::StatFileRequest { sandbox: at.sandbox, path: at.path, follow };
    let answer =
        context.with_client(async |mut client| Ok(client.files.stat_file(request).await?)).await?;
    show(&answer.into_inner(), json)
}

pub(super) async fn make_directory(
    context: &Context,
    at: Place,
    parents: bool,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::MakeDirectoryRequest { sandbox: at.sandbox, path: at.path, parents };
    let answer = context
        .with_client(async |mut client| Ok(client.files.make_directory(request).await?))
        .await?;
    show_if(&answer.into_inner(), json)
}

pub(super) async fn rename(
    context: &Context,
    from: Place,
    to: String,
    replace: bool,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::MoveFileRequest { sandbox: from.sandbox, from: from.path, to, replace };
    let answer =
        context.with_client(async |mut client| Ok(client.files.move_file(request).await?)).await?;
    show_if(&answer.into_inner(), json)
}

pub(super) async fn copy(
    context: &Context,
    request: v1::CopyFileRequest,
    json: bool,
) -> Result<Done, Failure> {
    let answer = context
        .with_client(async |mut client| Ok(client.files.copy_file(request).await?))
        .await?
        .into_inner();
    for path in &answer.skipped {
        note(context.quiet, &format!("`{}` was not copied", harmless(path)));
    }
    if json {
        print_json(&answer)?;
    }
    Ok(Done::Success)
}

#[derive(Serialize)]
struct Removed {
    removed: String,
}

pub(super) async fn remove(
    context: &Context,
    at: Place,
    recursive: bool,
    json: bool,
) -> Result<Done, Failure> {
    let removed = at.path.clone();
    let request = v1::RemoveFileRequest { sandbox: at.sandbox, path: at.path, recursive };
    context.with_client(async |mut client| Ok(client.files.remove_file(request).await?)).await?;
    if json {
        print_json(&Removed { removed })?;
    }
    Ok(Done::Success)
}

pub(super) async fn change_mode(
    context: &Context,
    at: Place,
    permissions: u32,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::ChangeModeRequest {
        sandbox: at.sandbox,
        path: at.path,
        permissions: Some(permissions),
    };
    let answer = context
        .with_client(async |mut client| Ok(client.files.change_mode(request).await?))
        .await?;
    show_if(&answer.into_inner(), json)
}

/// People who change something hear only of failures.
fn show_if(file: &v1::FileInfo, json: bool) -> Result<Done, Failure> {
    if json { show(file, true) } else { Ok(Done::Success) }
}
