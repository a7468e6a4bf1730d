//! Looking for files: ls, search, watch.

use belljar_api::v1;

use super::harmless;
use crate::args::{Place, SearchArgs};
use crate::commands::Done;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, print, print_json, print_json_line, time, word};

pub(super) async fn list(
    context: &Context,
    at: Place,
    depth: u32,
    json: bool,
) -> Result<Done, Failure> {
    let mut request = v1::ListFilesRequest {
        sandbox: at.sandbox,
        path: at.path,
        depth,
        ..v1::ListFilesRequest::default()
    };
    let files = context
        .with_client(async |mut client| {
            let mut found = Vec::new();
            loop {
                let page = client.files.list_files(request.clone()).await?.into_inner();
                found.extend(page.files);
                request.page_token = page.next_page_token;
                if request.page_token.is_none() {
                    return Ok(found);
                }
            }
        })
        .await?;
    if json {
        print_json(&files)?;
    } else {
        print(&render(&files))?;
    }
    Ok(Done::Success)
}

fn render(files: &[v1::FileInfo]) -> String {
    let mut table = Table::new(&["MODE", "OWNER", "SIZE", "MODIFIED", "PATH"]);
    for file in files {
        let letter = match file.kind() {
            v1::FileKind::Directory => 'd',
            v1::FileKind::Symlink => 'l',
            v1::FileKind::Fifo => 'p',
            v1::FileKind::Socket => 's',
            v1::FileKind::CharacterDevice => 'c',
            v1::FileKind::BlockDevice => 'b',
            v1::FileKind::File | v1::FileKind::Unspecified => '-',
        };
        let target =
            file.link_target.as_ref().map_or_else(String::new, |target| format!(" -> {target}"));
        table.row([
            format!("{letter}{:04o}", file.mode),
            format!("{}:{}", file.uid, file.gid),
            file.size.to_string(),
            time(file.modified_at.as_ref()),
            harmless(&format!("{}{target}", file.path)),
        ]);
    }
    table.render(0)
}

pub(super) async fn search(context: &Context, args: SearchArgs) -> Result<Done, Failure> {
    let request = v1::SearchFilesRequest {
        sandbox: args.at.sandbox,
        path: args.at.path,
        name: args.name,
        content: args.content,
        regex: args.regex,
        ignore_case: args.ignore_case,
        max_depth: args.depth,
        max_results: args.max,
    };
    context
        .with_client(async |mut client| {
            let mut hits = client.files.search_files(request).await?.into_inner();
            while let Some(hit) = hits.message().await? {
                if args.json {
                    print_json_line(&hit)?;
                } else {
                    print(&line(&hit))?;
                }
            }
            Ok(Done::Success)
        })
        .await
}

/// `path`, or `path:line:column: text`.
fn line(hit: &v1::SearchHit) -> String {
    let mut line = harmless(&hit.path);
    if let Some(number) = hit.line {
        let column = hit.column.unwrap_or(1);
        let text = harmless(hit.text.as_deref().unwrap_or_default());
        line.push_str(&format!(":{number}:{column}: {text}"));
    }
    line.push('\n');
    line
}

pub(super) async fn watch(
    context: &Context,
    at: Place,
    recursive: bool,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::WatchFilesRequest { sandbox: at.sandbox, path: at.path, recursive };
    context
        .with_client(async |mut client| {
            let mut events = client.files.watch_files(request).await?.into_inner();
            while let Some(event) = events.message().await? {
                if json {
                    print_json_line(&event)?;
                } else {
                    print(&format!("{:<9} {}\n", word(&event.kind()), harmless(&event.path)))?;
                }
            }
            Ok(Done::Success)
        })
        .await
}
