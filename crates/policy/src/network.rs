//! What a sandbox may reach over the network.
//!
//! Absent means denied: without a word from the caller there is no network. An allowlist names hosts; an empty one is
//! an error, because it would be a network that reaches nothing.

mod host;
mod profile;
mod suffixes;

pub use host::HostPattern;
pub use profile::PROFILES;

use std::fmt;
use std::str::FromStr;

use belljar_codes::Code;
use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::invalid::shown;

/// Each entry is looked at for every connection.
const MAX_ENTRIES: usize = 1024;

/// How much of the network there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    #[default]
    None,
    Allowlist,
    Full,
}

/// The network rules of one sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    pub mode: NetworkMode,
    /// Empty unless the mode is [`NetworkMode::Allowlist`].
    pub allow: Vec<HostPattern>,
}

// === impl NetworkMode ===

impl NetworkMode {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "allowlist",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for NetworkMode {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "none" => Ok(Self::None),
            "allowlist" => Ok(Self::Allowlist),
            "full" => Ok(Self::Full),
            _ => Err(Invalid::new(
                Code::InvalidArgument,
                format!("network mode `{}` is not known", shown(text)),
                "use `none`, `allowlist` or `full`",
            )),
        }
    }
}

// === impl NetworkPolicy ===

impl NetworkPolicy {
    /// The policy that the options `--profile`, `--network` and `--allow` mean together.
    ///
    /// # Errors
    /// Where a word is unknown, the options contradict each other, or an allowlist has no entry.
    pub fn from_flags(
        profile: Option<&str>,
        mode: Option<&str>,
        allow: &[String],
    ) -> Result<Self, Invalid> {
        let profile = profile.map(profile::find).transpose()?;
        let asked_mode = mode.map(NetworkMode::from_str).transpose()?;
        let mode = match (profile, asked_mode) {
            (Some(profile), Some(mode)) if profile.mode != mode => {
                return Err(conflict(
                    format!(
                        "profile `{}` means network `{}`, but `{mode}` was asked for",
                        profile.name, profile.mode
                    ),
                    "leave out `--network` or `--profile`",
                ));
            }
            (Some(profile), _) => profile.mode,
            (None, mode) => mode.unwrap_or_default(),
        };
        if mode != NetworkMode::Allowlist && !allow.is_empty() {
            return Err(conflict(
                format!("hosts were allowed, but the network mode is `{mode}`"),
                "add `--network allowlist`, or leave out `--allow`",
            ));
        }
        let named = profile.map_or(&[][..], |profile| profile.allow);
        let named = named.iter().copied().chain(allow.iter().map(String::as_str));
        let allow = named.map(HostPattern::parse).collect::<Result<Vec<_>, _>>()?;
        Self::new(mode, allow)
    }

    /// # Errors
    /// Where an allowlist has no entry or too many, or another mode has entries.
    pub fn new(mode: NetworkMode, mut allow: Vec<HostPattern>) -> Result<Self, Invalid> {
        allow.sort();
        allow.dedup();
        match (mode, allow.len()) {
            (NetworkMode::Allowlist, 0) => Err(Invalid::new(
                Code::InvalidNetworkRule,
                "the network allowlist is empty",
                "name at least one host with `--allow`, or use `--network none`",
            )),
            (NetworkMode::Allowlist, n) if n > MAX_ENTRIES => Err(Invalid::new(
                Code::InvalidNetworkRule,
                format!("the network allowlist has {n} entries, more than {MAX_ENTRIES}"),
                "use patterns such as `*.example.com`",
            )),
            (NetworkMode::None | NetworkMode::Full, 1..) => Err(conflict(
                format!("hosts were allowed, but the network mode is `{mode}`"),
                "use the network mode `allowlist`, or name no hosts",
            )),
            _ => Ok(Self { mode, allow }),
        }
    }
}

fn conflict(message: String, remedy: &str) -> Invalid {
    Invalid::new(Code::ConflictingOptions, message, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        profile: Option<&str>,
        mode: Option<&str>,
        allow: &[&str],
        expected: Result<(NetworkMode, &[&str]), Code>,
    ) {
        let allow: Vec<String> = allow.iter().map(|&host| host.to_owned()).collect();
        let found = NetworkPolicy::from_flags(profile, mode, &allow);
        match (&found, expected) {
            (Ok(policy), Ok((mode, hosts))) => {
                assert_eq!(policy.mode, mode);
                let found: Vec<String> = policy.allow.iter().map(ToString::to_string).collect();
                assert_eq!(found, hosts);
            }
            (Err(refused), Err(code)) => assert_eq!(refused.code, code),
            (found, expected) => {
                panic!("{profile:?} {mode:?} {allow:?}: {found:?}, not {expected:?}")
            }
        }
    }

    #[test]
    fn flags_combine() {
        use NetworkMode::{Allowlist, Full, None as Nothing};
        check(None, None, &[], Ok((Nothing, &[])));
        check(None, Some("none"), &[], Ok((Nothing, &[])));
        check(None, Some("full"), &[], Ok((Full, &[])));
        check(Some("locked"), None, &[], Ok((Nothing, &[])));
        check(Some("locked"), Some("none"), &[], Ok((Nothing, &[])));
        check(Some("full"), None, &[], Ok((Full, &[])));
        check(
            None,
            Some("allowlist"),
            &["B.com", "a.com", "b.com."],
            Ok((Allowlist, &["a.com", "b.com"])),
        );
        check(Some("web"), None, &["a.com"], Ok((Allowlist, &["a.com"])));
        check(Some("web"), Some("allowlist"), &["a.com"], Ok((Allowlist, &["a.com"])));
    }

    #[test]
    fn contradictions_are_refused() {
        check(None, None, &["a.com"], Err(Code::ConflictingOptions));
        check(None, Some("none"), &["a.com"], Err(Code::ConflictingOptions));
        check(None, Some("full"), &["a.com"], Err(Code::ConflictingOptions));
        check(Some("locked"), None, &["a.com"], Err(Code::ConflictingOptions));
        check(Some("locked"), Some("full"), &[], Err(Code::ConflictingOptions));
        check(Some("full"), Some("none"), &[], Err(Code::ConflictingOptions));
        check(None, Some("allowlist"), &[], Err(Code::InvalidNetworkRule));
        check(Some("web"), None, &[], Err(Code::InvalidNetworkRule));
        check(None, Some("allowlist"), &["https://a.com"], Err(Code::InvalidNetworkRule));
        check(None, Some("some"), &[], Err(Code::InvalidArgument));
        check(Some("open"), None, &[], Err(Code::InvalidArgument));
        check(None, Some("None"), &[], Err(Code::InvalidArgument));
    }

    #[test]
    fn the_packages_profile_has_hosts_and_takes_more() {
        let plain = NetworkPolicy::from_flags(Some("packages"), None, &[]).unwrap();
        assert_eq!(plain.mode, NetworkMode::Allowlist);
        assert!(plain.allow.iter().any(|pattern| pattern.matches("pypi.org")));
        let more =
            NetworkPolicy::from_flags(Some("packages"), None, &["a.com".to_owned()]).unwrap();
        assert_eq!(more.allow.len(), plain.allow.len() + 1);
    }

    #[test]
    fn too_many_entries_are_refused() {
        let hosts: Vec<String> = (0..1025).map(|n| format!("h{n}.example.com")).collect();
        let refused = NetworkPolicy::from_flags(None, Some("allowlist"), &hosts).unwrap_err();
        assert_eq!(refused.code, Code::InvalidNetworkRule);
    }
}
