//! What may be reached over the network, rule by rule.

use std::fmt;

use belljar_codes::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::document::Looks;
use crate::document::syntax::{Check, checked_list};
use crate::identity::as_checked_text;
use crate::{HostPattern, Invalid, NetworkMode, shown};

const MAX_PATH: usize = 1024;

/// The document's `network`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSection {
    /// Without one: `allowlist` where rules or `network_allowlist` name hosts, else what `network_default` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NetworkModeWord>")]
    pub mode: Option<NetworkMode>,
    /// The first that fits decides; the document's `network_allowlist` comes after them.
    #[serde(deserialize_with = "checked_list")]
    pub rules: Vec<NetworkRule>,
    /// For the sandbox as a whole.
    #[serde(deserialize_with = "checked_list", skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// How long an `ask` waits for an answer before it is a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_seconds: Option<u64>,
}

/// The words of [`NetworkMode`], for the schema.
#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code)] // Only its schema is used.
enum NetworkModeWord {
    None,
    Allowlist,
    Full,
}

/// One rule. What a rule does not name it does not look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A host, everything below a host (`*.example.com`), or `*` in rules that do not allow.
    #[schemars(with = "String")]
    pub host: HostMatch,
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub port: OneOrMany<u16>,
    #[serde(default)]
    pub transport: Transport,
    /// HTTP methods; a rule with methods or paths sees inside TLS.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    #[schemars(with = "OneOrMany<String>")]
    pub method: OneOrMany<Method>,
    /// Paths: `/a` is that path only, `/a/*` is everything below it.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    #[schemars(with = "OneOrMany<String>")]
    pub path: OneOrMany<PathPattern>,
    pub verdict: NetworkVerdict,
    #[serde(default, deserialize_with = "checked_list", skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkVerdict {
    Allow,
    Deny,
    /// A person or a program is asked; without an answer it is a no.
    Ask,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
}

/// How much in a time. At least one of `bytes` and `requests` is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// The window in seconds; without one, the life of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_seconds: Option<u64>,
}

/// Which hosts a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    Any,
    Hosts(HostPattern),
}

/// An HTTP method, upper-case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(String);

/// A path, or what is below one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    path: String,
    below: bool,
}

impl NetworkRule {
    /// Whether the rule can only be judged with an HTTP request at hand.
    #[must_use]
    pub fn needs_http(&self) -> bool {
        !self.method.is_empty() || !self.path.is_empty()
    }
}

impl NetworkVerdict {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }
}

impl Check for NetworkRule {
    fn check(&self, _: &mut Looks) -> Result<(), Invalid> {
        if self.host == HostMatch::Any && self.verdict == NetworkVerdict::Allow {
            return Err(refuse(
                "a rule allows every host".to_owned(),
                "name the hosts, or use the network mode `full`",
            ));
        }
        if self.transport == Transport::Udp && self.needs_http() {
            return Err(refuse(
                "a rule for UDP has methods or paths".to_owned(),
                "leave them out, or use `transport: tcp`",
            ));
        }
        // Every port has a door of its own, which must be known when the sandbox starts.
        let opens = self.verdict != NetworkVerdict::Deny;
        if self.transport == Transport::Udp && opens && self.port.is_empty() {
            return Err(refuse(
                "a rule for UDP names no port".to_owned(),
                "name the ports, such as `port: 123`",
            ));
        }
        if self.port.0.contains(&0) {
            return Err(refuse("port 0 is no port".to_owned(), "use 1 to 65535"));
        }
        Ok(())
    }
}

impl Check for Budget {
    fn check(&self, _: &mut Looks) -> Result<(), Invalid> {
        match (self.bytes, self.requests, self.per_seconds) {
            (None, None, _) => Err(refuse(
                "a budget names neither `bytes` nor `requests`".to_owned(),
                "name one of them",
            )),
            (_, _, Some(0)) => {
                Err(refuse("a budget's `per_seconds` is zero".to_owned(), "leave it out"))
            }
            _ => Ok(()),
        }
    }
}

// === impl HostMatch ===

impl HostMatch {
    /// # Errors
    /// Where the host is none, or has a port or path.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let pattern = HostPattern::parse(text)?;
        if pattern.port().is_some() || pattern.path().is_some() {
            return Err(refuse(
                format!("host `{}` has a port or a path", shown(text)),
                "write them as `port:` and `path:` beside `host:`",
            ));
        }
        Ok(Self::Hosts(pattern))
    }

    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Hosts(pattern) => pattern.matches(host),
        }
    }
}

impl fmt::Display for HostMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.pad("*"),
            Self::Hosts(pattern) => pattern.fmt(f),
        }
    }
}

as_checked_text!(HostMatch);

// === impl Method ===

impl Method {
    /// # Errors
    /// Where the word cannot be a method.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let letters = text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
        if text.is_empty() || text.len() > 32 || !letters {
            return Err(refuse(
                format!("`{}` is no HTTP method", shown(text)),
                "write a method such as `GET`",
            ));
        }
        Ok(Self(text.to_ascii_uppercase()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

as_checked_text!(Method);

// === impl PathPattern ===

impl PathPattern {
    /// # Errors
    /// Where the text is no canonical path with an optional `/*` at its end.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (path, below) = match text.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (text, false),
        };
        let remedy = "write `/v1/items` for one path, `/v1/*` for all below it";
        let reason = if text.len() > MAX_PATH {
            "is too long"
        } else if !text.starts_with('/') {
            "does not begin with `/`"
        } else if path.contains(['*', '?', '#', '%']) {
            "has a `*` elsewhere than at its end, or a `?`, `#` or `%`"
        } else if path.contains("//") || path.split('/').any(|part| part == "." || part == "..") {
            "is not in its shortest form"
        } else if path.contains(|c: char| c.is_control() || c.is_whitespace() || !c.is_ascii()) {
            "has a character that must be encoded"
        } else {
            return Ok(Self { path: path.to_owned(), below });
        };
        Err(refuse(format!("path `{}` {reason}", shown(text)), remedy))
    }

    /// `path` is canonical: decoded, without dots and doubled slashes.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        if self.below {
            path.strip_prefix(&self.path).is_some_and(|rest| rest.starts_with('/'))
        } else {
            path == self.path
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        f.write_str(if self.below { "/*" } else { "" })
    }
}

as_checked_text!(PathPattern);

fn refuse(message: String, remedy: &str) -> Invalid {
    Invalid::new(Code::InvalidNetworkRule, message, remedy)
}
