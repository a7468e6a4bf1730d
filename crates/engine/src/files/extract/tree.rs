//! The tree that an archive becomes: admits entries and has the agent make them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use belljar_codes::Code;

use super::super::modes::ClosedDirectories;
use super::super::{FileKind, FileWriter, Files, WriteMode, WriteOptions};
use super::names::{Admitted, EntryKind, Names, check_target};
use super::{Budget, ExtractLimits, ExtractReport, refused};
use crate::{Error, Result};

/// What directories get that no entry describes.
const IMPLIED_MODE: u32 = 0o755;

/// Links kept until the end, in bytes.
const MOST_LINK_BYTES: usize = 16 << 20;

pub(super) struct Tree<'a> {
    files: &'a Files,
    root: &'a Path,
    names: Names,
    pub(super) budget: Budget,
    /// Directories that are known to be there and to be directories.
    present: HashSet<PathBuf>,
    present_bytes: usize,
    closed: ClosedDirectories,
    links: Vec<(PathBuf, PathBuf)>,
    link_bytes: usize,
    report: ExtractReport,
}

/// One file that is being written.
pub(super) struct NewFile {
    writer: FileWriter,
    path: PathBuf,
    mode: u32,
}

impl<'a> Tree<'a> {
    pub(super) fn new(files: &'a Files, root: &'a Path, limits: ExtractLimits) -> Self {
        Self {
            files,
            root,
            names: Names::new(&limits),
            budget: Budget::new(limits),
            present: HashSet::new(),
            present_bytes: 0,
            closed: ClosedDirectories::default(),
            links: Vec::new(),
            link_bytes: 0,
            report: ExtractReport::default(),
        }
    }

    /// Makes the target.
    pub(super) async fn begin(&self) -> Result<()> {
        self.files.make_directory(self.root, true).await
    }

    /// Forgets which entries were admitted, after a look at all of them.
    pub(super) fn start_over(&mut self) {
        let limits = *self.budget.limits();
        self.names = Names::new(&limits);
        self.budget = Budget::new(limits);
    }

    pub(super) fn admit(&mut self, name: &[u8], kind: EntryKind) -> Result<Admitted> {
        let admitted = self.names.admit(name, kind).map_err(|why| refused(name, why))?;
        for _ in 0..admitted.new {
            self.budget.add_entry()?;
        }
        Ok(admitted)
    }

    /// Admits a link together with where it leads.
    pub(super) fn admit_link(&mut self, name: &[u8], target: &[u8]) -> Result<Admitted> {
        let admitted = self.admit(name, EntryKind::Link)?;
        check_target(&admitted, target, self.budget.limits()).map_err(|why| refused(name, why))?;
        Ok(admitted)
    }

    pub(super) async fn directory(&mut self, admitted: &Admitted, mode: u32) -> Result<()> {
        self.directories(&admitted.components, mode & 0o777).await
    }

    pub(super) async fn file(&mut self, admitted: &Admitted, mode: u32) -> Result<NewFile> {
        self.above(admitted).await?;
        let path = self.root.join(admitted.path());
        let mode = mode & 0o777;
        let writer = self.files.write(&path, replacing(mode, None)).await?;
        Ok(NewFile { writer, path, mode })
    }

    pub(super) async fn finish_file(&mut self, file: NewFile) -> Result<()> {
        self.report.bytes += file.writer.finish().await?;
        self.report.files += 1;
        // The protocol's zero means "as usual".
        if file.mode == 0 {
            self.files.change_mode(&file.path, 0).await?;
        }
        Ok(())
    }

    /// Another name of a file that is there already: a copy.
    pub(super) async fn same_file(&mut self, name: &[u8], target: &[u8], mode: u32) -> Result<()> {
        let Some(earlier) = self.names.earlier_file(target) else {
            return Err(refused(name, "is a link to a file that no entry before it made"));
        };
        let admitted = self.admit(name, EntryKind::File)?;
        self.above(&admitted).await?;
        let (from, to) = (self.root.join(earlier), self.root.join(admitted.path()));
        // Whatever the file has become inside meanwhile.
        let options = replacing(mode & 0o777, Some(self.budget.left()));
        let size = match self.files.copy_contents(&from, &to, options).await {
            Err(error) if error.code() == Code::RequestTooLarge => {
                return Err(super::limits::exceeded("links to more bytes than are extracted"));
            }
            other => other?,
        };
        self.budget.add_file(size)?;
        self.report.bytes += size;
        self.report.files += 1;
        Ok(())
    }

