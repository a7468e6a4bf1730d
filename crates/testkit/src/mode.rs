//! As whom the binary runs.

use std::fmt;
use std::fs;

use crate::{Dockerd, runtime};

/// The name of the ordinary user that rootless tests run as.
const TEST_USER: &str = "belljar-test";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Root,
    Rootless,
    /// As root, with sandboxes in a private container engine.
    Docker,
    /// The same in Podman, by its compatible socket.
    Podman,
    /// As root, with sandboxes on an OCI runtime.
    Runc,
    /// The same on gVisor.
    Runsc,
}

/// An ordinary user of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
}

impl Mode {
    /// Why this mode cannot be tested here; `None` where it can.
    #[must_use]
    pub fn unavailable(self) -> Option<String> {
        let root = rustix::process::geteuid().is_root();
        match self {
            Self::Root if root => None,
            Self::Root => Some("not running as root".to_owned()),
            Self::Docker => Dockerd::unavailable(),
            Self::Podman => Dockerd::podman_unavailable(),
            Self::Runc | Self::Runsc if !root => Some("not running as root".to_owned()),
            Self::Runc | Self::Runsc => runtime::unavailable(self),
            // An ordinary user tests rootless mode as itself.
            Self::Rootless if !root => None,
            Self::Rootless => match test_account() {
                Some(_) => None,
                None => Some(format!("there is no user `{TEST_USER}` (`useradd -m {TEST_USER}`)")),
            },
        }
    }

    /// The runtime that sandboxes are on.
    #[must_use]
    pub fn runtime(self) -> Option<&'static str> {
        match self {
            Self::Runc => Some("runc"),
            Self::Runsc => Some("runsc"),
            Self::Root | Self::Rootless | Self::Docker | Self::Podman => None,
        }
    }

    /// Whether sandboxes are containers of an engine.
    #[must_use]
    pub fn is_engine(self) -> bool {
        matches!(self, Self::Docker | Self::Podman)
    }

    /// The account to change to before running the binary; `None` where it runs as whoever we are.
    #[must_use]
    pub fn account(self) -> Option<Account> {
        match self {
            Self::Rootless if rustix::process::geteuid().is_root() => test_account(),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::Rootless => "rootless",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        })
    }
}

fn test_account() -> Option<Account> {
    parse_account(&fs::read_to_string("/etc/passwd").ok()?, TEST_USER)
}

fn parse_account(passwd: &str, name: &str) -> Option<Account> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_their_whole_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:100::/home/ann:/bin/sh\n";
        let cases = [
            ("ann", Some(Account { uid: 1000, gid: 100 })),
            ("an", None),
            ("root", Some(Account { uid: 0, gid: 0 })),
        ];
        for (name, expected) in cases {
            assert_eq!(parse_account(passwd, name), expected, "{name}");
        }
    }
}
