//! An archive that has to be looked at from its end, held on the host's disk in a file that has no name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits::exceeded;
use super::{failed_to_read, refused_archive};
use crate::{Error, Result, random};

const PIECE: usize = 256 << 10;

#[derive(Clone, Debug)]
pub(super) struct Spool {
    file: Arc<File>,
    size: u64,
}

impl Spool {
    /// Takes everything from `source`, up to `most` bytes.
    pub(super) async fn fill(
        directory: &Path,
        mut source: impl AsyncRead + Unpin + Send,
        most: u64,
    ) -> Result<Self> {
        let failed = |error| Error::state("hold an archive below", directory, error);
        let file = Arc::new(nameless(directory).map_err(failed)?);
        let mut size = 0;
        loop {
            let mut piece = vec![0; PIECE];
            let mut filled = 0;
            while filled < piece.len() {
                match source.read(&mut piece[filled..]).await.map_err(failed_to_read)? {
                    0 => break,
                    read => filled += read,
                }
            }
            if filled == 0 {
                return Ok(Self { file, size });
            }
            piece.truncate(filled);
            let end = size + filled as u64;
            if end > most {
                return Err(exceeded(&format!("more than {most} bytes itself")));
            }
            let (target, offset) = (Arc::clone(&file), size);
            blocking(move || target.write_all_at(&piece, offset)).await.map_err(failed)?;
            size = end;
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Exactly this part; an archive that points outside itself is refused.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(refused_archive("points outside itself"));
        }
        let file = Arc::clone(&self.file);
        blocking(move || {
            let mut buffer = vec![0; length];
            file.read_exact_at(&mut buffer, offset).map(|()| buffer)
        })
        .await
        .map_err(failed_to_read)
    }
}

/// A file that is gone with its last descriptor.
fn nameless(directory: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Ok(file) => return Ok(file.into()),
        // File systems that always want a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let path = directory.join(format!("archive-{}", random::token()));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
