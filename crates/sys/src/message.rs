//! Messages with descriptors over a sequenced-packet socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The kernel passes at most this many descriptors with one message (SCM_MAX_FD).
pub const MAX_DESCRIPTORS: usize = 253;
/// The largest message that is sent or accepted.
pub const MAX_MESSAGE: usize = 128 * 1024;

/// Two connected ends. Neither is inherited across `exec`.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. Blocks, or fails with `WouldBlock`, as the socket is set.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.len() > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message into `buffer`; returns its length (0: the other end is closed) and its descriptors.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let received = recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_descriptors_arrive_together() {
        let (left, right) = pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send(&left, b"hello", &[writer.as_fd()]).unwrap();
        drop(writer);
        let mut buffer = [0; 64];
        let (length, descriptors) = receive(&right, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"hello");
        assert_eq!(descriptors.len(), 1);
        rustix::io::write(&descriptors[0], b"through").unwrap();
        let length = rustix::io::read(&reader, &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..length], b"through");
        drop(left);
        assert_eq!(receive(&right, &mut buffer).unwrap().0, 0);
    }

    #[test]
    fn what_does_not_fit_is_an_error_not_a_cut() {
        let (left, right) = pair().unwrap();
        send(&left, &[7; 100], &[]).unwrap();
        let mut buffer = [0; 10];
        assert_eq!(receive(&right, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
