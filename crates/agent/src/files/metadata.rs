//! What is known about a path.

use std::os::fd::AsFd;

use belljar_protocol::v1::{Kind, Metadata, Stat as StatRequest};
use rustix::fs::{AtFlags, CWD, FileType, Stat, readlinkat, statat};
use rustix::io::Errno;

use crate::failure::{Problem, Result};

pub(super) fn stat(request: &StatRequest) -> Result<Metadata> {
    let path = request.path.as_slice();
    let flags = if request.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let stat = statat(CWD, path, flags).map_err(|errno| Problem::file("stat", path, errno))?;
    Ok(describe(CWD, path, path, &stat))
}

/// Puts a description together; `name` is the path as it is called from `directory`, `shown` as the host knows it.
#[allow(clippy::useless_conversion)] // Fields of `stat` have other types on other architectures.
pub(super) fn describe(directory: impl AsFd, name: &[u8], shown: &[u8], stat: &Stat) -> Metadata {
    let kind = kind(stat);
    let link_target = match kind {
        // It may have changed since; then there is no target to tell.
        Kind::Symlink => readlinkat(directory, name, Vec::new()).ok(),
        _ => None,
    };
    Metadata {
        path: shown.to_vec(),
        kind: kind.into(),
        size: stat.st_size.try_into().unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_ns: modified(stat),
        link_target: link_target.map(|target| target.into_bytes()).unwrap_or_default(),
        opaque: false,
        device: stat.st_dev,
        inode: stat.st_ino,
        links: stat.st_nlink.into(),
    }
}

/// Like `describe`, for a name in a directory; `None` if it has gone.
pub(super) fn describe_entry(
    directory: impl AsFd,
    name: &[u8],
    shown: &[u8],
) -> Result<Option<(Metadata, Stat)>> {
    match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((describe(&directory, name, shown, &stat), stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Problem::file("stat", shown, errno)),
    }
}

fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharacterDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => Kind::File,
    }
}

fn modified(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    #[allow(clippy::useless_conversion)] // The field's type differs between architectures.
    i64::try_from(stat.st_mtime)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}
