//! Where the snapshots of one tenant lie: a manifest for each, and the archives they are made of, named by their digests.
//!
//! Everything is written to a file without a name first and linked into place when it is complete and on disk, archives
//! before the manifest that names them. Whoever changes something holds the tenant's lock. An archive that no manifest
//! names, which a crash between two links can leave, goes with the next change.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::TenantId;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::manifest::{Manifest, Part};
use crate::engine::Inner;
use crate::lock::FileLock;
use crate::{Error, Result};

/// A change takes milliseconds once its archives are written.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct Vault {
    directory: PathBuf,
    lock: PathBuf,
}

/// A file that has no name yet.
#[derive(Debug)]
pub(super) struct Unnamed {
    pub(super) file: File,
}

impl Vault {
    /// A tenant's name is a DNS label, so it is a name of a directory and nothing else.
    pub(super) fn of(inner: &Inner, tenant: &TenantId) -> Self {
        let all = inner.directory.snapshots();
        Self { directory: all.join(tenant.as_str()), lock: all.join(format!("{tenant}.lock")) }
    }

    /// The vaults that there are.
    pub(super) fn all(inner: &Inner) -> Result<Vec<Self>> {
        let directory = inner.directory.snapshots();
        let names = names(&directory)?.into_iter();
        let tenants = names.filter_map(|name| TenantId::parse(&name).ok());
        Ok(tenants.map(|tenant| Self::of(inner, &tenant)).collect())
    }

    pub(super) fn make(&self) -> Result<()> {
        let path = self.blobs();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&path).map_err(|source| Error::state("make", &path, source))
    }

    pub(super) async fn lock(&self) -> Result<FileLock> {
        let locked = FileLock::acquire(&self.lock, PATIENCE).await;
        locked.map_err(|source| Error::state("lock", &self.lock, source))?.ok_or_else(|| {
            Error::new(Code::StateFailed, "another change of snapshots takes too long")
                .with_remedy("try again")
        })
    }

    /// A new file on the file system of the vault, which is gone with its descriptor unless it gets a name.
    pub(super) fn unnamed(&self) -> Result<Unnamed> {
        let path = self.blobs();
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Unnamed { file: file.into() }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => Err(Error::new(
                Code::HostUnsupported,
                "the file system of the state directory has no files without names",
            )
            .with_remedy("put the state directory on ext4, xfs, btrfs or tmpfs")),
            Err(errno) => Err(self.not_written(errno.into())),
        }
    }

    pub(super) fn not_written(&self, source: io::Error) -> Error {
        Error::state("write below", &self.blobs(), source)
    }

    /// Gives an archive its name. One of the same contents gives way: that it still has them is not known.
    pub(super) fn keep(&self, archive: &Unnamed, digest: &str) -> Result<()> {
        let path = self.blob(digest);
        let new = path.with_extension("new");
        let kept = remove(&new)
            .and_then(|()| archive.link(&new))
            .and_then(|()| std::fs::rename(&new, &path))
            .and_then(|()| File::open(self.blobs())?.sync_all());
        kept.map_err(|source| Error::state("write", &path, source))
    }

    /// Writes a manifest, with which its snapshot exists.
    pub(super) fn write(&self, manifest: &Manifest) -> Result<()> {
        let path = self.manifest(&manifest.id);
        let mut file = self.unnamed()?;
        let text = serde_json::to_vec_pretty(manifest).expect("a manifest has a JSON form");
        let written = file
            .file
            .write_all(&text)
            .and_then(|()| file.link(&path))
            .and_then(|()| File::open(&self.directory)?.sync_all());
        written.map_err(|source| Error::state("write", &path, source))
    }

    /// The manifest of that id; `None` where there is none.
    pub(super) fn read(&self, id: &str) -> Result<Option<Manifest>> {
        // An id is a name of a file and nothing else.
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        let path = self.manifest(id);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|source| Error::state("read", &path, source))?,
        };
        match serde_json::from_slice::<Manifest>(&text) {
            Ok(manifest) if manifest.is_sound() && manifest.id == id => Ok(Some(manifest)),
            _ => Err(Error::new(
                Code::SnapshotDamaged,
                format!("what is written down about snapshot `{id}` cannot be understood"),
            )
            .with_remedy("remove the snapshot")),
        }
    }

    /// Every manifest that can be read, and whether those are all.
    pub(super) fn manifests(&self) -> Result<(Vec<Manifest>, bool)> {
        let mut found = Vec::new();
        let mut complete = true;
        for name in names(&self.directory)? {
            let Some(id) = name.strip_suffix(".json") else { continue };
            match self.read(id) {
                Ok(manifest) => found.extend(manifest),
                Err(error) => {
                    tracing::warn!(%error, "a snapshot is passed over");
                    complete = false;
                }
            }
        }
        Ok((found, complete))
    }

    pub(super) fn open(&self, part: &Part) -> io::Result<File> {
        File::open(self.blob(&part.digest))
    }

    /// Removes the manifest of that id, and what only that named.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        let path = self.manifest(id);
        remove(&path).map_err(|source| Error::state("remove", &path, source))?;
        self.sweep()
    }

    /// Removes archives that no manifest names.
    pub(super) fn sweep(&self) -> Result<()> {
        let (manifests, complete) = self.manifests()?;
        if !complete {
            // Whose archives those of the unreadable ones are is not known.
            return Ok(());
        }
        let parts = manifests.iter().flat_map(|manifest| &manifest.parts);
        let named: HashSet<&str> = parts.map(|part| part.digest.as_str()).collect();
        for name in names(&self.blobs())? {
            if !named.contains(name.as_str()) {
                let path = self.blobs().join(name);
                remove(&path).map_err(|source| Error::state("remove", &path, source))?;
            }
        }
        Ok(())
    }

    /// Removes all of it.
    pub(super) async fn remove_all(&self) -> Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        let lock = self.lock().await?;
        std::fs::remove_dir_all(&self.directory)
            .and_then(|()| lock.remove())
            .map_err(|source| Error::state("remove", &self.directory, source))
    }

    fn blobs(&self) -> PathBuf {
        self.directory.join("blobs")
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.blobs().join(digest)
    }

    fn manifest(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }
}

impl Unnamed {
    /// Names the file, once all of it is on disk.
    fn link(&self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        // The descriptor itself can only be linked with a privilege; this way to it needs none.
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is in a directory; nothing is in one that does not exist.
fn names(directory: &Path) -> Result<Vec<String>> {
    let fail = |source| Error::state("list", directory, source);
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fail)?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
    names.filter_map(io::Result::transpose).collect::<io::Result<_>>().map_err(fail)
}