    /// A link, made when everything else is there.
    pub(super) fn link(&mut self, admitted: &Admitted, target: Vec<u8>) -> Result<()> {
        let path = admitted.path();
        self.link_bytes += path.as_os_str().len() + target.len() + 64;
        if self.link_bytes > MOST_LINK_BYTES {
            return Err(super::limits::exceeded("too many links"));
        }
        self.links.push((path, PathBuf::from(OsString::from_vec(target))));
        Ok(())
    }

    /// Makes the links and gives directories their modes.
    pub(super) async fn finish(mut self) -> Result<ExtractReport> {
        for (path, target) in std::mem::take(&mut self.links) {
            let above: Vec<Vec<u8>> = components_above(&path);
            self.directories(&above, IMPLIED_MODE).await?;
            self.make_link(&self.root.join(&path), &target).await?;
            self.report.links += 1;
        }
        self.closed.close(self.files).await?;
        Ok(self.report)
    }

    async fn make_link(&self, path: &Path, target: &Path) -> Result<()> {
        match self.files.make_link(path, target).await {
            Err(error) if error.code() == Code::FileExists => {
                // A file or an old link gives way; a directory does not.
                self.files.remove(path, false).await?;
                self.files.make_link(path, target).await
            }
            other => other,
        }
    }

    async fn above(&mut self, admitted: &Admitted) -> Result<()> {
        let count = admitted.components.len().saturating_sub(1);
        let above = admitted.components.get(..count).unwrap_or_default();
        self.directories(above, IMPLIED_MODE).await
    }

    /// Makes a directory and those above it, one by one, and none through a link.
    async fn directories(&mut self, components: &[Vec<u8>], mode: u32) -> Result<()> {
        let mut path = PathBuf::new();
        for (index, component) in components.iter().enumerate() {
            path.push(OsString::from_vec(component.clone()));
            if self.present.contains(&path) {
                continue;
            }
            let is_last = index + 1 == components.len();
            let mode = if is_last { mode } else { IMPLIED_MODE };
            self.make_one(&path, mode).await?;
            self.remember(&path);
        }
        Ok(())
    }

    async fn make_one(&mut self, path: &Path, mode: u32) -> Result<()> {
        let place = self.root.join(path);
        let open = ClosedDirectories::open_mode(mode);
        match self.files.make_directory_with(&place, false, open).await {
            Ok(()) => {
                self.report.directories += 1;
                self.closed.add(&place, mode)
            }
            Err(error) if error.code() == Code::FileExists => {
                match self.files.stat(&place, false).await?.kind {
                    FileKind::Directory => Ok(()),
                    FileKind::Symlink => Err(through_link(&place)),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Remembers a directory, as long as that costs little; one that is forgotten is looked at again.
    fn remember(&mut self, path: &Path) {
        const MOST: usize = 8 << 20;
        self.present_bytes += path.as_os_str().len() + 64;
        if self.present_bytes > MOST {
            self.present.clear();
            self.present_bytes = 0;
        }
        self.present.insert(path.to_owned());
    }
}

impl NewFile {
    pub(super) async fn write(&mut self, data: &[u8]) -> Result<()> {
        self.writer.write(data).await
    }
}

fn replacing(permissions: u32, limit: Option<u64>) -> WriteOptions {
    let permissions = Some(permissions);
    WriteOptions { mode: WriteMode::Replace, permissions, make_parents: false, limit }
}

fn through_link(place: &Path) -> Error {
    let shown = belljar_policy::shown(&place.to_string_lossy());
    Error::new(
        Code::ArchiveRefused,
        format!("an entry leads through the link `{shown}` inside the sandbox"),
    )
    .with_remedy("remove the link, or extract somewhere else")
}

fn components_above(path: &Path) -> Vec<Vec<u8>> {
    let above = path.parent().unwrap_or(Path::new(""));
    above.iter().map(|component| component.to_owned().into_vec()).collect()
}
