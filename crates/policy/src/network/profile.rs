//! Named sets of network rules.

use belljar_codes::Code;

use super::NetworkMode;
use crate::Invalid;
use crate::invalid::shown;

/// A name for a network mode and the hosts that come with it.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: &'static str,
    pub mode: NetworkMode,
    pub allow: &'static [&'static str],
    /// One line for help and documents.
    pub description: &'static str,
}

/// All profiles.
pub const PROFILES: &[Profile] = &[
    Profile { name: "locked", mode: NetworkMode::None, allow: &[], description: "no network" },
    Profile {
        name: "web",
        mode: NetworkMode::Allowlist,
        allow: &[],
        description: "only the hosts named with --allow",
    },
    Profile {
        name: "packages",
        mode: NetworkMode::Allowlist,
        allow: PACKAGE_HOSTS,
        description: "the usual package hosts, and those named with --allow",
    },
    Profile { name: "full", mode: NetworkMode::Full, allow: &[], description: "all public hosts" },
];

/// Where the common package managers fetch from.
const PACKAGE_HOSTS: &[&str] = &[
    // Python
    "pypi.org",
    "files.pythonhosted.org",
    // JavaScript
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    // Go
    "proxy.golang.org",
    "sum.golang.org",
    // Rust
    "index.crates.io",
    "static.crates.io",
    "crates.io",
    // Ruby
    "rubygems.org",
    "index.rubygems.org",
    // Debian and Ubuntu
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
];

pub(super) fn find(name: &str) -> Result<&'static Profile, Invalid> {
    PROFILES.iter().find(|profile| profile.name == name).ok_or_else(|| {
        Invalid::new(
            Code::InvalidArgument,
            format!("profile `{}` is not known", shown(name)),
            "use `locked`, `web`, `packages` or `full`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostPattern;

    #[test]
    fn profiles_are_sound() {
        for profile in PROFILES {
            assert!(profile.mode == NetworkMode::Allowlist || profile.allow.is_empty());
            for host in profile.allow {
                assert_eq!(HostPattern::parse(host).unwrap().to_string(), *host);
            }
            let listed = find("nonesuch").unwrap_err().remedy;
            assert!(listed.contains(&format!("`{}`", profile.name)), "{listed}");
        }
    }
}
