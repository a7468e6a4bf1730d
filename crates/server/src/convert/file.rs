//! Files as callers see them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_api::v1;
use belljar_engine::{ArchiveFormat, FileInfo, FileKind, SearchHit, WatchEvent, WriteMode};

use super::{required, timestamp};
use crate::problem::{Problem, Result};

/// A path inside a sandbox. Only the sandbox itself can say what it means; it is checked where it is used.
pub(crate) fn path<'a>(name: &str, text: &'a str) -> Result<&'a Path> {
    required(name, text).map(Path::new)
}

pub(crate) fn file_info(info: &FileInfo) -> v1::FileInfo {
    v1::FileInfo {
        path: text(&info.path),
        kind: kind(info.kind).into(),
        size: info.size,
        mode: info.mode & 0o7777,
        uid: info.uid,
        gid: info.gid,
        modified_at: Some(timestamp(info.modified)),
        link_target: info.link_target.as_ref().map(|target| text(target)),
        raw_path: raw(&info.path),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn raw(path: &Path) -> Option<bytes::Bytes> {
    path.to_str().is_none().then(|| path.as_os_str().as_bytes().to_vec().into())
}

pub(crate) fn kind(kind: FileKind) -> v1::FileKind {
    match kind {
        FileKind::File => v1::FileKind::File,
        FileKind::Directory => v1::FileKind::Directory,
        FileKind::Symlink => v1::FileKind::Symlink,
        FileKind::Fifo => v1::FileKind::Fifo,
        FileKind::Socket => v1::FileKind::Socket,
        FileKind::CharacterDevice | FileKind::Whiteout => v1::FileKind::CharacterDevice,
        FileKind::BlockDevice => v1::FileKind::BlockDevice,
    }
}

pub(crate) fn write_mode(number: i32) -> WriteMode {
    match v1::WriteMode::try_from(number).unwrap_or_default() {
        v1::WriteMode::Unspecified | v1::WriteMode::Truncate => WriteMode::Truncate,
        v1::WriteMode::Append => WriteMode::Append,
        v1::WriteMode::CreateNew => WriteMode::CreateNew,
    }
}

pub(crate) fn file_event(event: &WatchEvent) -> v1::FileEvent {
    let (kind, path) = match event {
        WatchEvent::Created(path) => (v1::FileEventKind::Created, text(path)),
        WatchEvent::Modified(path) => (v1::FileEventKind::Modified, text(path)),
        WatchEvent::Removed(path) => (v1::FileEventKind::Removed, text(path)),
        WatchEvent::Moved(path) => (v1::FileEventKind::Moved, text(path)),
        WatchEvent::Overflow => (v1::FileEventKind::Overflow, String::new()),
    };
    v1::FileEvent { kind: kind.into(), path }
}

/// Where a page of a listing ends: the last path, in a form that survives any transport.
pub(crate) fn page_token(last: &Path) -> String {
    URL_SAFE_NO_PAD.encode(last.as_os_str().as_bytes())
}

pub(crate) fn read_token(token: &str) -> Result<PathBuf> {
    match URL_SAFE_NO_PAD.decode(token) {
        Ok(bytes) => Ok(PathBuf::from(OsString::from_vec(bytes))),
        Err(_) => Err(Problem::invalid("this is not a page token")
            .with_remedy("use the token that came with the page before, or leave it out")),
    }
}

pub(crate) fn archive_format(number: i32) -> ArchiveFormat {
    match v1::ArchiveFormat::try_from(number).unwrap_or_default() {
        v1::ArchiveFormat::Unspecified | v1::ArchiveFormat::Tar => ArchiveFormat::Tar,
        v1::ArchiveFormat::TarGz => ArchiveFormat::TarGz,
        v1::ArchiveFormat::Zip => ArchiveFormat::Zip,
    }
}

pub(crate) fn search_hit(hit: &SearchHit) -> v1::SearchHit {
    v1::SearchHit {
        path: text(&hit.path),
        kind: kind(hit.kind).into(),
        size: hit.size,
        line: hit.line,
        column: hit.column,
        text: hit.text.clone(),
    }
}
