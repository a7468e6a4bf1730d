//! The workspace layer: the upper directory of an overlay, read as it is on disk.
//!
//! Done with the agent's own rights on files that the workload made, so no name is ever followed: every path is resolved
//! beneath the layer's directory, without links of any kind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_protocol::v1::{
    Entries, Kind, List, Metadata, ReadFile, Stat as StatRequest, frame::Body,
};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, fgetxattr, fstat, openat2};
use rustix::io::Errno;

use super::list::{Look, list_open};
use super::metadata::{describe, describe_entry};
use super::read::{self, CAREFULLY};
use super::worker::Channel;
use crate::failure::{Problem, Result};

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Where overlayfs notes that a directory hides the one below: in a user namespace, and elsewhere.
const OPAQUE: [&str; 2] = ["user.overlay.opaque", "trusted.overlay.opaque"];

pub(super) fn read(
    channel: &mut Channel<'_>,
    layer: BorrowedFd<'_>,
    request: &ReadFile,
) -> Result<Body> {
    let file = open(layer, &request.path, OFlags::RDONLY | OFlags::NOFOLLOW | CAREFULLY)?;
    read::send(channel, &file, request)
}

pub(super) fn stat(layer: BorrowedFd<'_>, request: &StatRequest) -> Result<Metadata> {
    let path = request.path.as_slice();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(layer, path, flags)?;
    let stat = fstat(&file).map_err(|errno| Problem::file("stat", path, errno))?;
    let mut metadata = describe(&file, b"", path, &stat);
    add_overlay(&mut metadata, &stat, || open(layer, path, DIRECTORY))?;
    Ok(metadata)
}

pub(super) fn list(layer: BorrowedFd<'_>, request: &List) -> Result<Entries> {
    let directory = open(layer, &request.path, DIRECTORY)?;
    list_open(&directory, request, &AsLayer)
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(CAREFULLY);

struct AsLayer;

impl Look for AsLayer {
    fn entry(&self, directory: &OwnedFd, name: &[u8], shown: &[u8]) -> Result<Option<Metadata>> {
        let Some((mut metadata, stat)) = describe_entry(directory, name, shown)? else {
            return Ok(None);
        };
        add_overlay(&mut metadata, &stat, || open(directory.as_fd(), name, DIRECTORY))?;
        Ok(Some(metadata))
    }
}

/// What only an overlay's upper directory has: files that say "gone", and directories that say "nothing below".
fn add_overlay(
    metadata: &mut Metadata,
    stat: &Stat,
    open: impl FnOnce() -> Result<OwnedFd>,
) -> Result {
    if metadata.kind == i32::from(Kind::CharacterDevice) && stat.st_rdev == 0 {
        metadata.kind = Kind::Whiteout.into();
    }
    if metadata.kind == i32::from(Kind::Directory) {
        let directory = open()?;
        metadata.opaque = OPAQUE.iter().any(|name| {
            let mut value = [0; 2];
            matches!(fgetxattr(&directory, *name, &mut value), Ok(1)) && value[0] == b'y'
        });
    }
    Ok(())
}

fn open(directory: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    let relative = match path.iter().position(|&byte| byte != b'/') {
        Some(start) => path.get(start..).unwrap_or_default(),
        None => b".",
    };
    loop {
        match openat2(directory, relative, flags, Mode::empty(), BENEATH) {
            // The kernel could not tell whether something was moved out of the way meanwhile.
            Err(Errno::AGAIN) => {}
            other => return other.map_err(|errno| Problem::file("open", path, errno)),
        }
    }
}
