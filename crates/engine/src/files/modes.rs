//! Modes of directories that would keep us from filling them, kept until they are full.

use std::path::{Path, PathBuf};

use belljar_codes::Code;

use super::Files;
use crate::{Error, Result};

/// The owner may do everything: what a directory needs while it is being filled.
const OPEN: u32 = 0o700;

/// Paths kept at most, in bytes: trees with very many closed directories are refused rather than held in memory.
const MOST_BYTES: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct ClosedDirectories {
    kept: Vec<(PathBuf, u32)>,
    bytes: usize,
}

impl ClosedDirectories {
    /// The mode to make a directory with.
    pub(super) fn open_mode(mode: u32) -> u32 {
        mode & 0o7777 | OPEN
    }

    pub(super) fn add(&mut self, path: &Path, mode: u32) -> Result<()> {
        let mode = mode & 0o7777;
        if mode & OPEN == OPEN {
            return Ok(());
        }
        self.bytes += path.as_os_str().len() + size_of::<(PathBuf, u32)>();
        if self.bytes > MOST_BYTES {
            return Err(Error::new(
                Code::FileFailed,
                "too many directories that their owner may not write to",
            ));
        }
        self.kept.push((path.to_owned(), mode));
        Ok(())
    }

    /// Gives the directories their modes, innermost first.
    pub(super) async fn close(self, files: &Files) -> Result<()> {
        for (path, mode) in self.kept.into_iter().rev() {
            files.change_mode(&path, mode).await?;
        }
        Ok(())
    }
}
