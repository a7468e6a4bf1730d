//! What the agent waits for: descriptors in one epoll, each with a token that says whose it is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io;

pub(crate) use epoll::EventFlags;

/// Whose descriptor has become ready. Numbers are never used twice, so an event that is late finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Listener,
    Signals,
    Service,
    Guest(u32),
    Connection(u32),
    Status(u32),
    Output(u32),
    Error(u32),
    Input(u32),
    Supervisor(u32),
    Tree(u32),
    Worker(u32),
    Tunnel(u32),
    Tools,
    Caller(u32),
}

/// An epoll instance.
#[derive(Clone, Debug)]
pub(crate) struct Poller {
    epoll: Rc<OwnedFd>,
}

/// A descriptor that can be waited for, and what for.
#[derive(Debug)]
pub(crate) struct Watched {
    descriptor: OwnedFd,
    token: Token,
    interest: EventFlags,
    poller: Poller,
}

/// Events taken from the kernel at once.
const BATCH: usize = 64;

/// Long waits are cut, because older kernels count them in milliseconds that fit an `int`.
const LONGEST: Duration = Duration::from_secs(3600);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?) })
    }

    /// Waits for events, at most as long as given; none at all means for ever.
    pub(crate) fn wait(
        &self,
        events: &mut Vec<(Token, EventFlags)>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let timeout = timeout.map(|timeout| {
            let timeout = timeout.min(LONGEST);
            Timespec {
                tv_sec: timeout.as_secs().cast_signed(),
                tv_nsec: timeout.subsec_nanos().into(),
            }
        });
        let nothing =
            epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut ready = [nothing; BATCH];
        events.clear();
        match epoll::wait(&*self.epoll, &mut ready[..], timeout.as_ref()) {
            Ok(count) => {
                let known = ready
                    .iter()
                    .take(count)
                    .filter_map(|event| Some((Token::from_number(event.data.u64())?, event.flags)));
                events.extend(known);
                Ok(())
            }
            Err(io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for a descriptor to become readable, for as long as the program runs.
    pub(crate) fn watch(&self, descriptor: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.number());
        epoll::add(&*self.epoll, descriptor, data, EventFlags::IN)
    }

    /// Takes a descriptor in, for the time being without interest in it.
    pub(crate) fn own(&self, descriptor: OwnedFd, token: Token) -> Watched {
        Watched { descriptor, token, interest: EventFlags::empty(), poller: self.clone() }
    }
}

impl Watched {
    /// Changes what is waited for; nothing at all takes the descriptor out of the epoll.
    pub(crate) fn set_interest(&mut self, interest: EventFlags) -> io::Result<()> {
        if interest == self.interest {
            return Ok(());
        }
        let epoll = &*self.poller.epoll;
        let data = epoll::EventData::new_u64(self.token.number());
        if self.interest.is_empty() {
            epoll::add(epoll, &self.descriptor, data, interest)?;
        } else if interest.is_empty() {
            epoll::delete(epoll, &self.descriptor)?;
        } else {
            epoll::modify(epoll, &self.descriptor, data, interest)?;
        }
        self.interest = interest;
        Ok(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Closing is not enough while a forked child still has a copy: the epoll would go on reporting it.
        let _ = self.set_interest(EventFlags::empty());
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Token {
    fn number(self) -> u64 {
        let (kind, id) = match self {
            Self::Listener => (0, 0),
            Self::Signals => (1, 0),
            Self::Service => (2, 0),
            Self::Guest(id) => (3, id),
            Self::Connection(id) => (4, id),
            Self::Status(id) => (5, id),
            Self::Output(id) => (6, id),
            Self::Error(id) => (7, id),
            Self::Input(id) => (8, id),
            Self::Supervisor(id) => (9, id),
            Self::Tree(id) => (10, id),
            Self::Worker(id) => (11, id),
            Self::Tunnel(id) => (12, id),
            Self::Tools => (13, 0),
            Self::Caller(id) => (14, id),
        };
        (kind << 32) | u64::from(id)
    }

    fn from_number(number: u64) -> Option<Self> {
        let id = number as u32;
        Some(match number >> 32 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Service,
            3 => Self::Guest(id),
            4 => Self::Connection(id),
            5 => Self::Status(id),
            6 => Self::Output(id),
            7 => Self::Error(id),
            8 => Self::Input(id),
            9 => Self::Supervisor(id),
            10 => Self::Tree(id),
            11 => Self::Worker(id),
            12 => Self::Tunnel(id),
            13 => Self::Tools,
            14 => Self::Caller(id),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let ids = [0, 1, u32::MAX];
        let kinds: [fn(u32) -> Token; 11] = [
            Token::Caller,
            Token::Guest,
            Token::Connection,
            Token::Status,
            Token::Output,
            Token::Error,
            Token::Input,
            Token::Supervisor,
            Token::Tree,
            Token::Worker,
            Token::Tunnel,
        ];
        let all = kinds.iter().flat_map(|kind| ids.map(kind));
        for token in all.chain([Token::Listener, Token::Signals, Token::Service, Token::Tools]) {
            assert_eq!(Token::from_number(token.number()), Some(token));
        }
        assert_eq!(Token::from_number(u64::MAX), None);
    }

    #[test]
    fn reports_only_what_is_of_interest() {
        let poller = Poller::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut watched = poller.own(reader, Token::Output(7));
        io::write(&writer, b"x").unwrap();
        let mut events = Vec::new();
        let mut poll = || {
            poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
            events.iter().map(|(token, _)| *token).collect::<Vec<_>>()
        };
        assert_eq!(poll(), []);
        watched.set_interest(EventFlags::IN).unwrap();
        assert_eq!(poll(), [Token::Output(7)]);
        watched.set_interest(EventFlags::empty()).unwrap();
        assert_eq!(poll(), []);
        watched.set_interest(EventFlags::IN).unwrap();
        drop(watched);
        assert_eq!(poll(), []);
    }
}
