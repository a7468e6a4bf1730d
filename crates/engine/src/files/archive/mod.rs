//! A tree as an archive, made while it is read.
//!
//! Names are relative to the archived directory; a single file is archived under its own name. Files, directories and
//! links are archived; pipes, sockets, devices and what cannot be read are left out and counted.
//!
//! What happens to a file meanwhile never breaks the archive: as many bytes as the file had when it was listed are read
//! at most, and where there are fewer a tar archive is filled up with zeros.

mod dos_time;
mod tar;
mod zip;

use std::path::{Path, PathBuf};

pub(super) use self::tar::{BLOCK, LARGEST_PLAIN_SIZE};

use self::tar::TarWriter;
use self::zip::ZipWriter;
use super::walk::{Walk, is_out_of_reach};
use super::{FileInfo, FileKind, FileReader, Files};
use crate::Result;

/// Pieces are about this large.
const PIECE: usize = 64 << 10;

/// The kinds of archives that are made and extracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveFormat {
    /// POSIX tar.
    Tar,
    /// The same, compressed by gzip.
    TarGz,
    Zip,
}

impl ArchiveFormat {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::TarGz => "tar.gz",
            Self::Zip => "zip",
        }
    }

    /// From the word in [`ArchiveFormat::as_str`]; `tgz` means `tar.gz`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "tar" => Some(Self::Tar),
            "tar.gz" | "tgz" => Some(Self::TarGz),
            "zip" => Some(Self::Zip),
            _ => None,
        }
    }
}

/// An archive that is being made; ends when dropped.
#[derive(Debug)]
pub struct ArchiveReader {
    files: Files,
    root: PathBuf,
    /// What comes next: one file, or a whole directory.
    single: Option<FileInfo>,
    walk: Option<Walk>,
    current: Option<Current>,
    writer: Writer,
    out: Vec<u8>,
    ended: bool,
    skipped: u64,
    contents: u64,
}

/// The file that is being archived.
#[derive(Debug)]
struct Current {
    entry: FileInfo,
    reader: FileReader,
    /// Its header has been written.
    begun: bool,
    left: u64,
    /// It has no more; the rest is zeros.
    short: bool,
}

#[derive(Debug)]
enum Writer {
    Tar(TarWriter),
    Zip(Box<ZipWriter>),
}

impl Files {
    /// Archives a directory, or a single file.
    pub async fn archive(&self, path: &Path, format: ArchiveFormat) -> Result<ArchiveReader> {
        let mut root = self.stat(path, true).await?;
        let is_directory = root.kind == FileKind::Directory;
        root.path = path.file_name().map_or_else(|| PathBuf::from("file"), PathBuf::from);
        Ok(ArchiveReader {
            files: self.clone(),
            root: path.to_owned(),
            walk: is_directory.then(|| Walk::new(self, path, u32::MAX)),
            single: (!is_directory).then_some(root),
            current: None,
            writer: match format {
                ArchiveFormat::Tar => Writer::Tar(TarWriter::plain()),
                ArchiveFormat::TarGz => Writer::Tar(TarWriter::compressed()),
                ArchiveFormat::Zip => Writer::Zip(Box::default()),
            },
            out: Vec::new(),
            ended: false,
            skipped: 0,
            contents: 0,
        })
    }
}

impl ArchiveReader {
    /// The next piece; `None` at the end. Giving up waiting loses nothing; after an error the archive is incomplete.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        while self.out.len() < PIECE && !self.ended {
            self.step().await?;
        }
        let piece = std::mem::take(&mut self.out);
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    /// Entries that were left out so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The sizes of all files so far, that of the current one in full.
    #[must_use]
    pub fn contents(&self) -> u64 {
        self.contents
    }

    async fn step(&mut self) -> Result<()> {
        if self.current.is_some() {
            return self.continue_file().await;
        }
        let entry = match (self.single.take(), &mut self.walk) {
            (Some(single), _) => Some(single),
            (None, Some(walk)) => walk.next().await?,
            (None, None) => None,
        };
        match entry {
            Some(entry) if entry.kind == FileKind::File => self.open_file(entry).await,
            Some(entry) if matches!(entry.kind, FileKind::Directory | FileKind::Symlink) => {
                self.writer.entry(&entry, &mut self.out)
            }
            Some(_) => {
                self.skipped += 1;
                Ok(())
            }
            None => {
                self.ended = true;
                self.walk = None;
                self.writer.finish(&mut self.out)
            }
        }
    }

    async fn open_file(&mut self, entry: FileInfo) -> Result<()> {
        let path = match self.walk {
            Some(_) => self.root.join(&entry.path),
            None => self.root.clone(),
        };
        let left = entry.size;
        self.contents = self.contents.saturating_add(left);
        // Opening waits for nothing, so giving up cannot fall between the entry and its file.
        let reader = self.files.read(&path, 0, Some(left)).await?;
        self.current = Some(Current { entry, reader, begun: false, left, short: false });
        Ok(())
    }

    async fn continue_file(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let zeros = [0; 4096];
        let piece = match current.short {
            true => None,
            false => match current.reader.next().await {
                Ok(piece) => piece,
                Err(error) if !current.begun && is_out_of_reach(&error) => {
                    self.skipped += 1;
                    self.current = None;
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        if !current.begun {
            current.begun = true;
            self.writer.entry(&current.entry, &mut self.out)?;
        }
        match piece {
            Some(piece) => {
                // Never more than asked for, which the reader sees to.
                current.left -= piece.len() as u64;
                self.writer.contents(&piece, &mut self.out)?;
            }
            None if current.left > 0 && self.writer.needs_every_byte() => {
                current.short = true;
                let size = usize::try_from(current.left).unwrap_or(zeros.len()).min(zeros.len());
                current.left -= size as u64;
                self.writer.contents(zeros.get(..size).unwrap_or_default(), &mut self.out)?;
            }
            None => {
                self.writer.end_contents(&mut self.out)?;
                self.current = None;
            }
        }
        Ok(())
    }
}

impl Writer {
    fn entry(&mut self, entry: &FileInfo, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Tar(tar) => tar.entry(entry, out),
            Self::Zip(zip) => return zip.entry(entry, out),
        }
        Ok(())
    }

    fn contents(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Tar(tar) => tar.contents(data, out),
            Self::Zip(zip) => return zip.contents(data, out),
        }
        Ok(())
    }

    fn end_contents(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Tar(tar) => tar.end_contents(out),
            Self::Zip(zip) => return zip.end_contents(out),
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Tar(tar) => tar.finish(out),
            Self::Zip(zip) => zip.finish(out),
        }
        Ok(())
    }

    /// Whether the size in the header has to come true.
    fn needs_every_byte(&self) -> bool {
        matches!(self, Self::Tar(_))
    }
}
