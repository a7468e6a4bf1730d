//! A host in an allowlist.
//!
//! `example.com` is that host only; `*.example.com` is any depth below it, not the host itself. A port and a path may
//! follow. Comparison goes label by label on lower-case ASCII, so `evilexample.com` and `example.com.evil.net` never
//! match.

use std::cmp::Ordering;
use std::fmt;
use std::net::Ipv6Addr;

use belljar_codes::Code;

use super::suffixes;
use crate::Invalid;
use crate::identity::as_checked_text;
use crate::invalid::shown;

/// Limits of the DNS.
const MAX_HOST: usize = 253;
const MAX_LABEL: usize = 63;
/// Longer paths are no rules.
const MAX_PATH: usize = 1024;

const REMEDY: &str = "write a host such as `example.com`, `*.example.com` or `example.com:8443`";

/// One entry of an allowlist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// Lower-case, without `*.` and without a trailing dot.
    host: String,
    scope: Scope,
    port: Option<u16>,
    path: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Scope {
    Host,
    Below,
}

// === impl HostPattern ===

impl HostPattern {
    /// # Errors
    /// Names the part that cannot be used and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        parse(text).map_err(|(reason, remedy)| {
            Invalid::new(
                Code::InvalidNetworkRule,
                format!("allowlist entry `{}` {reason}", shown(text)),
                remedy,
            )
        })
    }

    /// Whether `host` (a name as DNS or TLS has it) is meant. Port and path are the caller's to compare.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
        let own = self.host.as_bytes();
        match self.scope {
            Scope::Host => host.eq_ignore_ascii_case(own),
            Scope::Below => {
                // At least one label, then the dot, then the host.
                let Some(split) = host.len().checked_sub(own.len() + 1) else { return false };
                split > 0
                    && host[split] == b'.'
                    && host[split - 1] != b'.'
                    && host[0] != b'.'
                    && host[split + 1..].eq_ignore_ascii_case(own)
            }
        }
    }

    /// Whether everything that `other` means is meant.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.shared(other).as_ref() == Some(other)
    }

    /// What both mean, if there is such a thing.
    #[must_use]
    pub fn shared(&self, other: &Self) -> Option<Self> {
        let host = |a: &Self, b: &Self| a.is_wildcard() && a.matches(&b.host);
        let narrower = match (host(self, other), host(other, self)) {
            (true, _) => other,
            (_, true) => self,
            _ if self.host == other.host && self.scope == other.scope => self,
            _ => return None,
        };
        let port = match (self.port, other.port) {
            (Some(own), Some(others)) if own != others => return None,
            (own, others) => own.or(others),
        };
        let below = |prefix: &str, path: &str| {
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let path = match (&self.path, &other.path) {
            (Some(own), Some(others)) if below(own, others) => Some(others.clone()),
            (Some(own), Some(others)) if below(others, own) => Some(own.clone()),
            (Some(_), Some(_)) => return None,
            (own, others) => own.clone().or_else(|| others.clone()),
        };
        Some(Self { host: narrower.host.clone(), scope: narrower.scope, port, path })
    }

    /// Without port and path.
    #[must_use]
    pub fn only_host(&self) -> Self {
        Self { port: None, path: None, ..self.clone() }
    }

    /// The host, or what is below `*.`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether hosts below [`HostPattern::host`] are meant rather than itself.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.scope == Scope::Below
    }

    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Begins with a slash.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scope == Scope::Below {
            f.write_str("*.")?;
        }
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(self.path.as_deref().unwrap_or(""))
    }
}

impl Ord for HostPattern {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |pattern: &Self| {
            (pattern.host.clone(), pattern.scope, pattern.port, pattern.path.clone())
        };
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for HostPattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

as_checked_text!(HostPattern);

// === parsing ===

type Refusal = (&'static str, &'static str);

fn parse(text: &str) -> Result<HostPattern, Refusal> {
    if text.is_empty() {
        return Err(("is empty", REMEDY));
    }
    if text.contains("://") {
        return Err(("has a scheme", "write only the host, without `https://`"));
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(("contains a space or control character", REMEDY));
    }
    if !text.is_ascii() {
        return Err((
            "is not ASCII",
            "write the name in its punycode form, such as `xn--bcher-kva.example`",
        ));
    }
    if text.contains('@') {
        return Err(("has a user name", REMEDY));
    }
    let (authority, path) = match text.find('/') {
        Some(slash) => (&text[..slash], Some(path(&text[slash..])?)),
        None => (text, None),
    };
    if is_ipv6(authority) {
        return Err(ADDRESS);
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, digits)) => (host, Some(port(digits)?)),
        None => (authority, None),
    };
    let (host, scope) = match host.strip_prefix("*.") {
        Some(below) => (below, Scope::Below),
        None => (host, Scope::Host),
    };
    Ok(HostPattern { host: name(host, scope)?, scope, port, path })
}

