//! Host directories for a sandbox: opened once, checked by what was opened, kept as descriptors.
//!
//! The kernel resolves the caller's path while opening; the check looks at the real path of the descriptor that came
//! out of it. A symbolic link that is changed afterwards changes nothing, because nobody follows the name again.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use belljar_backend::{MountSource, ResolvedMount};
use belljar_codes::Code;
use belljar_policy::mounts::{WORKSPACE_TARGET, check_target, protected_source};
use belljar_policy::{Access, MountSpec, WorkspaceMode};
use rustix::fs::{AtFlags, Mode, OFlags, accessat, fstat, open};

use crate::{Error, Result, WorkspaceRequest};

/// More mounts than this is a mistake; each costs system calls at every start.
const MAX_MOUNTS: usize = 64;

/// Directories that no sandbox may see, beside those that `policy` knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protected<'a> {
    pub(crate) home: Option<&'a Path>,
    pub(crate) state: &'a Path,
}

/// A directory that was opened and found usable.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    /// What the descriptor really is.
    pub(crate) path: PathBuf,
    pub(crate) descriptor: OwnedFd,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Opens the workspace and all mounts.
pub(crate) fn resolve(
    workspace: Option<&WorkspaceRequest>,
    mounts: &[MountSpec],
    protected: Protected<'_>,
) -> Result<(Option<OpenDirectory>, Vec<ResolvedMount>)> {
    if mounts.len() > MAX_MOUNTS {
        let count = mounts.len();
        return Err(Error::new(
            Code::InvalidArgument,
            format!("{count} mounts are more than {MAX_MOUNTS}"),
        )
        .with_remedy("mount a directory that contains them"));
    }
    let mut resolved = Vec::with_capacity(mounts.len() + 1);
    let mut targets = Vec::with_capacity(mounts.len() + 1);
    let mut workspace_directory = None;
    if let Some(workspace) = workspace {
        let access = workspace.mode.access();
        // An overlay never writes to the directory, so reading is all it takes.
        let needed = match workspace.mode {
            WorkspaceMode::Bind => Access::ReadWrite,
            WorkspaceMode::BindReadOnly | WorkspaceMode::Overlay => Access::ReadOnly,
        };
        let directory = open_checked(&workspace.path, needed, protected)?;
        resolved.push(ResolvedMount {
            source: MountSource {
                path: directory.path.clone(),
                descriptor: duplicate(&directory.descriptor)?,
            },
            target: WORKSPACE_TARGET.into(),
            access,
            overlay: workspace.mode == WorkspaceMode::Overlay,
        });
        targets.push(PathBuf::from(WORKSPACE_TARGET));
        workspace_directory = Some(directory);
    }
    for mount in mounts {
        let target = check_target(&mount.target)?;
        if targets.contains(&target) {
            let shown = target.display();
            return Err(Error::new(
                Code::MountTargetInvalid,
                format!("two mounts have the target `{shown}`"),
            )
            .with_remedy("give each mount a place of its own"));
        }
        let directory = open_checked(&mount.source, mount.access, protected)?;
        let OpenDirectory { path, descriptor, .. } = directory;
        targets.push(target.clone());
        resolved.push(ResolvedMount {
            source: MountSource { path, descriptor },
            target,
            access: mount.access,
            overlay: false,
        });
    }
    Ok((workspace_directory, resolved))
}

/// Opens a directory that a sandbox may see.
pub(crate) fn open_checked(
    path: &Path,
    access: Access,
    protected: Protected<'_>,
) -> Result<OpenDirectory> {
    let directory = open_directory(path, access)?;
    if let Some(reason) = protected_source(&directory.path, protected.home, &[protected.state]) {
        return Err(Error::new(
            Code::MountSourceProtected,
            format!(
                "`{}` cannot be shown to a sandbox because it {reason}",
                directory.path.display()
            ),
        )
        .with_remedy("choose a directory that holds only what the sandbox needs"));
    }
    Ok(directory)
}

