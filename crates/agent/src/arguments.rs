//! How the program was started.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

/// What the program is to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// The agent: `belljar-agent listen=<fd>|connections=<fd>|own=<uid>|door [cgroup=<fd>] [ready=<fd>] [become=<uid>]`.
    Serve(Descriptors),
    /// Whoever hands connections into a wall that no listening socket passes, from outside of it:
    /// `belljar-agent keep listen=<fd> ready=<fd> program=<fd> handed=<fd> -- ARGUMENTS`.
    Keep { descriptors: Kept, arguments: Vec<OsString> },
    /// A way to an agent with a socket of its own, over standard input and output: `belljar-agent relay [door]`.
    Relay { door: bool },
    /// A caller of the host's tools: `belljar-tool call NAME ARGUMENTS`, `belljar-tool list`.
    Tool(Vec<OsString>),
    /// A stand-in for the program of this name.
    StandIn { name: Vec<u8> },
}

/// Descriptor numbers from the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) arrivals: Arrivals,
    pub(crate) cgroup: Option<RawFd>,
    /// Whom to tell that there is somebody to talk to.
    pub(crate) ready: Option<RawFd>,
    /// Who to be, where the wall could not start the agent as that.
    pub(crate) identity: Option<u32>,
}

/// How hosts come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// By connecting to this socket.
    Listen(RawFd),
    /// Connected, each as a message on this socket.
    Handed(RawFd),
    /// By connecting to a socket of the agent's own, which everyone inside can reach; a host is who the kernel says has
    /// this user.
    Own { host: u32 },
    /// By connecting to a socket in a directory that only hosts may pass through, for kernels that do not say who connects.
    Door,
}

/// What a keeper works with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) listen: RawFd,
    pub(crate) ready: RawFd,
    pub(crate) program: RawFd,
    /// The number that the program expects its end at.
    pub(crate) handed: RawFd,
}

/// The only name under which the program is the agent.
const AGENT: &[u8] = b"belljar-agent";

/// The name under which it calls tools.
const TOOL: &[u8] = b"belljar-tool";

impl Arguments {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let mut arguments = arguments.into_iter();
        let path = arguments.next().unwrap_or_default();
        let name = path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if name == TOOL {
            return Self::Tool(arguments.collect());
        }
        let words: Vec<OsString> = arguments.collect();
        let stand_in = || Self::StandIn { name: name.to_vec() };
        if name != AGENT {
            return stand_in();
        }
        let parsed = match words.first().and_then(|word| word.to_str()) {
            Some("keep") => keep(&words),
            Some("relay") => Some(Self::Relay { door: has(&words, "door") }),
            _ => serve(&words),
        };
        parsed.unwrap_or_else(stand_in)
    }
}

fn serve(words: &[OsString]) -> Option<Arguments> {
    let listen = value(words, "listen=").map(Arrivals::Listen);
    let handed = || value(words, "connections=").map(Arrivals::Handed);
    let own = || {
        let host = u32::try_from(value(words, "own=")?).ok()?;
        Some(Arrivals::Own { host })
    };
    let door = || has(words, "door").then_some(Arrivals::Door);
    Some(Arguments::Serve(Descriptors {
        arrivals: listen.or_else(handed).or_else(own).or_else(door)?,
        cgroup: value(words, "cgroup="),
        ready: value(words, "ready="),
        identity: value(words, "become=").and_then(|id| u32::try_from(id).ok()),
    }))
}

fn keep(words: &[OsString]) -> Option<Arguments> {
    let end = words.iter().position(|word| word == "--")?;
    let (own, rest) = (&words[..end], &words[end + 1..]);
    let descriptors = Kept {
        listen: value(own, "listen=")?,
        ready: value(own, "ready=")?,
        program: value(own, "program=")?,
        handed: value(own, "handed=")?,
    };
    Some(Arguments::Keep { descriptors, arguments: rest.to_vec() })
}

fn has(words: &[OsString], word: &str) -> bool {
    words.iter().any(|one| one == word)
}

fn value(words: &[OsString], key: &str) -> Option<RawFd> {
    words.iter().find_map(|word| word.to_str()?.strip_prefix(key)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_agent_only_by_its_name_and_with_a_socket() {
        let serve = |listen, cgroup| {
            let arrivals = Arrivals::Listen(listen);
            Arguments::Serve(Descriptors { arrivals, cgroup, ready: None, identity: None })
        };
        let handed = Arguments::Serve(Descriptors {
            arrivals: Arrivals::Handed(3),
            cgroup: None,
            ready: Some(4),
            identity: Some(65533),
        });
        let own = Arguments::Serve(Descriptors {
            arrivals: Arrivals::Own { host: 0 },
            cgroup: None,
            ready: None,
            identity: None,
        });
        let door = Arguments::Serve(Descriptors {
            arrivals: Arrivals::Door,
            cgroup: None,
            ready: None,
            identity: Some(65533),
        });
        let keep = Arguments::Keep {
            descriptors: Kept { listen: 3, ready: 5, program: 6, handed: 7 },
            arguments: vec!["runsc".into(), "listen=9".into()],
        };
        let stand_in = |name: &str| Arguments::StandIn { name: name.into() };
        for (line, expected) in [
            ("belljar-agent listen=3", serve(3, None)),
            ("/x/belljar-agent cgroup=5 listen=3", serve(3, Some(5))),
            ("belljar-agent connections=3 ready=4 become=65533", handed),
            ("belljar-agent keep listen=3 ready=5 program=6 handed=7 -- runsc listen=9", keep),
            ("belljar-agent keep listen=3 -- runsc", stand_in("belljar-agent")),
            ("belljar-agent own=0", own),
            ("belljar-agent door become=65533", door),
            ("belljar-agent relay", Arguments::Relay { door: false }),
            ("belljar-agent relay door", Arguments::Relay { door: true }),
            ("/usr/bin/curl relay", stand_in("curl")),
            ("belljar-agent own=-1", stand_in("belljar-agent")),
            ("belljar-agent", stand_in("belljar-agent")),
            ("belljar-agent listen=x", stand_in("belljar-agent")),
            ("/usr/bin/curl listen=3", stand_in("curl")),
            ("wget", stand_in("wget")),
            ("/x/belljar-tool list", Arguments::Tool(vec!["list".into()])),
        ] {
            assert_eq!(Arguments::parse(line.split(' ').map(OsString::from)), expected, "{line}");
        }
    }
}
