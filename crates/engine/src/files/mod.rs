//! Files of a sandbox. Everything is done by the agent, inside, with the workload's own identity: the host never follows
//! a path that the sandbox controls.
//!
//! Simple requests are here, one agent request each. Contents ([`FileReader`], [`FileWriter`]), copies, searches and
//! archives are composed of them: in constant memory whatever the sizes, and each can be given up at any point.

mod archive;
mod copy;
mod extract;
mod modes;
mod partial;
mod search;
mod transfer;
mod walk;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_codes::Code;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Root};

pub use archive::{ArchiveFormat, ArchiveReader};
pub use copy::{CopyOptions, CopyReport};
pub use extract::{ExtractLimits, ExtractReport};
pub(crate) use extract::{Shelf, Spools};
pub use search::{Search, SearchHit, SearchRequest};
pub use transfer::{FileReader, FileWatch, FileWriter, WatchEvent};

use crate::agent::{AgentError, Connection};
use crate::plan::check_path;
use crate::policy::FileGuard;
use crate::{Error, Result};

/// The files of one sandbox.
#[derive(Clone, Debug)]
pub struct Files {
    connection: Arc<Connection>,
    /// Where an archive that has to be looked at from its end is kept meanwhile, in a file without a name.
    spool: Shelf,
    /// Asked before something changes.
    guard: Option<Arc<FileGuard>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    /// In a workspace layer: what is below is gone.
    Whiteout,
}

impl FileKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharacterDevice => "character-device",
            Self::BlockDevice => "block-device",
            Self::Whiteout => "whiteout",
        }
    }
}

/// What is known about a path inside a sandbox. All of it is the sandbox's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    pub path: PathBuf,
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: SystemTime,
    pub link_target: Option<PathBuf>,
    pub links: u64,
    /// In a workspace layer: hides the directory below.
    pub(crate) opaque: bool,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Paths relative to the listed directory, sorted.
    pub entries: Vec<FileInfo>,
    /// There is more after the last entry.
    pub more: bool,
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// 0 and 1: only the directory itself.
    pub depth: u32,
    /// The last path of the page before.
    pub after: Option<PathBuf>,
    /// 0: the agent's default.
    pub limit: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Over what is there, in place.
    #[default]
    Truncate,
    Append,
    /// Fails if there is something already. Given up, it leaves nothing.
    CreateNew,
    /// Beside what is there, and into its place when finished: readers see the old contents or the new, never half.
    /// Given up, it changes nothing.
    Replace,
}

/// How to write a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub mode: WriteMode,
    /// `None`: 0644.
    pub permissions: Option<u32>,
    pub make_parents: bool,
    /// The most bytes that may be written; more is refused (`request-too-large`).
    pub limit: Option<u64>,
}

impl Files {
    pub(crate) fn new(connection: Arc<Connection>, spool: Shelf) -> Self {
        Self { connection, spool, guard: None }
    }

    /// With somebody who is asked before something changes.
    pub(crate) fn guarded(self, guard: FileGuard) -> Self {
        Self { guard: Some(Arc::new(guard)), ..self }
    }

    /// For what the engine does itself.
    pub(crate) fn unguarded(self) -> Self {
        Self { guard: None, ..self }
    }

    pub async fn stat(&self, path: &Path, follow: bool) -> Result<FileInfo> {
        let request = v1::Stat { path: bytes(path)?, follow, root: Root::Sandbox as i32 };
        match self.ask(Body::Stat(request), "look at").await? {
            Body::Metadata(metadata) => Ok(metadata.into()),
            _ => Err(unexpected()),
        }
    }

    pub async fn list(&self, path: &Path, options: &ListOptions) -> Result<Listing> {
        self.list_in(Root::Sandbox, bytes(path)?, options).await
    }

    pub(crate) async fn list_layer(&self, path: Vec<u8>, options: &ListOptions) -> Result<Listing> {
        self.list_in(Root::WorkspaceLayer, path, options).await
    }

    async fn list_in(&self, root: Root, path: Vec<u8>, options: &ListOptions) -> Result<Listing> {
        let after = options.after.as_deref().map(|path| path.as_os_str().as_bytes().to_vec());
        let request = v1::List {
            path,
            depth: options.depth,
            after: after.unwrap_or_default(),
            limit: options.limit,
            root: root as i32,
        };
        match self.ask(Body::List(request), "list").await? {
            Body::Entries(entries) => Ok(Listing {
                entries: entries.entries.into_iter().map(FileInfo::from).collect(),
                more: entries.more,
            }),
            _ => Err(unexpected()),
        }
    }

    pub async fn make_directory(&self, path: &Path, parents: bool) -> Result<()> {
        self.make_directory_with(path, parents, 0).await
    }

    /// With exactly these permissions, or the usual ones where they are zero.
    async fn make_directory_with(
        &self,
        path: &Path,
        parents: bool,
        permissions: u32,
    ) -> Result<()> {
        self.permit("make-directory", path).await?;
        let request = v1::MakeDirectory { path: bytes(path)?, parents, permissions };
        self.ask(Body::MakeDirectory(request), "make").await.map(drop)
    }

    /// Makes a symbolic link at `path`; nothing looks where it leads.
    pub async fn make_link(&self, path: &Path, target: &Path) -> Result<()> {
        self.permit("make-link", path).await?;
        let request = v1::MakeLink { path: bytes(path)?, target: bytes(target)? };
        self.ask(Body::MakeLink(request), "link").await.map(drop)
    }

