//! Writing a regular file with what the host sends.

use std::os::fd::OwnedFd;

use belljar_protocol::v1::{
    Acknowledge, Channel as Which, Data, Done, WriteFile, frame::Body, write_file,
};
use rustix::fs::{Mode, OFlags, ftruncate};
use rustix::io::Errno;

use super::change::make_parents;
use super::read::{CAREFULLY, require_regular};
use super::worker::Channel;
use crate::failure::{Problem, Result};

const DEFAULT_PERMISSIONS: u32 = 0o644;

pub(super) fn write(channel: &mut Channel<'_>, request: &WriteFile) -> Result<Body> {
    let path = request.path.as_slice();
    let file = open(request)?;
    require_regular(&file, path)?;
    if request.mode() == write_file::Mode::Truncate {
        ftruncate(&file, 0).map_err(|errno| Problem::file("truncate", path, errno))?;
    }
    let mut received = 0;
    loop {
        let Body::Data(Data { data, end }) = channel.receive()? else {
            return Err(Problem::new("invalid-argument", "only data can follow"));
        };
        write_all(&file, &data).map_err(|errno| Problem::file("write", path, errno))?;
        received += data.len() as u64;
        if end {
            return Ok(Body::Done(Done { size: require_regular(&file, path)? }));
        }
        let acknowledge = Acknowledge { channel: Which::Stdout.into(), offset: received };
        channel.send(Body::Acknowledge(acknowledge))?;
    }
}

fn open(request: &WriteFile) -> Result<OwnedFd> {
    let path = request.path.as_slice();
    if request.make_parents {
        make_parents(path)?;
    }
    // Truncating waits until it is known that this is a regular file.
    let how = match request.mode() {
        write_file::Mode::Truncate => OFlags::empty(),
        write_file::Mode::Append => OFlags::APPEND,
        write_file::Mode::CreateNew => OFlags::EXCL,
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | CAREFULLY | how;
    let permissions = match request.permissions {
        0 => DEFAULT_PERMISSIONS,
        permissions => permissions & 0o7777,
    };
    rustix::fs::open(path, flags, Mode::from_raw_mode(permissions))
        .map_err(|errno| Problem::file("open", path, errno))
}

pub(super) fn write_all(file: &OwnedFd, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::write(file, data) {
            Ok(size) => data = data.get(size..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
