//! `belljar cp`: files and directories into and out of a sandbox.

mod local;
mod pack;
mod side;
mod unpack;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use serde::Serialize;
use tokio_stream::StreamExt;

use self::local::Target;
use self::side::Side;
use super::Done;
use super::transfer::{download, upload};
use crate::args::CpArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, is_closed, note, print_json};

/// What was copied.
#[derive(Debug, Default, Serialize)]
struct Copied {
    files: u64,
    directories: u64,
    links: u64,
    bytes: u64,
    /// What is not copied: devices, pipes, sockets, and links that lead out of the directory.
    skipped: u64,
}

pub(crate) async fn cp(context: &Context, args: CpArgs) -> Result<Done, Failure> {
    let source = Side::parse(&args.source)?;
    let target = Side::parse(&args.target)?;
    let copied = match (source, target) {
        (Side::Here(from), Side::Sandbox(sandbox, to)) => {
            let opened = local::open_source(&from)
                .and_then(|file| file.metadata().map(|found| (file, found)));
            let (file, found) = opened.map_err(|error| unreadable(&from, &error))?;
            let client = async |client: Client| {
                if found.is_dir() {
                    send_directory(client, from, sandbox, to).await
                } else {
                    send_file(client, from, file, found, sandbox, to).await
                }
            };
            context.with_client(client).await?
        }
        (Side::Standard, Side::Sandbox(sandbox, path)) => {
            let head = v1::WriteFileRequest {
                sandbox,
                path,
                make_parents: true,
                ..v1::WriteFileRequest::default()
            };
            let read = |to: &mut dyn io::Write| io::copy(&mut io::stdin().lock(), to).map(drop);
            context.with_client(async |client| send(client, head, read).await).await?
        }
        (Side::Sandbox(sandbox, from), Side::Here(to)) => {
            context.with_client(async |client| fetch(client, sandbox, from, to).await).await?
        }
        (Side::Sandbox(sandbox, path), Side::Standard) => {
            context.with_client(async |client| fetch_to_stdout(client, sandbox, path).await).await?
        }
        (Side::Sandbox(..), Side::Sandbox(..)) => {
            return Err(refuse("both sides are in sandboxes").with_remedy(
                "use `belljar files cp` inside one sandbox, or copy to this machine in between",
            ));
        }
        _ => {
            return Err(refuse("no side is in a sandbox")
                .with_remedy("write `SANDBOX:PATH` for the side that is in a sandbox"));
        }
    };
    if copied.skipped > 0 {
        let what = "devices, pipes, sockets, or links that lead out of the directory";
        note(context.quiet, &format!("left out: {} ({what})", copied.skipped));
    }
    if args.json {
        print_json(&copied)?;
    }
    Ok(Done::Success)
}

// === into a sandbox ===

async fn send_file(
    client: Client,
    from: PathBuf,
    mut file: std::fs::File,
    found: std::fs::Metadata,
    sandbox: String,
    to: String,
) -> Result<Copied, Failure> {
    use std::os::unix::fs::MetadataExt;
    let to = below_directory(&client, &sandbox, to, from.file_name()).await?;
    let head = v1::WriteFileRequest {
        sandbox,
        path: to,
        permissions: Some(found.mode() & 0o777),
        make_parents: true,
        ..v1::WriteFileRequest::default()
    };
    send(client, head, move |to| io::copy(&mut file, to).map(drop)).await
}

async fn send(
    mut client: Client,
    head: v1::WriteFileRequest,
    read: impl FnOnce(&mut dyn io::Write) -> io::Result<()> + Send + 'static,
) -> Result<Copied, Failure> {
    let file = upload(read, async |pieces| {
        let pieces = pieces.map(|piece| v1::WriteFileRequest {
            data: piece.into(),
            ..v1::WriteFileRequest::default()
        });
        let messages = tokio_stream::once(head).chain(pieces);
        Ok(client.files.write_file(messages).await?.into_inner())
    })
    .await?;
    Ok(Copied { files: 1, bytes: file.size, ..Copied::default() })
}

