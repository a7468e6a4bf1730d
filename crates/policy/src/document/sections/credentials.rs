//! Which secret goes with which requests. The secret itself is never in a document and never in a sandbox.

use std::fmt;

use belljar_codes::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use super::network::{HostMatch, Method, PathPattern};
use crate::document::Looks;
use crate::document::syntax::Check;
use crate::{Invalid, shown};

/// A secret bound to requests: only a request to a verified host that fits gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    pub name: String,
    pub source: Source,
    #[schemars(with = "OneOrMany<String>")]
    pub host: OneOrMany<HostMatch>,
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    #[schemars(with = "OneOrMany<String>")]
    pub method: OneOrMany<Method>,
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    #[schemars(with = "OneOrMany<String>")]
    pub path: OneOrMany<PathPattern>,
    pub inject: Injection,
    /// What happens to a header that the guest sent itself.
    #[serde(default)]
    pub guest_header: OnGuestHeader,
    /// Whether requests without TLS get it too.
    #[serde(default)]
    pub plain_http: bool,
    /// Whether the guest may ask for parts of a reply. In parts, a secret that comes back is not recognised.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ranges: bool,
}

impl Credential {
    /// Whether the secret itself is in the request, so that a reply could repeat it. A signature is no secret.
    #[must_use]
    pub fn sends_secret(&self) -> bool {
        !matches!(self.inject, Injection::Sigv4 { .. })
    }
}

/// Where the secret comes from, on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The store that `belljar secrets` fills.
    Store(String),
    /// A variable of the server's environment.
    Environment(String),
    File(String),
    Command(CommandSource),
    /// A program that is connected to the server answers.
    Callback(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandSource {
    pub argv: Vec<String>,
    /// How long its answer is kept.
    #[serde(default)]
    pub cache_seconds: u64,
}

/// How a request carries the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Injection {
    /// `Authorization: Bearer SECRET`.
    Bearer,
    /// `Authorization: Basic`, with this user.
    Basic { user: String },
    /// A header whose value has `{secret}` in it.
    Header { name: String, template: String },
    /// A word in the guest's request that is replaced by the secret.
    Placeholder {
        text: String,
        #[serde(rename = "in")]
        places: Vec<Place>,
    },
    /// AWS Signature Version 4; the secret is `ACCESS_KEY:SECRET_KEY`.
    Sigv4 { region: String, service: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Header,
    Query,
    Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnGuestHeader {
    #[default]
    Replace,
    Refuse,
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.host.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{} for {hosts}", self.name)
    }
}

impl Check for Credential {
    fn check(&self, _: &mut Looks) -> Result<(), Invalid> {
        let refuse = |message: &str, remedy: &str| {
            Err(Invalid::new(
                Code::InvalidPolicy,
                format!("credential `{}` {message}", shown(&self.name)),
                remedy,
            ))
        };
        if self.host.0.contains(&HostMatch::Any) {
            return refuse("goes to every host", "name the hosts that it is for");
        }
        match &self.inject {
            Injection::Header { template, .. } if template.matches("{secret}").count() != 1 => {
                return refuse("has not exactly one `{secret}` in its template", "write it once");
            }
            Injection::Placeholder { text, places } if text.len() < 8 || places.is_empty() => {
                return refuse(
                    "has a placeholder that is too short or stands nowhere",
                    "use at least 8 characters and name a place",
                );
            }
            _ => {}
        }
        match &self.source {
            Source::Command(command) if command.argv.is_empty() => {
                refuse("has a command without a program", "write `argv: [PROGRAM, …]`")
            }
            _ => Ok(()),
        }
    }
}
