//! Copies inside a sandbox, by way of the host: contents are read and written through the agent, a window at a time.
//!
//! Modes are kept. Links are copied as links. Pipes, sockets and devices are left out and reported. A copy that is given
//! up keeps what is complete and leaves no half-written file.

use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{Root, Stat};

use super::modes::ClosedDirectories;
use super::walk::{Walk, is_out_of_reach};
use super::{FileInfo, FileKind, Files, WriteMode, WriteOptions, bytes, unexpected};
use crate::{Error, Result};

/// Skipped entries that are named; the others are counted.
const MOST_NAMED: usize = 100;

/// How to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Directories with all that is in them. Without it a directory is refused.
    pub recursive: bool,
    /// What is there already is replaced, file by file; directories are merged. Without it the target must not exist.
    pub replace: bool,
}

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    pub bytes: u64,
    /// Entries that are not copied (pipes, sockets, devices) or could not be read.
    pub skipped: u64,
    /// The first of them, as paths inside the sandbox.
    pub skipped_paths: Vec<PathBuf>,
}

impl Files {
    /// Copies a file, a link, or a directory with everything in it.
    pub async fn copy(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<CopyReport> {
        let source = self.stat(from, false).await?;
        let mut copy = Copy {
            files: self,
            options,
            closed: ClosedDirectories::default(),
            report: CopyReport::default(),
        };
        if source.kind != FileKind::Directory {
            if !copy.entry(&source, from, to).await? {
                return Err(wrong_kind(from, source.kind));
            }
            return Ok(copy.report);
        }
        if !options.recursive {
            let shown = shown(from);
            return Err(Error::new(Code::FileKindWrong, format!("`{shown}` is a directory"))
                .with_remedy("ask for a recursive copy"));
        }
        self.require_outside(from, to).await?;
        copy.directory(&source, to).await?;
        let mut walk = Walk::new(self, from, u32::MAX);
        while let Some(entry) = walk.next().await? {
            let (inner, target) = (from.join(&entry.path), to.join(&entry.path));
            if entry.kind == FileKind::Directory {
                copy.directory(&entry, &target).await?;
            } else if !copy.entry_of_tree(&entry, &inner, &target).await? {
                copy.skip(inner);
            }
        }
        copy.closed.close(self).await?;
        Ok(copy.report)
    }

    /// A directory cannot be copied into itself: the copy would find itself and never end.
    async fn require_outside(&self, from: &Path, to: &Path) -> Result<()> {
        let source = self.identity(from).await?;
        for above in to.ancestors() {
            // A relative path starts in the working directory.
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match self.identity(above).await {
                Ok(identity) if identity == source => {
                    let (from, to) = (shown(from), shown(to));
                    return Err(Error::new(
                        Code::InvalidArgument,
                        format!("`{to}` is inside `{from}`"),
                    )
                    .with_remedy("choose a target outside the directory to copy"));
                }
                Ok(_) => {}
                Err(error) if is_out_of_reach(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn identity(&self, path: &Path) -> Result<(u64, u64)> {
        let request = Stat { path: bytes(path)?, follow: true, root: Root::Sandbox as i32 };
        match self.ask(Body::Stat(request), "look at").await? {
            Body::Metadata(metadata) => Ok((metadata.device, metadata.inode)),
            _ => Err(unexpected()),
        }
    }

    /// Copies the contents of one regular file; returns its size.
    pub(super) async fn copy_contents(
        &self,
        from: &Path,
        to: &Path,
        options: WriteOptions,
    ) -> Result<u64> {
        let mut reader = self.read(from, 0, None).await?;
        // A source that cannot be read leaves no trace at the target.
        let first = reader.next().await?;
        let mut writer = self.write(to, options).await?;
        let mut piece = first;
        while let Some(data) = piece {
            writer.write(&data).await?;
            piece = reader.next().await?;
        }
        let size = writer.finish().await?;
        if options.permissions == Some(0) {
            self.change_mode(to, 0).await?;
        }
        Ok(size)
    }
}

struct Copy<'a> {
    files: &'a Files,
    options: CopyOptions,
    closed: ClosedDirectories,
    report: CopyReport,
}

impl Copy<'_> {
    /// Copies anything but a directory; whether it is of a kind that is copied.
    async fn entry(&mut self, entry: &FileInfo, from: &Path, to: &Path) -> Result<bool> {
        match (entry.kind, &entry.link_target) {
            (FileKind::File, _) => {
                let mode = match self.options.replace {
                    true => WriteMode::Replace,
                    false => WriteMode::CreateNew,
                };
                let permissions = Some(entry.mode & 0o7777);
                let options = WriteOptions { mode, permissions, ..WriteOptions::default() };
                self.report.bytes += self.files.copy_contents(from, to, options).await?;
                self.report.files += 1;
            }
            (FileKind::Symlink, Some(target)) => {
                self.link(to, target).await?;
                self.report.links += 1;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Like `entry`, where a source that has gone or may not be read is left out.
    async fn entry_of_tree(&mut self, entry: &FileInfo, from: &Path, to: &Path) -> Result<bool> {
        match self.entry(entry, from, to).await {
            Err(error) if is_out_of_reach(&error) => {
                // Whose fault it was: the source's is passed over, the target's is not.
                match self.files.read(from, 0, Some(1)).await?.next().await {
                    Err(_) => Ok(false),
                    Ok(_) => Err(error),
                }
            }
            other => other,
        }
    }

    async fn link(&self, to: &Path, target: &Path) -> Result<()> {
        match self.files.make_link(to, target).await {
            Err(error) if error.code() == Code::FileExists && self.options.replace => {
                self.files.remove(to, false).await?;
                self.files.make_link(to, target).await
            }
            other => other,
        }
    }

    async fn directory(&mut self, source: &FileInfo, to: &Path) -> Result<()> {
        let mode = ClosedDirectories::open_mode(source.mode);
        match self.files.make_directory_with(to, false, mode).await {
            Err(error) if error.code() == Code::FileExists && self.options.replace => {
                if self.files.stat(to, false).await?.kind != FileKind::Directory {
                    return Err(error);
                }
            }
            other => {
                other?;
                self.closed.add(to, source.mode)?;
            }
        }
        self.report.directories += 1;
        Ok(())
    }

    fn skip(&mut self, path: PathBuf) {
        self.report.skipped += 1;
        if self.report.skipped_paths.len() < MOST_NAMED {
            self.report.skipped_paths.push(path);
        }
    }
}

fn wrong_kind(path: &Path, kind: FileKind) -> Error {
    let (shown, kind) = (shown(path), kind.as_str());
    Error::new(Code::FileKindWrong, format!("`{shown}` is a {kind}"))
        .with_remedy("only files, links and directories are copied")
}

fn shown(path: &Path) -> String {
    belljar_policy::shown(&path.to_string_lossy())
}
