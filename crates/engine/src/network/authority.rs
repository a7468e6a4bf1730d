//! The certificate authorities of sandboxes whose requests are looked into.
//!
//! Made before the sandbox starts, because its programs must trust it from the first; the key is kept sealed, so that
//! the certificate inside stays good when another server takes over. What a sandbox trusts is in a directory of its own on
//! the host, which is mounted over the places where programs look for it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use belljar_backend::{MountSource, ResolvedMount, RootSource};
use belljar_codes::Code;
use belljar_egress::{
    Authority, RootFile, TRUST_BUNDLE, TRUST_CERTIFICATE, TRUST_DIRECTORY, Trust,
};
use belljar_policy::{Access, Environment, SandboxId, SecretValue};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::engine::Inner;
use crate::secrets::Sealed;
use crate::store::{StoredAuthority, Which};
use crate::{Error, Result};

/// A bundle of all authorities of the world is 250 KiB.
const MAX_BUNDLE: u64 = 8 << 20;

/// Makes the authority of a sandbox that is about to start, and says what must be mounted so that it is trusted.
pub(crate) async fn establish(
    inner: &Inner,
    sandbox: &SandboxId,
    root: &RootSource,
    environment: &mut Environment,
) -> Result<Vec<ResolvedMount>> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(
            Code::StartFailed,
            format!("the sandbox cannot be made to trust its certificate authority: {error}"),
        )
        .with_remedy("use rules without methods, paths and credentials, or another template")
    };
    let authority = Authority::generate(sandbox).map_err(|error| failed(&error))?;
    let trust = Trust::plan(authority.certificate_pem(), |path| look(root, path))
        .map_err(|error| failed(&error))?;
    let first = inner.store.nothing_sealed().await?;
    let key = SecretValue::new(authority.key_pem())?;
    let sealed_key = inner.vault.seal(Sealed::Authority(sandbox), &key, first)?;
    let certificate = authority.certificate_pem().to_owned();
    inner.store.set_authority(sandbox, &StoredAuthority { certificate, sealed_key }).await?;

    let directory = inner.directory.trust(sandbox);
    let mounts = write(&directory, &trust).map_err(|error| failed(&error))?;
    for (name, value) in Trust::variables() {
        if environment.get(name).is_none() {
            environment.set(name, &value)?;
        }
    }
    Ok(mounts)
}

/// The authority that a sandbox trusts, if it has one.
pub(crate) async fn find(inner: &Inner, sandbox: &SandboxId) -> Result<Option<Authority>> {
    let Some(kept) = inner.store.authority(sandbox).await? else { return Ok(None) };
    let key = inner.vault.open(Sealed::Authority(sandbox), &kept.sealed_key)?;
    let authority = Authority::restore(sandbox, key.expose(), &kept.certificate);
    authority.map(Some).map_err(|error| {
        Error::new(Code::StateFailed, format!("the authority of sandbox `{sandbox}`"))
            .with_source(error)
    })
}

/// Removes what was on the host for a sandbox that is gone.
pub(crate) fn forget(inner: &Inner, sandbox: &SandboxId) {
    let path = inner.directory.trust(sandbox);
    if let Err(error) = fs::remove_dir_all(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%error, path = %path.display(), "a directory was left behind");
    }
}

/// Removes what sandboxes left that ended while nobody looked.
pub(crate) async fn prune(inner: &Inner) -> Result<()> {
    let Ok(entries) = fs::read_dir(inner.directory.root().join("trust")) else { return Ok(()) };
    let live = inner.store.sandboxes(Which::Live).await?;
    for name in entries.flatten().map(|entry| entry.file_name()) {
        let id = name.to_str().and_then(|name| SandboxId::parse(name).ok());
        if let Some(id) = id.filter(|id| !live.iter().any(|record| record.id == *id)) {
            forget(inner, &id);
        }
    }
    Ok(())
}

fn write(directory: &Path, trust: &Trust) -> io::Result<Vec<ResolvedMount>> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let bundle = directory.join(TRUST_BUNDLE);
    for (path, content) in
        [(&bundle, &trust.bundle), (&directory.join(TRUST_CERTIFICATE), &trust.certificate)]
    {
        fs::write(path, content)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    }
    let mut mounts = vec![mount(directory, TRUST_DIRECTORY)?];
    for target in &trust.covers {
        mounts.push(mount(&bundle, target)?);
    }
    Ok(mounts)
}

fn mount(source: &Path, target: &str) -> io::Result<ResolvedMount> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let descriptor = rustix::fs::open(source, flags, Mode::empty())?;
    Ok(ResolvedMount {
        source: MountSource { path: source.to_owned(), descriptor },
        target: PathBuf::from(target),
        access: Access::ReadOnly,
        overlay: false,
    })
}

/// Looks at a file of the root that a sandbox will have, and at nothing outside of it.
fn look(root: &RootSource, path: &'static str) -> RootFile {
    match root {
        RootSource::Host => {
            let found = look_below(&open_root("/"), path);
            // Only these are in a root that is made from the host.
            match found {
                RootFile::Regular(content)
                    if !path.starts_with("/etc/ssl/certs/") && !path.starts_with("/etc/pki/") =>
                {
                    RootFile::Link(Some(content))
                }
                found => found,
            }
        }
        RootSource::Directory { descriptor, .. } => look_below(&descriptor.try_clone().ok(), path),
        // Its files are the engine's. Programs find the authority by their environment.
        RootSource::Image { .. } => RootFile::Missing,
    }
}

fn open_root(path: &str) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn look_below(root: &Option<OwnedFd>, path: &str) -> RootFile {
    let Some(root) = root else { return RootFile::Missing };
    let open = |flags: ResolveFlags| {
        let how = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat2(root, path, how, Mode::empty(), flags).ok()
    };
    let read = |file: OwnedFd| {
        let mut file = fs::File::from(file);
        let metadata = file.metadata().ok()?;
        let mut content = Vec::new();
        if !metadata.is_file() || metadata.len() > MAX_BUNDLE {
            return None;
        }
        io::Read::read_to_end(&mut file, &mut content).ok()?;
        Some(content)
    };
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    if let Some(content) = open(inside | ResolveFlags::NO_SYMLINKS).and_then(read) {
        return RootFile::Regular(content);
    }
    match open(inside) {
        Some(file) => RootFile::Link(read(file)),
        None => RootFile::Missing,
    }
}
