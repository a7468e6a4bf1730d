//! Files and directories of this host that a container shows.
//!
//! The engine takes names, while what was asked for are descriptors. So names are what the descriptors really have, and after
//! the start the container's own view is compared with the descriptors, before the agent is told anything: if a name led
//! elsewhere meanwhile, the sandbox does not come to be.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_backend::{Error, ResolvedMount, Result, RootSource, SandboxSpec, UserIds};
use belljar_codes::Code;
use belljar_machinery::host::HostRoot;
use belljar_machinery::host_path::HostPath;
use belljar_machinery::{masks, programs, tools};
use belljar_policy::{Access, NetworkMode};
use belljar_sys::mount::file_identity;
use bollard::models::{Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::{agent, podman};

/// One of them.
#[derive(Debug)]
pub(crate) struct Bind {
    source: HostPath,
    /// Absolute, inside.
    target: PathBuf,
    read_only: bool,
}

fn state_failed(error: io::Error) -> Error {
    Error::new(Code::StateFailed, "a template directory cannot be made").with_source(error)
}

/// Everything that the container of `spec` shows, in the order of mounting. `host`: what a root of this host consists of. `podman`:
/// whether the engine is that.
pub(crate) fn of(
    spec: &SandboxSpec,
    host: Option<&HostRoot>,
    search_path: &[String],
    templates: &Path,
    podman: bool,
) -> Result<Vec<Bind>> {
    let mut binds = Vec::new();
    let mut bind = |source: HostPath, target: &Path| {
        binds.push(Bind { source, target: Path::new("/").join(target), read_only: true });
    };
    for (source, target) in host.map(|host| host.binds.as_slice()).unwrap_or_default() {
        bind(source.clone(), Path::new(target));
    }
    for cover in &spec.covers {
        let copy = cover.source.descriptor.try_clone().map_err(state_failed)?;
        bind(HostPath::of(copy, &cover.source.path), &cover.target);
    }
    let open = |path: &Path| HostPath::open(path).map_err(state_failed);
    if podman {
        let network = spec.network != NetworkMode::None;
        for (file, target) in podman::names(templates, network).map_err(state_failed)? {
            bind(open(&file)?, Path::new(target));
        }
    }
    for cover in covers(spec, search_path, templates)? {
        bind(open(&cover.directory)?, Path::new(&cover.target));
        for (program, target) in cover.programs {
            bind(open(&program)?, Path::new(&target));
        }
    }
    if spec.tools {
        let directory = tools::directory(templates, belljar_agent_image::AGENT, true);
        bind(open(&directory.map_err(state_failed)?)?, Path::new(tools::TARGET));
    }
    bind(open(&agent::directory(templates).map_err(state_failed)?)?, Path::new(agent::DIRECTORY));
    for mount in &spec.mounts {
        check_writable(mount, spec.user)?;
        let copy = mount.source.descriptor.try_clone().map_err(state_failed)?;
        binds.push(Bind {
            source: HostPath::of(copy, &mount.source.path),
            target: mount.target.clone(),
            read_only: mount.access == Access::ReadOnly,
        });
    }
    for mask in &spec.masks {
        let empty = masks::source(templates, mask.kind, true).map_err(state_failed)?;
        binds.push(Bind { source: open(&empty)?, target: mask.target.clone(), read_only: true });
    }
    Ok(binds)
}

/// A container has the host's own users, so a directory that is to be written must be writable for its user there.
fn check_writable(mount: &ResolvedMount, user: UserIds) -> Result<()> {
    if mount.access == Access::ReadOnly {
        return Ok(());
    }
    let stat = rustix::fs::fstat(&mount.source.descriptor)
        .map_err(|errno| state_failed(io::Error::from(errno)))?;
    let bits = match (stat.st_uid == user.uid, stat.st_gid == user.gid) {
        (true, _) => 0o300,
        (false, true) => 0o030,
        (false, false) => 0o003,
    };
    if stat.st_mode & bits == bits || has_more_rules(&mount.source.descriptor) {
        return Ok(());
    }
    let path = mount.source.path.display();
    let message = format!("`{path}` is not writable for user {}", user.uid);
    Err(Error::new(Code::MountSourceUnusable, message).with_remedy(format!(
        "containers have the host's own users: give it to user {}, name its owner with `--user`, or mount it read-only",
        user.uid
    )))
}

/// Whether an access list says more than the mode does.
fn has_more_rules(descriptor: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 0][..]).is_ok()
}

fn covers(
    spec: &SandboxSpec,
    search_path: &[String],
    templates: &Path,
) -> Result<Vec<programs::Cover>> {
    // Programs of any other root are limited by a layer of its image.
    let (Some(listed), RootSource::Host) = (&spec.programs, &spec.root) else {
        return Ok(Vec::new());
    };
    let base = Path::new("/");
    programs::covers(base, search_path, listed, templates, belljar_agent_image::AGENT, true)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::new(
                Code::ProgramNotFound,
                format!("program `{error}` of `--programs` is not in the template"),
            )
            .with_remedy("name programs as they are found in the template's PATH"),
            _ => state_failed(error),
        })
}

impl Bind {
    /// As the engine is told.
    pub(crate) fn to_mount(&self) -> Result<Mount> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| {
                Error::new(
                    Code::MountSourceUnusable,
                    format!("`{}` is not UTF-8, which engines need", bytes.escape_ascii()),
                )
                .with_remedy("rename the directory")
            })
        };
        Ok(Mount {
            source: Some(text(&self.source.real)?),
            target: Some(text(self.target.as_os_str().as_bytes())?),
            typ: Some(MountType::BIND),
            read_only: Some(self.read_only),
            bind_options: Some(MountBindOptions {
                propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
                // What is mounted below would not become read-only with it.
                non_recursive: Some(self.read_only),
                ..MountBindOptions::default()
            }),
            ..Mount::default()
        })
    }
}

/// The same where a container's files cannot be looked at, because another kernel has them: the names must lead to what was
/// meant before and after the start.
pub(crate) fn verify_names(binds: &[Bind]) -> Result<()> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| state_failed(errno.into()))?;
    let compare =
        |bind: &Bind| compare(&root, Path::new(OsStr::from_bytes(&bind.source.real)), bind);
    binds.iter().try_for_each(compare)
}

/// Compares what a container shows with what was meant. `root`: its root directory.
pub(crate) fn verify(root: &OwnedFd, binds: &[Bind]) -> Result<()> {
    binds.iter().try_for_each(|bind| compare(root, &bind.target, bind))
}

fn compare(root: &OwnedFd, path: &Path, bind: &Bind) -> Result<()> {
    let replaced = |error: Option<io::Error>| {
        let message = format!("`{}` is not what was to be mounted there", bind.target.display());
        let failure = Error::new(Code::MountSourceUnusable, message)
            .with_remedy("the directory was replaced while the sandbox started; try again");
        match error {
            Some(error) => failure.with_source(error),
            None => failure,
        }
    };
    let inside = rustix::fs::openat2(
        root,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(|errno| replaced(Some(errno.into())))?;
    let found = file_identity(&inside).map_err(|error| replaced(Some(error)))?;
    let meant = file_identity(&*bind.source.descriptor).map_err(|error| replaced(Some(error)))?;
    if found != meant {
        return Err(replaced(None));
    }
    Ok(())
}
