//! Links, addresses, routes, packet filters and the table of sockets, asked for over netlink.
//!
//! A few messages, written by hand: the libraries for this are asynchronous, or call programs that a host may not have.
//! A [`Socket`] stays with the network namespace in which it was made, wherever its owner goes.

mod message;
pub mod nftables;
pub mod route;
pub mod sockets;

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

pub(crate) use message::Message;

const NLMSG_ERROR: u16 = 2;
/// The header, and the number that an answer begins with: zero for success, otherwise a negative error.
const HEADER: usize = 16;
const ANSWER: usize = HEADER + 4;

/// A conversation with the kernel about one network namespace.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// For links, addresses, routes and neighbours.
    pub fn route() -> io::Result<Self> {
        Self::open(None) // number zero
    }

    /// For packet filters.
    pub fn netfilter() -> io::Result<Self> {
        Self::open(Some(rustix::net::netlink::NETFILTER))
    }

    fn open(protocol: Option<rustix::net::Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        connect(&descriptor, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { descriptor, sequence: 0 })
    }

    /// Sends all messages at once and waits for the answer to each that asks for one. The first error is the result.
    pub(crate) fn ask(&mut self, messages: &[Message]) -> io::Result<()> {
        self.ask_for(messages, |_| ())
    }

    /// The same, and shows the bodies of what comes besides.
    pub(crate) fn ask_for(
        &mut self,
        messages: &[Message],
        mut told: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(4096);
        let mut awaited = 0;
        for message in messages {
            self.sequence = self.sequence.wrapping_add(1);
            message.write(self.sequence, &mut bytes);
            awaited += usize::from(message.is_answered());
        }
        send(&self.descriptor, &bytes, SendFlags::empty())?;
        let mut result = Ok(());
        let mut buffer = vec![0; 32 * 1024];
        while awaited > 0 {
            let (length, _) = recv(&self.descriptor, buffer.as_mut_slice(), RecvFlags::empty())?;
            for answer in Answers(&buffer[..length]) {
                // What comes late, after an earlier failure, is not about this.
                if answer.sequence.wrapping_sub(first) >= messages.len() as u32 {
                    continue;
                }
                let Ok(errno) = answer.outcome else {
                    told(answer.body);
                    continue;
                };
                awaited = awaited.saturating_sub(1);
                if errno != 0 && result.is_ok() {
                    result = Err(io::Error::from_raw_os_error(errno));
                    // Whoever refuses a batch as a whole does not answer what else is in it.
                    if messages.iter().any(|message| !message.is_answered()) {
                        return result;
                    }
                }
            }
        }
        result
    }
}

struct Answer<'a> {
    sequence: u32,
    /// The end of a request, as an error number; `Err` for everything else that is told.
    outcome: Result<i32, ()>,
    body: &'a [u8],
}

struct Answers<'a>(&'a [u8]);

impl<'a> Iterator for Answers<'a> {
    type Item = Answer<'a>;

    fn next(&mut self) -> Option<Answer<'a>> {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
        let length = number(self.0.get(..4)?)? as usize;
        let message = self.0.get(..length.max(HEADER))?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        let outcome = if u16::from_ne_bytes([message[4], message[5]]) == NLMSG_ERROR {
            Ok(-(number(message.get(HEADER..ANSWER)?)? as i32))
        } else {
            Err(())
        };
        Some(Answer { sequence: number(message.get(8..12)?)?, outcome, body: &message[HEADER..] })
    }
}
