//! Putting the files of a snapshot into a sandbox: verified first, then extracted by way of the agent.

use std::fs::File;
use std::io::{Read, Seek};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use belljar_codes::Code;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::manifest::{Manifest, Part};
use super::vault::Vault;
use crate::files::{ArchiveFormat, ExtractLimits, Files};
use crate::plan::hex;
use crate::{Error, Result};

const PIECE: usize = 256 << 10;

/// Pieces that are read ahead.
const AHEAD: usize = 4;

/// An archive that is what was saved. It stays readable when the snapshot is removed meanwhile.
pub(super) struct Verified {
    part: Part,
    file: File,
}

/// Opens every archive of a snapshot and compares it with its digest.
pub(super) fn verify(vault: &Vault, manifest: &Manifest) -> Result<Vec<Verified>> {
    let mut verified = Vec::new();
    for part in &manifest.parts {
        let damaged = || {
            Error::new(
                Code::SnapshotDamaged,
                format!(
                    "`{}` of snapshot `{}` is not what was saved",
                    part.path.display(),
                    manifest.id
                ),
            )
            .with_remedy("remove the snapshot; nothing was restored from it")
        };
        let mut file = vault.open(part).map_err(|error| damaged().with_source(error))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; PIECE];
        loop {
            match file.read(&mut buffer).map_err(|error| damaged().with_source(error))? {
                0 => break,
                size => hash.update(buffer.get(..size).unwrap_or_default()),
            }
        }
        if hex(&hash.finalize()) != part.digest {
            return Err(damaged());
        }
        file.rewind().map_err(|error| damaged().with_source(error))?;
        verified.push(Verified { part: part.clone(), file });
    }
    Ok(verified)
}

/// Extracts an archive to where it was taken.
pub(super) async fn extract(files: &Files, verified: Verified) -> Result<()> {
    let Verified { part, file } = verified;
    // How much this is was decided when it was taken.
    let limits = ExtractLimits {
        entries: u64::MAX,
        bytes: part.contents,
        entry_bytes: part.contents,
        ratio: u64::MAX,
        path_length: 4096,
        archive_bytes: part.bytes,
        outward_links: true,
    };
    files.extract(&part.path, ArchiveFormat::TarGz, Pieces::of(file), limits).await.map(drop)
}

/// A file of this host, read where waiting for the disk holds up nobody.
struct Pieces {
    receiver: mpsc::Receiver<std::io::Result<Vec<u8>>>,
    current: Vec<u8>,
    taken: usize,
}

impl Pieces {
    fn of(mut file: File) -> Self {
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || {
            loop {
                let mut piece = vec![0; PIECE];
                let read = file.read(&mut piece).map(|size| {
                    piece.truncate(size);
                    piece
                });
                let ends = read.as_ref().map_or(true, Vec::is_empty);
                // Nobody reads on, or there is no more.
                if sender.blocking_send(read).is_err() || ends {
                    return;
                }
            }
        });
        Self { receiver, current: Vec::new(), taken: 0 }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.taken == self.current.len() {
            match ready!(self.receiver.poll_recv(context)) {
                Some(piece) => self.current = piece?,
                None => return Poll::Ready(Ok(())),
            }
            self.taken = 0;
        }
        let rest = self.current.get(self.taken..).unwrap_or_default();
        let size = rest.len().min(buffer.remaining());
        buffer.put_slice(rest.get(..size).unwrap_or_default());
        self.taken += size;
        Poll::Ready(Ok(()))
    }
}
