//! Files of sandboxes. Everything happens inside, by the agent.

use belljar_api::v1;
use belljar_engine::{Files, ListOptions, WatchEvent, WriteOptions};
use futures_util::{Stream, StreamExt, stream};

use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::convert::{self, path};
use crate::problem::{Problem, Result};

/// What one page of a listing brings at most.
const MAX_PAGE: u32 = 1000;

impl Api {
    pub(super) async fn files(&self, call: &Call, sandbox: &str) -> Result<Files> {
        let id = self.subject(call, sandbox).await?;
        Ok(self.engine(call).files(&id).await?)
    }

    pub async fn stat_file(
        &self,
        call: &Call,
        request: v1::StatFileRequest,
    ) -> Result<v1::FileInfo> {
        let work = async {
            let files = self.files(call, &request.sandbox).await?;
            let info = files.stat(path("path", &request.path)?, request.follow).await?;
            Ok(convert::file_info(&info))
        };
        self.act(call, action::LOOK_AT_FILES, &request.sandbox, work).await
    }

    pub async fn list_files(
        &self,
        call: &Call,
        request: v1::ListFilesRequest,
    ) -> Result<v1::ListFilesResponse> {
        let work = async {
            let files = self.files(call, &request.sandbox).await?;
            let options = ListOptions {
                depth: request.depth,
                after: request.page_token.as_deref().map(convert::read_token).transpose()?,
                limit: request.page_size.unwrap_or(0).min(MAX_PAGE),
            };
            let page = files.list(path("path", &request.path)?, &options).await?;
            let last = page.entries.last().filter(|_| page.more);
            Ok(v1::ListFilesResponse {
                next_page_token: last.map(|info| convert::page_token(&info.path)),
                files: page.entries.iter().map(convert::file_info).collect(),
            })
        };
        self.act(call, action::LOOK_AT_FILES, &request.sandbox, work).await
    }

    pub async fn read_file(
        &self,
        call: &Call,
        request: v1::ReadFileRequest,
    ) -> Result<Answers<v1::FileChunk>> {
        let work = async {
            call.note("path", &request.path);
            let files = self.files(call, &request.sandbox).await?;
            let at = path("path", &request.path)?;
            let mut reader = files.read(at, request.offset, request.length).await?;
            // The first piece tells whether it can be read at all, before an answer has begun.
            let first = reader.next().await?;
            let first = stream::iter(first.map(chunk));
            let rest = stream::try_unfold(reader, async |mut reader| {
                let piece = reader.next().await?;
                Ok(piece.map(|data| (v1::FileChunk { data: data.into() }, reader)))
            });
            Ok(Box::pin(first.chain(rest)) as Answers<_>)
        };
        self.act(call, action::READ_FILE, &request.sandbox, work).await
    }

    /// Takes a file piece by piece; the first message says which and how.
    pub async fn write_file(
        &self,
        call: &Call,
        first: v1::WriteFileRequest,
        rest: impl Stream<Item = Result<bytes::Bytes>> + Send,
    ) -> Result<v1::FileInfo> {
        let target = first.sandbox.clone();
        let work = async {
            call.note("path", &first.path);
            let files = self.files(call, &first.sandbox).await?;
            let at = path("path", &first.path)?;
            let options = WriteOptions {
                mode: convert::write_mode(first.mode),
                permissions: first.permissions.map(permissions).transpose()?,
                make_parents: first.make_parents,
                limit: None,
            };
            let mut writer = files.write(at, options).await?;
            if !first.data.is_empty() {
                writer.write(&first.data).await?;
            }
            let mut rest = std::pin::pin!(rest);
            while let Some(piece) = rest.next().await {
                writer.write(&piece?).await?;
            }
            writer.finish().await?;
            Ok(convert::file_info(&files.stat(at, true).await?))
        };
        self.act(call, action::WRITE_FILE, &target, work).await
    }

    pub async fn make_directory(
        &self,
        call: &Call,
        request: v1::MakeDirectoryRequest,
    ) -> Result<v1::FileInfo> {
        let work = async {
            call.note("path", &request.path);
            let files = self.files(call, &request.sandbox).await?;
            let at = path("path", &request.path)?;
            files.make_directory(at, request.parents).await?;
            Ok(convert::file_info(&files.stat(at, true).await?))
        };
        self.act(call, action::CHANGE_FILE, &request.sandbox, work).await
    }

    pub async fn move_file(
        &self,
        call: &Call,
        request: v1::MoveFileRequest,
    ) -> Result<v1::FileInfo> {
        let work = async {
            call.note("from", &request.from);
            call.note("to", &request.to);
            let files = self.files(call, &request.sandbox).await?;
            let (from, to) = (path("from", &request.from)?, path("to", &request.to)?);
            files.rename(from, to, request.replace).await?;
            Ok(convert::file_info(&files.stat(to, false).await?))
        };
        self.act(call, action::CHANGE_FILE, &request.sandbox, work).await
    }

    pub async fn remove_file(
        &self,
        call: &Call,
        request: v1::RemoveFileRequest,
    ) -> Result<v1::RemoveFileResponse> {
        let work = async {
            call.note("path", &request.path);
            let files = self.files(call, &request.sandbox).await?;
            files.remove(path("path", &request.path)?, request.recursive).await?;
            Ok(v1::RemoveFileResponse {})
        };
        self.act(call, action::REMOVE_FILE, &request.sandbox, work).await
    }

    pub async fn change_mode(
        &self,
        call: &Call,
        request: v1::ChangeModeRequest,
    ) -> Result<v1::FileInfo> {
        let work = async {
            call.note("path", &request.path);
            let files = self.files(call, &request.sandbox).await?;
            let at = path("path", &request.path)?;
            let Some(bits) = request.permissions else {
                return Err(Problem::invalid("`permissions` are missing")
                    .with_remedy("give bits from 0 to 0777, such as 420 for 0644"));
            };
            files.change_mode(at, permissions(bits)?).await?;
            Ok(convert::file_info(&files.stat(at, true).await?))
        };
        self.act(call, action::CHANGE_FILE, &request.sandbox, work).await
    }

    pub async fn watch_files(
        &self,
        call: &Call,
        request: v1::WatchFilesRequest,
    ) -> Result<Answers<v1::FileEvent>> {
        let work = async {
            let files = self.files(call, &request.sandbox).await?;
            let watch = files.watch(path("path", &request.path)?, request.recursive).await?;
            let placed =
                v1::FileEvent { kind: v1::FileEventKind::Watching.into(), path: String::new() };
            let changes = stream::try_unfold(watch, async |mut watch| {
                let event: WatchEvent = watch.next().await?;
                Ok::<_, Problem>(Some((convert::file_event(&event), watch)))
            });
            Ok(Box::pin(stream::iter([Ok(placed)]).chain(changes)) as Answers<_>)
        };
        self.act(call, action::LOOK_AT_FILES, &request.sandbox, work).await
    }
}

fn chunk(data: Vec<u8>) -> Result<v1::FileChunk> {
    Ok(v1::FileChunk { data: data.into() })
}

fn permissions(bits: u32) -> Result<u32> {
    if bits <= 0o777 {
        return Ok(bits);
    }
    Err(Problem::invalid(format!("{bits:o} are no permissions that can be given"))
        .with_remedy("use bits from 0 to 0777"))
}