async fn send_directory(
    mut client: Client,
    from: PathBuf,
    sandbox: String,
    to: String,
) -> Result<Copied, Failure> {
    // `.` and `..` have no name of their own, so what is in them is copied.
    let path = below_directory(&client, &sandbox, to, from.file_name()).await?;
    let make =
        v1::MakeDirectoryRequest { sandbox: sandbox.clone(), path: path.clone(), parents: true };
    client.files.make_directory(make).await?;
    let format = v1::ArchiveFormat::Tar.into();
    let head = v1::WriteArchiveRequest { sandbox, path, format, ..Default::default() };
    let (told, left_out) = std::sync::mpsc::channel();
    let report = upload(
        move |to| {
            let left_out = pack::pack(&from, to)?;
            // Whoever waits for the report reads it.
            let _ = told.send(left_out);
            Ok(())
        },
        async |pieces| {
            let pieces = pieces
                .map(|piece| v1::WriteArchiveRequest { data: piece.into(), ..Default::default() });
            let messages = tokio_stream::once(head).chain(pieces);
            Ok(client.files.write_archive(messages).await?.into_inner())
        },
    )
    .await?;
    let v1::WriteArchiveResponse { files, directories, links, bytes } = report;
    Ok(Copied { files, directories, links, bytes, skipped: left_out.try_recv().unwrap_or(0) })
}

/// Where something named `name` goes: into `path` where that is a directory, to `path` itself otherwise.
async fn below_directory(
    client: &Client,
    sandbox: &str,
    path: String,
    name: Option<&std::ffi::OsStr>,
) -> Result<String, Failure> {
    let Some(name) = name else { return Ok(path) };
    // Only where it is asked for has it to be text.
    let name = || crate::request::text(name);
    let request = v1::StatFileRequest { sandbox: sandbox.to_owned(), path, follow: true };
    let path = request.path.clone();
    match client.files.clone().stat_file(request).await {
        Ok(found) if found.get_ref().kind() == v1::FileKind::Directory => {
            Ok(format!("{}/{}", path.trim_end_matches('/'), name()?))
        }
        Ok(_) => Ok(path),
        Err(status) => match Failure::from(status) {
            failure if failure.code == Code::FileNotFound && path.ends_with('/') => {
                Ok(format!("{path}{}", name()?))
            }
            failure if failure.code == Code::FileNotFound => Ok(path),
            failure => Err(failure),
        },
    }
}

// === out of a sandbox ===

async fn fetch(
    mut client: Client,
    sandbox: String,
    from: String,
    to: PathBuf,
) -> Result<Copied, Failure> {
    let stat = v1::StatFileRequest { sandbox: sandbox.clone(), path: from.clone(), follow: true };
    let found = client.files.stat_file(stat).await?.into_inner();
    let to = Target::new(to, &from);
    if found.kind() == v1::FileKind::Directory {
        let format = v1::ArchiveFormat::Tar.into();
        let request = v1::ReadArchiveRequest { sandbox, path: from, format };
        let chunks = client.files.read_archive(request).await?.into_inner();
        return download(chunks, move |archive| unpack::unpack(archive, &to.make_directory()?))
            .await;
    }
    let request = v1::ReadFileRequest { sandbox, path: from, offset: 0, length: None };
    let chunks = client.files.read_file(request).await?.into_inner();
    let bytes = download(chunks, move |content| local::save(content, &to, found.mode)).await?;
    Ok(Copied { files: 1, bytes, ..Copied::default() })
}

async fn fetch_to_stdout(
    mut client: Client,
    sandbox: String,
    path: String,
) -> Result<Copied, Failure> {
    let request = v1::ReadFileRequest { sandbox, path, offset: 0, length: None };
    let chunks = client.files.read_file(request).await?.into_inner();
    let bytes = download(chunks, |content| match io::copy(content, &mut io::stdout().lock()) {
        Err(error) if is_closed(&error) => Ok(0),
        result => result,
    })
    .await?;
    Ok(Copied { files: 1, bytes, ..Copied::default() })
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let path = Inert::line(path.as_os_str().as_bytes());
    refuse(&format!("`{path}` cannot be read"))
        .caused_by(error)
        .with_remedy("check the path on this host; a path inside a sandbox is `SANDBOX:PATH`")
}

fn refuse(message: &str) -> Failure {
    Failure::new(Code::InvalidArgument, message)
}
