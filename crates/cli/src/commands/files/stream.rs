//! Contents: cat, write, archive, extract.

use std::io::{self, IsTerminal};

use belljar_api::v1;
use belljar_client::Streaming;
use belljar_codes::Code;
use tokio_stream::StreamExt;

use super::show;
use crate::args::Place;
use crate::commands::transfer::{download, upload};
use crate::commands::{Done, drive};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{is_closed, print, print_json};

pub(super) async fn cat(
    context: &Context,
    at: Place,
    offset: u64,
    length: Option<u64>,
) -> Result<Done, Failure> {
    let request = v1::ReadFileRequest { sandbox: at.sandbox, path: at.path, offset, length };
    context
        .with_client(async |mut client| {
            let mut chunks = client.files.read_file(request).await?.into_inner();
            if !io::stdout().is_terminal() {
                return to_stdout(chunks).await;
            }
            let mut screen = drive::Screen::new(false);
            while let Some(chunk) = chunks.message().await? {
                let piece = v1::ProcessOutput { data: chunk.data, ..v1::ProcessOutput::default() };
                screen.write(piece).await.or_else(drive::forgive)?;
            }
            screen.finish().await?;
            Ok(Done::Success)
        })
        .await
}

pub(super) async fn write(
    context: &Context,
    head: v1::WriteFileRequest,
    json: bool,
) -> Result<Done, Failure> {
    let file = context
        .with_client(async |mut client| {
            let read = |to: &mut dyn io::Write| io::copy(&mut io::stdin().lock(), to).map(drop);
            upload(read, async |pieces| {
                let pieces = pieces.map(|piece| v1::WriteFileRequest {
                    data: piece.into(),
                    ..v1::WriteFileRequest::default()
                });
                let messages = tokio_stream::once(head).chain(pieces);
                Ok(client.files.write_file(messages).await?.into_inner())
            })
            .await
        })
        .await?;
    if json { show(&file, true) } else { Ok(Done::Success) }
}

pub(super) async fn archive(context: &Context, at: Place, format: &str) -> Result<Done, Failure> {
    if io::stdout().is_terminal() {
        return Err(Failure::new(Code::InvalidArgument, "standard output is a terminal")
            .with_remedy("redirect the archive into a file"));
    }
    let format = format_of(format).into();
    let request = v1::ReadArchiveRequest { sandbox: at.sandbox, path: at.path, format };
    context
        .with_client(async |mut client| {
            to_stdout(client.files.read_archive(request).await?.into_inner()).await
        })
        .await
}

pub(super) async fn extract(
    context: &Context,
    at: Place,
    format: &str,
    json: bool,
) -> Result<Done, Failure> {
    let head = v1::WriteArchiveRequest {
        sandbox: at.sandbox,
        path: at.path,
        format: format_of(format).into(),
        ..v1::WriteArchiveRequest::default()
    };
    let report = context
        .with_client(async |mut client| {
            let read = |to: &mut dyn io::Write| io::copy(&mut io::stdin().lock(), to).map(drop);
            upload(read, async |pieces| {
                let pieces = pieces.map(|piece| v1::WriteArchiveRequest {
                    data: piece.into(),
                    ..v1::WriteArchiveRequest::default()
                });
                let messages = tokio_stream::once(head).chain(pieces);
                Ok(client.files.write_archive(messages).await?.into_inner())
            })
            .await
        })
        .await?;
    if json {
        print_json(&report)?;
    } else {
        let v1::WriteArchiveResponse { files, directories, links, bytes } = report;
        print(&format!(
            "{files} files, {directories} directories, {links} links, {bytes} bytes\n"
        ))?;
    }
    Ok(Done::Success)
}

/// Bytes as they are. A reader that went away is no failure.
async fn to_stdout(chunks: Streaming<v1::FileChunk>) -> Result<Done, Failure> {
    download(chunks, |from| match io::copy(from, &mut io::stdout().lock()) {
        Err(error) if is_closed(&error) => Ok(()),
        result => result.map(drop),
    })
    .await?;
    Ok(Done::Success)
}

fn format_of(word: &str) -> v1::ArchiveFormat {
    match word {
        "tar.gz" => v1::ArchiveFormat::TarGz,
        "zip" => v1::ArchiveFormat::Zip,
        _ => v1::ArchiveFormat::Tar,
    }
}
