//! Reading a regular file, or a range of it.

use std::os::fd::OwnedFd;

use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::{Data, Done, ReadFile, frame::Body};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use super::worker::Channel;
use crate::failure::{Problem, Result};

/// Opening must never wait for a writer, make a terminal ours, or start a device.
pub(super) const CAREFULLY: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

pub(super) fn read(channel: &mut Channel<'_>, request: &ReadFile) -> Result<Body> {
    let path = request.path.as_slice();
    let file = rustix::fs::open(path, OFlags::RDONLY | CAREFULLY, Mode::empty())
        .map_err(|errno| Problem::file("open", path, errno))?;
    send(channel, &file, request)
}

/// Sends the asked-for range of an open file.
pub(super) fn send(channel: &mut Channel<'_>, file: &OwnedFd, request: &ReadFile) -> Result<Body> {
    let path = request.path.as_slice();
    let size = require_regular(file, path)?;
    let end = match request.length {
        // Files of the kernel have contents but no size.
        0 if size == 0 => u64::MAX,
        // A file that grows as fast as it is read has an end all the same.
        0 => size.max(request.offset),
        length => request.offset.saturating_add(length),
    };
    let mut offset = request.offset;
    let mut buffer = vec![0; MAX_CHUNK];
    loop {
        let wanted = usize::try_from(end - offset).unwrap_or(MAX_CHUNK).min(MAX_CHUNK);
        let size = match rustix::io::pread(file, &mut buffer[..wanted], offset) {
            Ok(size) => size,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(Problem::file("read", path, errno)),
        };
        offset += size as u64;
        let end = size == 0 || offset == end;
        let data = buffer.get(..size).unwrap_or_default().to_vec();
        channel.send(Body::Data(Data { data, end }))?;
        if end {
            return Ok(Body::Done(Done { size: offset - request.offset }));
        }
    }
}

/// Contents are only read from and written to regular files: a pipe could wait for ever, a device do anything.
pub(super) fn require_regular(file: &OwnedFd, path: &[u8]) -> Result<u64> {
    let stat = fstat(file).map_err(|errno| Problem::file("stat", path, errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat.st_size.try_into().unwrap_or(0)),
        FileType::Directory => Err(Problem::file("open", path, Errno::ISDIR)),
        _ => Err(Problem::new("not-a-file", "only regular files have contents")
            .at("open")
            .about(path)),
    }
}
