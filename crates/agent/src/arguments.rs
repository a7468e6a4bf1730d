//! How the program was started.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

/// What the program is to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// The agent: `belljar-agent listen=<fd> [cgroup=<fd>]`.
    Serve(Descriptors),
    /// A caller of the host's tools: `belljar-tool call NAME ARGUMENTS`, `belljar-tool list`.
    Tool(Vec<OsString>),
    /// A stand-in for the program of this name.
    StandIn { name: Vec<u8> },
}

/// Descriptor numbers from the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) listen: RawFd,
    pub(crate) cgroup: Option<RawFd>,
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
        let mut listen = None;
        let mut cgroup = None;
        for argument in arguments {
            if let Some(number) = value(&argument, "listen=") {
                listen = Some(number);
            } else if let Some(number) = value(&argument, "cgroup=") {
                cgroup = Some(number);
            }
        }
        match listen {
            Some(listen) if name == AGENT => Self::Serve(Descriptors { listen, cgroup }),
            _ => Self::StandIn { name: name.to_vec() },
        }
    }
}

fn value(argument: &OsString, key: &str) -> Option<RawFd> {
    argument.to_str()?.strip_prefix(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_agent_only_by_its_name_and_with_a_socket() {
        let serve = |listen, cgroup| Arguments::Serve(Descriptors { listen, cgroup });
        let stand_in = |name: &str| Arguments::StandIn { name: name.into() };
        for (line, expected) in [
            ("belljar-agent listen=3", serve(3, None)),
            ("/x/belljar-agent cgroup=5 listen=3", serve(3, Some(5))),
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