const ADDRESS: Refusal =
    ("is an address", "name the host: names are checked against the answers of the DNS");

fn name(host: &str, scope: Scope) -> Result<String, Refusal> {
    if host == "*" || (host.is_empty() && scope == Scope::Below) {
        return Err(("allows every host", "name the hosts, or use `--network full`"));
    }
    if host.contains('*') {
        return Err(("has `*` in another place than the front", REMEDY));
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.len() > MAX_HOST {
        return Err(("is longer than a host name can be", REMEDY));
    }
    for label in host.split('.') {
        if label.is_empty() {
            return Err(("has an empty part", REMEDY));
        }
        if label.len() > MAX_LABEL {
            return Err(("has a part of more than 63 characters", REMEDY));
        }
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(("has a character that no host name has", REMEDY));
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(("has a part that begins or ends with `-`", REMEDY));
        }
    }
    // As URL parsers see it: whatever ends in a number is an IPv4 address, in one of its many spellings.
    let last = host.rsplit('.').next().unwrap_or(&host);
    if last.bytes().all(|b| b.is_ascii_digit()) || is_hexadecimal(last) {
        return Err(ADDRESS);
    }
    let public = match scope {
        Scope::Below => !host.contains('.') || suffixes::is_public(&host),
        Scope::Host => suffixes::is_no_host(&host),
    };
    if public {
        return Err((
            "is a suffix below which anybody can have a host",
            "name the hosts one by one",
        ));
    }
    Ok(host)
}

fn is_hexadecimal(label: &str) -> bool {
    label.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_ipv6(authority: &str) -> bool {
    authority.starts_with('[') || authority.parse::<Ipv6Addr>().is_ok()
}

fn port(digits: &str) -> Result<u16, Refusal> {
    let remedy = "use a port between 1 and 65535";
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(("has a port that is not a number", remedy));
    }
    match digits.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(("has a port that does not exist", remedy)),
    }
}

