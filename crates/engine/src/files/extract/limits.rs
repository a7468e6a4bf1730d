//! How much an archive may be.

use belljar_codes::Code;

use crate::{Error, Result};

/// Below this many bytes even the best compression harms nobody, and a file of zeros is no bomb.
const RATIO_FROM: u64 = 16 << 20;

/// How much of everything is extracted from one archive at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtractLimits {
    /// Entries, directories that names imply included.
    pub entries: u64,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Bytes of one file.
    pub entry_bytes: u64,
    /// How many times larger than the archive its contents may be; looked at from 16 MiB of contents on.
    pub ratio: u64,
    /// Bytes of a name, and of where a link leads.
    pub path_length: usize,
    /// Bytes of the archive itself.
    pub archive_bytes: u64,
    /// For what was archived inside a sandbox and goes back into one: links may lead anywhere, names may differ in case
    /// alone and may be as deep as they are long. Nothing is written through a link all the same.
    pub outward_links: bool,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self {
            entries: 200_000,
            bytes: 16 << 30,
            entry_bytes: 8 << 30,
            ratio: 200,
            path_length: 1024,
            archive_bytes: 4 << 30,
            outward_links: false,
        }
    }
}

/// What has been used of the limits.
#[derive(Debug)]
pub(super) struct Budget {
    limits: ExtractLimits,
    entries: u64,
    bytes: u64,
}

impl Budget {
    pub(super) fn new(limits: ExtractLimits) -> Self {
        Self { limits, entries: 0, bytes: 0 }
    }

    pub(super) fn limits(&self) -> &ExtractLimits {
        &self.limits
    }

    pub(super) fn add_entry(&mut self) -> Result<()> {
        self.entries += 1;
        match self.entries > self.limits.entries {
            true => Err(exceeded(&format!("more than {} entries", self.limits.entries))),
            false => Ok(()),
        }
    }

    /// Takes the bytes of a whole file.
    pub(super) fn add_file(&mut self, size: u64) -> Result<()> {
        if size > self.limits.entry_bytes {
            return Err(exceeded(&format!(
                "a file of more than {} bytes",
                self.limits.entry_bytes
            )));
        }
        self.bytes = self.bytes.saturating_add(size);
        match self.bytes > self.limits.bytes {
            true => Err(exceeded(&format!("more than {} bytes", self.limits.bytes))),
            false => Ok(()),
        }
    }

    /// What one more file may have.
    pub(super) fn left(&self) -> u64 {
        self.limits.entry_bytes.min(self.limits.bytes - self.bytes)
    }
}

/// Refuses what grows too much when it is unpacked.
pub(super) fn check_ratio(limits: &ExtractLimits, packed: u64, unpacked: u64) -> Result<()> {
    if unpacked > RATIO_FROM && unpacked / packed.max(1) >= limits.ratio.max(1) {
        let ratio = limits.ratio;
        return Err(exceeded(&format!("contents more than {ratio} times its own size")));
    }
    Ok(())
}

pub(super) fn exceeded(what: &str) -> Error {
    Error::new(Code::ArchiveRefused, format!("the archive has {what}"))
        .with_remedy("split it into several archives")
}