    /// `replace`: whether something that is there already goes.
    pub async fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<()> {
        self.permit("move-from", from).await?;
        self.permit("move-to", to).await?;
        let request = v1::Move { from: bytes(from)?, to: bytes(to)?, replace };
        self.ask(Body::Move(request), "move").await.map(drop)
    }

    pub async fn remove(&self, path: &Path, recursive: bool) -> Result<()> {
        self.permit("remove", path).await?;
        let request = v1::Remove { path: bytes(path)?, recursive };
        self.ask(Body::Remove(request), "remove").await.map(drop)
    }

    pub async fn change_mode(&self, path: &Path, permissions: u32) -> Result<()> {
        self.permit("change-mode", path).await?;
        let request = v1::ChangeMode { path: bytes(path)?, permissions };
        self.ask(Body::ChangeMode(request), "change the mode of").await.map(drop)
    }

    /// Reads a file, or a part of it, in pieces. Without a length to where the file ends now: what is added meanwhile is
    /// not read, and a file that becomes shorter ends earlier. Only regular files are read, never a pipe or a device.
    pub async fn read(&self, path: &Path, offset: u64, length: Option<u64>) -> Result<FileReader> {
        self.read_in(Root::Sandbox, bytes(path)?, offset, length)
    }

    pub(crate) fn read_layer(&self, path: Vec<u8>) -> Result<FileReader> {
        self.read_in(Root::WorkspaceLayer, path, 0, None)
    }

    fn read_in(
        &self,
        root: Root,
        path: Vec<u8>,
        offset: u64,
        length: Option<u64>,
    ) -> Result<FileReader> {
        // The protocol has no word for "nothing"; a reader that is at its end needs none.
        if length == Some(0) {
            return Ok(FileReader::empty());
        }
        let request = v1::ReadFile { path, offset, length: length.unwrap_or(0), root: root as i32 };
        let stream = self.connection.request(Body::ReadFile(request))?;
        Ok(FileReader::new(stream, length))
    }

    /// Writes a file in pieces. A refusal by the sandbox shows with the first write or at the end.
    pub async fn write(&self, path: &Path, options: WriteOptions) -> Result<FileWriter> {
        self.permit("write", path).await?;
        FileWriter::open(&self.connection, path, options)
    }

    /// Watches a file or directory for changes.
    pub async fn watch(&self, path: &Path, recursive: bool) -> Result<FileWatch> {
        let request = v1::Watch { path: bytes(path)?, recursive };
        let stream = self.connection.request(Body::Watch(request))?;
        match stream.answer().await {
            Ok(Body::Done(_)) => Ok(FileWatch::new(stream)),
            Ok(_) => Err(unexpected()),
            Err(error) => Err(error.for_file("watch")),
        }
    }

    /// A whole file; an error if it is larger than `max`.
    pub async fn read_all(&self, path: &Path, max: u64) -> Result<Vec<u8>> {
        // One byte more than wanted tells "exactly that long" from "longer".
        let mut reader = self.read(path, 0, Some(max.saturating_add(1))).await?;
        let mut content = Vec::new();
        while let Some(piece) = reader.next().await? {
            content.extend_from_slice(&piece);
        }
        if content.len() as u64 > max {
            let shown = belljar_policy::shown(&path.to_string_lossy());
            return Err(Error::new(
                Code::FileFailed,
                format!("`{shown}` is larger than {max} bytes"),
            )
            .with_remedy("read it in parts, or copy it out"));
        }
        Ok(content)
    }

    /// Writes a whole file, with the directories above it.
    pub async fn write_all(&self, path: &Path, content: &[u8]) -> Result<()> {
        let options = WriteOptions { make_parents: true, ..WriteOptions::default() };
        let mut writer = self.write(path, options).await?;
        writer.write(content).await?;
        writer.finish().await.map(drop)
    }

    async fn permit(&self, operation: &str, path: &Path) -> Result<()> {
        match &self.guard {
            None => Ok(()),
            Some(guard) => guard.permit(operation, path).await,
        }
    }

    async fn ask(&self, body: Body, action: &str) -> Result<Body> {
        self.connection.ask(body).await.map_err(|error| error.for_file(action))
    }
}

impl From<v1::Metadata> for FileInfo {
    fn from(metadata: v1::Metadata) -> Self {
        let kind = match metadata.kind() {
            v1::Kind::File => FileKind::File,
            v1::Kind::Directory => FileKind::Directory,
            v1::Kind::Symlink => FileKind::Symlink,
            v1::Kind::Fifo => FileKind::Fifo,
            v1::Kind::Socket => FileKind::Socket,
            v1::Kind::CharacterDevice => FileKind::CharacterDevice,
            v1::Kind::BlockDevice => FileKind::BlockDevice,
            v1::Kind::Whiteout => FileKind::Whiteout,
        };
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let since = Duration::from_nanos(u64::try_from(metadata.modified_ns).unwrap_or(0));
        Self {
            kind,
            size: metadata.size,
            mode: metadata.mode,
            uid: metadata.uid,
            gid: metadata.gid,
            modified: UNIX_EPOCH + since,
            link_target: (kind == FileKind::Symlink).then(|| path(metadata.link_target)),
            links: metadata.links,
            opaque: metadata.opaque,
            path: path(metadata.path),
        }
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    check_path(path)?;
    Ok(path.as_os_str().as_bytes().to_vec())
}

pub(crate) fn unexpected() -> Error {
    AgentError::breach("another answer than the question has").into()
}
