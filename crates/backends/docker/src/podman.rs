//! What Podman's socket takes otherwise than Docker's, or not at all, and what is done about it.
//!
//! - The system call table is a file on its own host, told by name.
//! - It knows neither owner nor number of files of a directory in memory. Both are set from here after the start, before the
//!   agent is told anything, and looked at afterwards.
//! - What of `/proc` and `/sys` is hidden is a security option; what Docker has for it is passed over in silence.
//! - A read-only container gets `/run` and `/var/tmp` to write to, and this host's own `/etc/hosts`.
//!
//! All of it needs a Podman on this host whose containers have this host's users; any other is refused.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use belljar_backend::{Error, IsolationClass, Result};
use belljar_codes::Code;
use belljar_machinery::names;
use belljar_machinery::seccomp;
use belljar_machinery::skeleton::Skeleton;
use belljar_sys::mount::reconfigure;
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, StatVfsMountFlags, Uid, fchown};

use crate::container::MASKED;
use crate::daemon::{Facts, class};
use crate::failure::refused;
use crate::memory::Directory;

/// The file with the system call table.
const PROFILE: &str = "seccomp.json";
/// What it would give a read-only container to write to, with the usual modes.
const OPENED: [(&str, &str); 2] = [("/run", "0755"), ("/var/tmp", "1777")];

/// Whether everything can be kept there.
pub(crate) fn check(facts: &Facts) -> Result<()> {
    let own_kernel = class(facts.usual_runtime.as_deref()) != IsolationClass::Namespace;
    if !facts.podman || (facts.near && !facts.own_ids && !own_kernel) {
        return Ok(());
    }
    Err(refused(
        "Podman",
        "it knows neither owner nor number of files of a directory in memory, and these can be set from outside only by root, \
        on its own host, where containers have the host's users and kernel",
        "use the socket of root's Podman on this host with runc or crun, or Docker",
    ))
}

/// What the kernel is to keep a container from. The profile is written once.
pub(crate) fn security(templates: &Path) -> io::Result<Vec<String>> {
    let mut skeleton = Skeleton::default();
    skeleton.file(PROFILE, seccomp::profile().to_string());
    let directory = skeleton.build(templates, "podman-seccomp", true)?;
    Ok(vec![
        "no-new-privileges".to_owned(),
        format!("seccomp={}", directory.join(PROFILE).display()),
        format!("mask={}", MASKED.join(":")),
    ])
}

/// Options of a directory in memory. Unasked it would begin as a copy of the image's.
pub(crate) fn with_what_it_knows(options: &str) -> String {
    format!("{options},notmpcopyup")
}

/// What it opens unasked, with what the image has there; closed once it is there.
pub(crate) fn opened() -> impl Iterator<Item = (String, String)> {
    let told = |(path, mode): (&str, &str)| {
        (path.to_owned(), format!("rw,exec,nosuid,nodev,mode={mode},tmpcopyup"))
    };
    OPENED.into_iter().map(told)
}

/// The files by which programs find names, which it would fill with this host's.
pub(crate) fn names(templates: &Path, network: bool) -> io::Result<[(PathBuf, &'static str); 2]> {
    let mut skeleton = Skeleton::default();
    skeleton.directory("etc");
    names::files(&mut skeleton, network);
    let directory = skeleton.build(templates, "podman-names", true)?;
    Ok(["etc/hosts", "etc/resolv.conf"].map(|file| (directory.join(file), file)))
}

/// Gives directories in memory their owners and limits, and closes what was opened unasked. `root`: the container's root
/// directory, in which nothing has run yet but the agent.
pub(crate) fn complete(root: &OwnedFd, directories: &[Directory]) -> Result<()> {
    let failed = |path: &str, error: io::Error| {
        let message = format!("`{path}` cannot be limited in Podman's container");
        Error::new(Code::StartFailed, message)
            .with_source(error)
            .with_remedy("run as root on the engine's own host, or use Docker")
    };
    let mut completed = HashSet::new();
    for directory in directories {
        let device = limit(root, directory).map_err(|error| failed(&directory.path, error))?;
        completed.insert(device);
    }
    for (path, _) in OPENED {
        close(root, path, &completed).map_err(|error| failed(path, error))?;
    }
    Ok(())
}

fn open(root: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// Gives the number by which the kernel knows this file system.
fn limit(root: &OwnedFd, directory: &Directory) -> io::Result<u64> {
    let place = open(root, &directory.path)?;
    let number = |number: u64| CString::new(number.to_string());
    let (bytes, inodes) = (number(directory.bytes)?, number(directory.inodes)?);
    // Of nothing but a mount of its own: where the engine has not made one, this fails.
    reconfigure(place.as_fd(), &[(c"size", Some(&bytes)), (c"nr_inodes", Some(&inodes))])?;
    let (owner, group) = (Uid::from_raw(directory.owner), Gid::from_raw(directory.group));
    fchown(&place, Some(owner), Some(group))?;
    let found = rustix::fs::fstatfs(&place)?;
    let page = u64::try_from(found.f_bsize).unwrap_or(u64::MAX).max(1);
    let is_so = found.f_files == directory.inodes
        && found.f_blocks.saturating_mul(page) <= directory.bytes.next_multiple_of(page);
    if !is_so {
        return Err(io::Error::other("the kernel has other limits for it"));
    }
    Ok(rustix::fs::fstat(&place)?.st_dev)
}

/// `completed`: directories that are the workload's own. One of them may be there by another name.
fn close(root: &OwnedFd, path: &str, completed: &HashSet<u64>) -> io::Result<()> {
    let place = open(root, path)?;
    if completed.contains(&rustix::fs::fstat(&place)?.st_dev) {
        return Ok(());
    }
    reconfigure(place.as_fd(), &[(c"ro", None)])?;
    let flags = rustix::fs::fstatvfs(&place)?.f_flag;
    match flags.contains(StatVfsMountFlags::RDONLY) {
        true => Ok(()),
        false => Err(io::Error::other("the kernel has not closed it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_everything_can_be_kept() {
        let here = Facts { podman: true, near: true, ..Facts::default() };
        assert!(check(&here).is_ok());
        let elsewhere = Facts { near: false, ..here.clone() };
        let rootless = Facts { own_ids: true, ..here.clone() };
        let gvisor = Facts { usual_runtime: Some("runsc".to_owned()), ..here };
        for facts in [elsewhere, rootless, gvisor] {
            assert_eq!(check(&facts).map_err(|error| error.code), Err(Code::NotEnforceable));
            assert!(check(&Facts { podman: false, ..facts }).is_ok());
        }
    }
}
