//! A tenant's own storage: directories below the state directory that outlive sandboxes.
//!
//! Several sandboxes of a tenant may use the same volume at the same time. A volume is a directory of the host's file
//! system, so its size is not limited by the sandbox's disk; the sandbox's rules say so.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use belljar_backend::{Enforcement, MountSource, ResolvedMount, Subject};
use belljar_codes::Code;
use belljar_policy::mounts::check_target;
use belljar_policy::{Access, SandboxName, TenantId};

use crate::engine::Inner;
use crate::mounts::open_directory;
use crate::{Error, Result};

/// Where a volume appears inside unless the caller says otherwise.
pub const DEFAULT_VOLUME_TARGET: &str = "/storage";

/// Volumes of one tenant: they outlive its sandboxes.
const MAX_VOLUMES: usize = 1000;

/// A volume that a sandbox is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// Names of volumes follow the rules for names of sandboxes.
    pub name: SandboxName,
    pub target: PathBuf,
}

/// The mount that shows the volume; its directory is made where it is missing.
pub(crate) fn resolve(
    inner: &Inner,
    tenant: &TenantId,
    request: &VolumeRequest,
    others: &[ResolvedMount],
) -> Result<ResolvedMount> {
    let target = check_target(&request.target)?;
    if others.iter().any(|mount| mount.target == target) {
        let shown = target.display();
        return Err(Error::new(
            Code::MountTargetInvalid,
            format!("the volume and a mount have the target `{shown}`"),
        )
        .with_remedy("give each a place of its own"));
    }
    let volumes = directory(inner, tenant);
    let path = volumes.join(request.name.as_str());
    if !path.exists() && count(&volumes)? >= MAX_VOLUMES {
        return Err(Error::new(
            Code::QuotaExceeded,
            format!("tenant `{tenant}` has {MAX_VOLUMES} volumes already"),
        )
        .with_remedy(
            "use one that is there; the operator can remove them from the state directory",
        ));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .map_err(|source| Error::state("make", &path, source))?;
    let opened = open_directory(&path, Access::ReadWrite)?;
    Ok(ResolvedMount {
        source: MountSource { path: opened.path, descriptor: opened.descriptor },
        target,
        access: Access::ReadWrite,
        overlay: false,
    })
}

fn count(volumes: &Path) -> Result<usize> {
    match std::fs::read_dir(volumes) {
        Ok(entries) => Ok(entries.count()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::state("list", volumes, error)),
    }
}

/// What holds for a volume.
pub(crate) fn rule(request: &VolumeRequest) -> Enforcement {
    Enforcement {
        subject: Subject::Disk,
        rule: format!("volume `{}` at `{}`", request.name.as_str(), request.target.display()),
        mechanism: "a directory of the host: its size is not limited".to_owned(),
        full: false,
    }
}

/// Removes everything that a tenant has stored.
pub(crate) fn remove_all(inner: &Inner, tenant: &TenantId) -> Result<()> {
    let path = directory(inner, tenant);
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::state("remove", &path, error))
        }
        _ => Ok(()),
    }
}

/// A tenant's name is a DNS label, so it is a name of a directory and nothing else.
fn directory(inner: &Inner, tenant: &TenantId) -> PathBuf {
    let volumes: &Path = &inner.directory.root().join("volumes");
    volumes.join(tenant.as_str())
}