/// Opens a directory and finds out what it really is. Follows symbolic links, once, in the kernel.
pub(crate) fn open_directory(path: &Path, access: Access) -> Result<OpenDirectory> {
    let unusable = |reason: &str, errno: rustix::io::Errno| {
        Error::new(
            Code::MountSourceUnusable,
            format!("`{}` {reason}", belljar_policy::shown(&path.to_string_lossy())),
        )
        .with_remedy("name a directory that exists and that you may read")
        .with_source(std::io::Error::from(errno))
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = open(path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::NOENT => unusable("does not exist", errno),
        rustix::io::Errno::NOTDIR => unusable("is not a directory", errno),
        rustix::io::Errno::ACCESS => unusable("cannot be reached", errno),
        _ => unusable("cannot be opened", errno),
    })?;
    let stat = fstat(&descriptor).map_err(|errno| unusable("cannot be looked at", errno))?;
    let mut rights = rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK;
    if access == Access::ReadWrite {
        rights |= rustix::fs::Access::WRITE_OK;
    }
    // Through the magic link of the descriptor, so that the directory that was opened is the one that is asked.
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor));
    accessat(rustix::fs::CWD, link.as_str(), rights, AtFlags::EACCESS).map_err(|errno| {
        match (access, errno) {
            (Access::ReadWrite, rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS) => {
                unusable("is not readable and writable for you", errno)
                    .with_remedy("grant access, or add `:ro`")
            }
            _ => unusable("is not readable for you", errno),
        }
    })?;
    let real = std::fs::read_link(&link).map_err(|source| {
        Error::new(Code::HostUnsupported, "resolve a directory through /proc").with_source(source)
    })?;
    Ok(OpenDirectory { path: real, descriptor, device: stat.st_dev, inode: stat.st_ino })
}

fn duplicate(descriptor: &OwnedFd) -> Result<OwnedFd> {
    descriptor.try_clone().map_err(|source| {
        Error::new(Code::HostExhausted, "duplicate a descriptor").with_source(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(path: &Path, home: Option<&Path>, state: &Path) -> Option<Code> {
        let protected = Protected { home, state };
        open_checked(path, Access::ReadOnly, protected).err().map(|error| error.code())
    }

    #[test]
    fn sources_are_judged_by_where_they_lead() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let state = root.join("state");
        std::fs::create_dir_all(state.join("sandboxes")).unwrap();
        std::fs::create_dir(root.join("plain")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link-to-etc")).unwrap();
        std::os::unix::fs::symlink(root.join("plain"), root.join("link")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();

        let check = |name: &str, expected: Option<Code>| {
            assert_eq!(code(&root.join(name), None, &state), expected, "{name}");
        };
        check("plain", None);
        check("link", None);
        check("link-to-etc", Some(Code::MountSourceProtected));
        check("state", Some(Code::MountSourceProtected));
        check("state/sandboxes", Some(Code::MountSourceProtected));
        check("", Some(Code::MountSourceProtected));
        check("file", Some(Code::MountSourceUnusable));
        check("missing", Some(Code::MountSourceUnusable));
        check("loop", Some(Code::MountSourceUnusable));
        assert_eq!(
            code(Path::new("/proc/self/fd/999999"), None, &state),
            Some(Code::MountSourceUnusable)
        );
    }

    #[test]
    fn the_descriptor_outlives_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let good = directory.path().join("good");
        let link = directory.path().join("link");
        std::fs::create_dir(&good).unwrap();
        std::os::unix::fs::symlink(&good, &link).unwrap();
        let protected = Protected { home: None, state: Path::new("/nonexistent/state") };
        let opened = open_checked(&link, Access::ReadWrite, protected).unwrap();
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        assert_eq!(opened.path, good.canonicalize().unwrap());
        assert_eq!(opened.inode, fstat(&opened.descriptor).unwrap().st_ino);
    }

    #[test]
    fn targets_are_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let mount = |target: &str| MountSpec {
            source: directory.path().to_owned(),
            target: target.into(),
            access: Access::ReadOnly,
        };
        let protected = Protected { home: None, state: Path::new("/nonexistent/state") };
        let resolve = |mounts: &[MountSpec]| {
            let workspace = WorkspaceRequest {
                path: directory.path().to_owned(),
                mode: WorkspaceMode::Overlay,
            };
            resolve(Some(&workspace), mounts, protected).map_err(|error| error.code())
        };
        let (workspace, mounts) = resolve(&[mount("/data"), mount("/more")]).unwrap();
        assert!(workspace.is_some());
        assert_eq!(mounts.len(), 3);
        assert!(mounts[0].overlay);
        let twice = [mount("/data"), mount("//data/")];
        assert_eq!(resolve(&twice).unwrap_err(), Code::MountTargetInvalid);
        assert_eq!(resolve(&[mount("/workspace")]).unwrap_err(), Code::MountTargetInvalid);
        let many = vec![mount("/data"); MAX_MOUNTS + 1];
        assert_eq!(resolve(&many).unwrap_err(), Code::InvalidArgument);
    }
}