fn path(text: &str) -> Result<String, Refusal> {
    if text.len() > MAX_PATH {
        return Err(("has a path that is too long", "shorten the path"));
    }
    if text.contains(['?', '#', '\\', '%']) {
        return Err(("has a path with `?`, `#`, `%` or a backslash", "write a plain path prefix"));
    }
    if text.split('/').any(|part| part == "." || part == "..") {
        return Err(("has a path with `.` or `..`", "write a plain path prefix"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_have_one_form() {
        let check = |text: &str, expected: &str| {
            let pattern = HostPattern::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(pattern.to_string(), expected);
            assert_eq!(HostPattern::parse(expected).unwrap(), pattern);
        };
        check("example.com", "example.com");
        check("Example.COM.", "example.com");
        check("*.Example.com", "*.example.com");
        check("example.com:8443", "example.com:8443");
        check("example.com:0443", "example.com:443");
        check("example.com/a/b", "example.com/a/b");
        check("*.example.com:80/x/", "*.example.com:80/x/");
        check("xn--bcher-kva.example", "xn--bcher-kva.example");
        check("_dmarc.example.com", "_dmarc.example.com");
        check("localhost", "localhost");
        check("registry", "registry");
        check("me.github.io", "me.github.io");
        check("*.me.github.io", "*.me.github.io");
        check("3.example", "3.example");
        check("1.2.3.4.example", "1.2.3.4.example");
        check("wordpress.com", "wordpress.com");
    }

    #[test]
    fn bad_entries_are_refused() {
        let check = |text: &str, reason: &str| {
            let refused = HostPattern::parse(text).unwrap_err();
            assert_eq!(refused.code, Code::InvalidNetworkRule, "{text}");
            let expected = format!("allowlist entry `{}` {reason}", shown(text));
            assert_eq!(refused.message, expected);
        };
        check("", "is empty");
        check("https://example.com", "has a scheme");
        check("ftp://x", "has a scheme");
        check("example.com:0", "has a port that does not exist");
        check("example.com:99999", "has a port that does not exist");
        check("example.com:", "has a port that is not a number");
        check("example.com:http", "has a port that is not a number");
        check("a b.com", "contains a space or control character");
        check("a.com\0", "contains a space or control character");
        check("a.com\n", "contains a space or control character");
        check("a..com", "has an empty part");
        check(".a.com", "has an empty part");
        check("a.com..", "has an empty part");
        check("bücher.example", "is not ASCII");
        check("user@a.com", "has a user name");
        check("127.0.0.1", "is an address");
        check("127.1", "is an address");
        check("2130706433", "is an address");
        check("0x7f000001", "is an address");
        check("1.0x7f", "is an address");
        check("127.0.0.1.", "is an address");
        check("10.0.0.1:80", "is an address");
        check("::1", "is an address");
        check("[::1]:80", "is an address");
        check("fe80::1", "is an address");
        check("*", "allows every host");
        check("*.", "allows every host");
        check("*.*", "allows every host");
        check("*.com", "is a suffix below which anybody can have a host");
        check("*.internal", "is a suffix below which anybody can have a host");
        check("com", "is a suffix below which anybody can have a host");
        check("*.github.io", "is a suffix below which anybody can have a host");
        check("*.CO.UK.", "is a suffix below which anybody can have a host");
        check("co.uk", "is a suffix below which anybody can have a host");
        check("*.wordpress.com", "is a suffix below which anybody can have a host");
        check("a.*.b", "has `*` in another place than the front");
        check("a*.b.com", "has `*` in another place than the front");
        check("**.b.com", "has `*` in another place than the front");
        check("*b.com", "has `*` in another place than the front");
        check("-a.com", "has a part that begins or ends with `-`");
        check("a!.com", "has a character that no host name has");
        check("a.com/../b", "has a path with `.` or `..`");
        check("a.com/b?c", "has a path with `?`, `#`, `%` or a backslash");
        check(&format!("{}.com", "a".repeat(64)), "has a part of more than 63 characters");
        check(&format!("{}com", "a.".repeat(126)), "is longer than a host name can be");
    }

    #[test]
    fn matching_goes_label_by_label() {
        let check = |pattern: &str, host: &str, expected: bool| {
            let found = HostPattern::parse(pattern).unwrap().matches(host);
            assert_eq!(found, expected, "{pattern} {host}");
        };
        check("example.com", "example.com", true);
        check("example.com", "EXAMPLE.com.", true);
        check("example.com", "www.example.com", false);
        check("example.com", "evilexample.com", false);
        check("example.com", "example.com.evil.net", false);
        check("example.com", "", false);
        check("*.example.com", "www.example.com", true);
        check("*.example.com", "a.b.c.Example.com.", true);
        check("*.example.com", "example.com", false);
        check("*.example.com", ".example.com", false);
        check("*.example.com", "a..example.com", false);
        check("*.example.com", ".a.example.com", false);
        check("*.example.com", "evilexample.com", false);
        check("*.example.com", "www.example.com.evil.net", false);
        check("*.example.com", "www.example.com..", false);
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_is_stable(text in "\\PC{0,40}|[a-z0-9.*:/-]{0,40}") {
            if let Ok(pattern) = HostPattern::parse(&text) {
                prop_assert_eq!(HostPattern::parse(&pattern.to_string()).unwrap(), pattern);
            }
        }

        #[test]
        fn matching_never_panics(host: String) {
            let _ = HostPattern::parse("*.example.com").unwrap().matches(&host);
        }

        #[test]
        fn below_means_below(label in "[a-z]{1,9}(\\.[a-z]{1,9}){0,3}") {
            let pattern = HostPattern::parse("*.example.com").unwrap();
            let below = format!("{label}.example.com");
            let beside = format!("{label}example.com");
            prop_assert!(pattern.matches(&below));
            prop_assert!(!pattern.matches(&beside));
        }
    }
}
