//! Mount objects made by a process that may make them, to be attached elsewhere.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
    open_tree,
};

use crate::uapi;

/// Clones the mount that a descriptor is in, from that directory down, without what is mounted below.
///
/// What is mounted there later stays there: a clone of a shared mount, as most hosts have them, would get it too.
pub fn clone_from(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(directory, c"", flags)?;
    let private =
        uapi::MountAttributes { propagation: libc::MS_PRIVATE, ..uapi::MountAttributes::default() };
    set_attributes(&tree, &private)?;
    Ok(tree)
}

/// Whether the file system behind a directory supports mounts with an id mapping. Needs the right to clone it.
pub fn supports_id_mapping(directory: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> bool {
    clone_from(directory).is_ok_and(|tree| map_ids(&tree, user_namespace).is_ok())
}

/// Gives a detached mount an id mapping.
pub fn map_ids(tree: &OwnedFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = uapi::MountAttributes {
        set: uapi::MOUNT_ATTR_IDMAP,
        namespace: user_namespace.as_raw_fd() as u64,
        ..uapi::MountAttributes::default()
    };
    set_attributes(tree, &attributes)
}

fn set_attributes(tree: &OwnedFd, attributes: &uapi::MountAttributes) -> io::Result<()> {
    // SAFETY: the structure is initialised, has the size that is passed, and the kernel copies it during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            ptr::from_ref(attributes),
            size_of::<uapi::MountAttributes>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Mounts a block device's file system, detached; the mount is nosuid and nodev.
pub fn device(
    kind: &CStr,
    device: &CStr,
    options: &[(&CStr, Option<&CStr>)],
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, c"source", device)?;
    set(&context, options)?;
    fsconfig_create(&context)?;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?)
}

/// Changes options of the file system whose root a descriptor is, in whichever namespace it is mounted.
pub fn reconfigure(root: BorrowedFd<'_>, options: &[(&CStr, Option<&CStr>)]) -> io::Result<()> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = fspick(root, c"", flags)?;
    set(&context, options)?;
    Ok(fsconfig_reconfigure(&context)?)
}

fn set(context: &OwnedFd, options: &[(&CStr, Option<&CStr>)]) -> io::Result<()> {
    for (key, value) in options {
        match value {
            Some(value) => fsconfig_set_string(context, *key, *value)?,
            None => fsconfig_set_flag(context, *key)?,
        }
    }
    Ok(())
}

/// The device and inode number by which a file is known again.
pub fn file_identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens a directory by path for use as a mount source, following links once, here.
pub fn open_directory(path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, openat};
    Ok(openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
