//! An archive that has to be looked at from its end, held on the host's disk in a file that has no name.
//!
//! That is the host's disk and not the sandbox's, so what one tenant holds there at the same time is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use belljar_codes::Code;
use belljar_policy::TenantId;
use belljar_policy::limits::format_bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits::exceeded;
use super::{failed_to_read, refused_archive};
use crate::{Error, Result, random};

const PIECE: usize = 256 << 10;

/// What the archives of one tenant may take that are held at the same time.
const MAX_HELD: u64 = 8 << 30;

/// Where archives are held, and how much each tenant holds.
#[derive(Debug)]
pub(crate) struct Spools {
    directory: Arc<Path>,
    /// Of those who might hold something.
    tenants: Mutex<HashMap<TenantId, Weak<AtomicU64>>>,
}

/// The archives of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    directory: Arc<Path>,
    held: Arc<AtomicU64>,
}

/// Given back when it is dropped.
#[derive(Debug)]
struct Share {
    held: Arc<AtomicU64>,
    bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Spool {
    file: Arc<File>,
    size: u64,
    _share: Arc<Share>,
}

impl Spools {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.into(), tenants: Mutex::default() }
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Shelf {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tenants.get(tenant).and_then(Weak::upgrade);
        let held = known.unwrap_or_else(|| {
            tenants.retain(|_, held| held.strong_count() > 0);
            let held = Arc::default();
            tenants.insert(tenant.clone(), Arc::downgrade(&held));
            held
        });
        Shelf { directory: Arc::clone(&self.directory), held }
    }
}

impl Share {
    fn add(&mut self, bytes: u64) -> Result<()> {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if held.saturating_add(bytes) <= MAX_HELD {
            return Ok(());
        }
        let most = format_bytes(MAX_HELD);
        Err(Error::new(
            Code::QuotaExceeded,
            format!("the tenant's zip archives that are being extracted take more than {most}"),
        )
        .with_remedy("send them one after the other, or as tar archives"))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Spool {
    /// Takes everything from `source`, up to `most` bytes.
    pub(super) async fn fill(
        shelf: &Shelf,
        mut source: impl AsyncRead + Unpin + Send,
        most: u64,
    ) -> Result<Self> {
        let directory = &*shelf.directory;
        let failed = |error| Error::state("hold an archive below", directory, error);
        let mut share = Share { held: Arc::clone(&shelf.held), bytes: 0 };
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
                return Ok(Self { file, size, _share: Arc::new(share) });
            }
            piece.truncate(filled);
            let end = size + filled as u64;
            if end > most {
                return Err(exceeded(&format!("more than {most} bytes itself")));
            }
            share.add(filled as u64)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_tenant_holds_is_bounded_and_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let spools = Spools::new(directory.path());
        let of = |name: &str| spools.of(&TenantId::parse(name).unwrap());
        let (one, two) = (of("one"), of("two"));
        let fill = async |shelf: &Shelf| Spool::fill(shelf, &[7; 1000][..], 1 << 20).await;
        let first = fill(&one).await.unwrap();
        assert_eq!((first.size(), first.read(990, 10).await.unwrap()), (1000, vec![7; 10]));
        assert_eq!(of("one").held.load(Ordering::Relaxed), 1000, "whoever asks");
        let more = Share { held: Arc::clone(&one.held), bytes: MAX_HELD - 1500 };
        one.held.fetch_add(more.bytes, Ordering::Relaxed);
        let refused = fill(&one).await.unwrap_err();
        assert_eq!(refused.code(), Code::QuotaExceeded);
        assert_eq!(one.held.load(Ordering::Relaxed), MAX_HELD - 500, "nothing is left of it");
        fill(&two).await.unwrap();
        drop(first);
        fill(&one).await.unwrap();
        drop((one, more));
        assert_eq!(of("one").held.load(Ordering::Relaxed), 0);
    }
}
