//! Taking a snapshot: directories become archives, by way of the agent.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::limits::format_bytes;
use sha2::{Digest, Sha256};

use super::manifest::Part;
use super::vault::{Unnamed, Vault};
use crate::aside::blocking;
use crate::files::{ArchiveFormat, FileKind, Files};
use crate::plan::hex;
use crate::{Error, Result};

/// What the names and modes of files add to their contents, however compressed.
const OVERHEAD: u64 = 64 << 20;

/// An archive that is complete and has no name yet.
pub(super) struct Taken {
    pub(super) part: Part,
    pub(super) archive: Unnamed,
    pub(super) skipped: u64,
}

/// How much a snapshot may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Of the sizes of files, holes in them included: restoring fills them.
    pub(super) contents: u64,
    pub(super) disk: u64,
    /// Of archives, by the tenant's quota.
    pub(super) stored: Option<u64>,
}

impl Allowance {
    fn check(&self, contents: u64, stored: u64) -> Result<()> {
        if contents > self.contents || stored > self.contents.saturating_add(OVERHEAD) {
            let disk = format_bytes(self.disk);
            return Err(Error::new(
                Code::SnapshotTooLarge,
                format!("the files are larger than the sandbox's disk of {disk}"),
            )
            .with_remedy(
                "remove what need not be kept, or name fewer directories; sparse files and second names of a file \
                 count in full",
            ));
        }
        match self.stored {
            Some(most) if stored > most => Err(quota_reached()),
            _ => Ok(()),
        }
    }

    pub(super) fn less(self, part: &Part) -> Self {
        Self {
            contents: self.contents.saturating_sub(part.contents),
            disk: self.disk,
            stored: self.stored.map(|most| most.saturating_sub(part.bytes)),
        }
    }
}

pub(super) fn quota_reached() -> Error {
    Error::new(Code::QuotaExceeded, "the tenant's snapshots would take more than its disk quota")
        .with_remedy("remove snapshots, or ask the operator for more")
}

/// Archives a directory. `None` where there is no such directory.
pub(super) async fn take(
    files: &Files,
    vault: &Vault,
    path: &Path,
    allowance: Allowance,
) -> Result<Option<Taken>> {
    match files.stat(path, true).await {
        Ok(info) if info.kind == FileKind::Directory => {}
        Ok(_) => {
            let shown = belljar_policy::shown(&path.to_string_lossy());
            return Err(Error::new(Code::FileKindWrong, format!("`{shown}` is not a directory"))
                .with_remedy("name the directory that it is in"));
        }
        Err(error) if error.code() == Code::FileNotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut reader = files.archive(path, ArchiveFormat::TarGz).await?;
    let archive = vault.unnamed()?;
    let target = archive.file.try_clone().map_err(|error| vault.not_written(error))?;
    let target = Arc::new(target);
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    while let Some(piece) = reader.next().await? {
        hash.update(&piece);
        let (target, vault, offset) = (Arc::clone(&target), vault.clone(), bytes);
        bytes += piece.len() as u64;
        allowance.check(reader.contents(), bytes)?;
        blocking(move || {
            target.write_all_at(&piece, offset).map_err(|error| vault.not_written(error))
        })
        .await?;
    }
    let part = Part {
        path: PathBuf::from(path),
        digest: hex(&hash.finalize()),
        bytes,
        contents: reader.contents(),
    };
    allowance.check(part.contents, part.bytes)?;
    Ok(Some(Taken { part, archive, skipped: reader.skipped() }))
}
