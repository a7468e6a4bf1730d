//! Whole trees of files: copied, searched, packed and unpacked.

use std::path::PathBuf;

use belljar_api::v1;
use belljar_engine::{CopyOptions, ExtractLimits, SearchRequest};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use tokio_util::io::StreamReader;

use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::convert::{self, path};
use crate::problem::Result;

impl Api {
    pub async fn copy_file(
        &self,
        call: &Call,
        request: v1::CopyFileRequest,
    ) -> Result<v1::CopyFileResponse> {
        let work = async {
            call.note("from", &request.from);
            call.note("to", &request.to);
            let files = self.files(call, &request.sandbox).await?;
            let (from, to) = (path("from", &request.from)?, path("to", &request.to)?);
            let options = CopyOptions { recursive: request.recursive, replace: request.replace };
            let report = files.copy(from, to, options).await?;
            let skipped = report.skipped_paths.iter();
            Ok(v1::CopyFileResponse {
                files: report.files,
                directories: report.directories,
                bytes: report.bytes,
                skipped: skipped.map(|path| path.to_string_lossy().into_owned()).collect(),
            })
        };
        self.act(call, action::CHANGE_FILE, &request.sandbox, work).await
    }

    pub async fn search_files(
        &self,
        call: &Call,
        request: v1::SearchFilesRequest,
    ) -> Result<Answers<v1::SearchHit>> {
        // Lines that are found are what files contain; names are what anybody sees who looks around.
        let action = match request.content {
            Some(_) => action::READ_FILE,
            None => action::LOOK_AT_FILES,
        };
        let work = async {
            call.note("path", &request.path);
            let files = self.files(call, &request.sandbox).await?;
            let wanted = SearchRequest {
                path: PathBuf::from(convert::required("path", &request.path)?),
                name: request.name.clone(),
                content: request.content.clone(),
                regex: request.regex,
                case_insensitive: request.ignore_case,
                max_depth: request.max_depth,
                max_results: request.max_results.map(u64::from),
                ..SearchRequest::default()
            };
            let search = files.search(&wanted).await?;
            let hits = stream::try_unfold(search, async |mut search| {
                Ok(search.next().await?.map(|hit| (convert::search_hit(&hit), search)))
            });
            Ok(self.until_stopped(hits))
        };
        self.act(call, action, &request.sandbox, work).await
    }

    pub async fn read_archive(
        &self,
        call: &Call,
        request: v1::ReadArchiveRequest,
    ) -> Result<Answers<v1::FileChunk>> {
        let work = async {
            call.note("path", &request.path);
            let files = self.files(call, &request.sandbox).await?;
            let format = convert::archive_format(request.format);
            let reader = files.archive(path("path", &request.path)?, format).await?;
            let pieces = stream::try_unfold(reader, async |mut reader| {
                let piece = reader.next().await?;
                Ok(piece.map(|data| (v1::FileChunk { data: data.into() }, reader)))
            });
            Ok(Box::pin(pieces) as Answers<_>)
        };
        self.act(call, action::READ_FILE, &request.sandbox, work).await
    }

    /// Takes an archive piece by piece; the first message says where it goes.
    pub async fn write_archive(
        &self,
        call: &Call,
        first: v1::WriteArchiveRequest,
        rest: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<v1::WriteArchiveResponse> {
        let target = first.sandbox.clone();
        let work = async {
            call.note("path", &first.path);
            let files = self.files(call, &first.sandbox).await?;
            let at = path("path", &first.path)?;
            let format = convert::archive_format(first.format);
            let pieces = stream::iter([Ok(first.data.clone())]).chain(rest);
            let pieces = pieces.map(|piece| piece.map_err(std::io::Error::other));
            let source = StreamReader::new(Box::pin(pieces));
            let report = files.extract(at, format, source, ExtractLimits::default()).await?;
            Ok(v1::WriteArchiveResponse {
                files: report.files,
                directories: report.directories,
                links: report.links,
                bytes: report.bytes,
            })
        };
        self.act(call, action::WRITE_FILE, &target, work).await
    }
}
