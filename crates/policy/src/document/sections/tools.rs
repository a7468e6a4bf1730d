//! Functions of the host that code in a sandbox may call.

use std::fmt;

use belljar_codes::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Looks;
use crate::document::syntax::Check;
use crate::json_schema::Schema;
use crate::{Invalid, shown};

/// Nobody waits longer for a tool.
const MAX_TIMEOUT_SECONDS: u64 = 600;
const DEFAULT_TIMEOUT_SECONDS: u64 = 30;
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 4096;

/// A tool that the host runs itself. Inside, it exists where `tool_allowlist` names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of the arguments; without it, any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<serde_json::Value>,
    /// A program of the host and its arguments. It gets the tool's arguments as JSON on its input, and what it writes
    /// is the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// An address that the host posts the arguments to; what it answers with is the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpTool>,
    /// How long one call may take; without it, 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// How often it may be called by one sandbox; without it, as often as the server's own limit allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    /// `http://` or `https://`.
    pub url: String,
}

impl Tool {
    #[must_use]
    pub fn timeout(&self) -> std::time::Duration {
        let seconds = self.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        std::time::Duration::from_secs(seconds)
    }

    /// What arguments must be.
    #[must_use]
    pub fn schema(&self) -> serde_json::Value {
        self.input_schema.clone().unwrap_or_else(|| serde_json::json!({"type": "object"}))
    }

    /// Whether tools can have this name.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(known)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.http {
            Some(http) => write!(f, "{} by {}", self.name, http.url),
            None => write!(f, "{} by `{}`", self.name, self.command.join(" ")),
        }
    }
}

impl Check for Tool {
    fn check(&self, looks: &mut Looks) -> Result<(), Invalid> {
        let refuse = |message: String, remedy: &str| {
            let name = shown(&self.name);
            Err(Invalid::new(Code::InvalidPolicy, format!("tool `{name}` {message}"), remedy))
        };
        if !Self::is_name(&self.name) {
            return refuse(
                "has no name that tools can have".to_owned(),
                "use letters, digits, `_`, `-` and `.`, 64 at most",
            );
        }
        if self.description.len() > MAX_DESCRIPTION {
            return refuse("has a description that is too long".to_owned(), "shorten it");
        }
        let program = self.command.first().is_some_and(|program| !program.is_empty());
        if self.command.iter().any(|word| word.contains('\0')) || program == self.http.is_some() {
            return refuse(
                "is not run by exactly one of `command` and `http`".to_owned(),
                "write `command: [PROGRAM, …]` or `http: {url: …}`",
            );
        }
        if let Some(http) = &self.http
            && !["http://", "https://"].iter().any(|scheme| http.url.starts_with(scheme))
        {
            return refuse(
                "has no address that can be asked".to_owned(),
                "use http:// or https://",
            );
        }
        if self.timeout_seconds.is_some_and(|s| s == 0 || s > MAX_TIMEOUT_SECONDS) {
            return refuse("has a timeout that cannot be".to_owned(), "use 1 to 600 seconds");
        }
        if self.calls_per_second == Some(0) {
            return refuse("can never be called".to_owned(), "take it out of `tool_allowlist`");
        }
        match &self.input_schema {
            Some(schema) if !schema.is_object() => refuse(
                "has an input schema that is not an object".to_owned(),
                "write a JSON Schema",
            ),
            // Also of documents that are kept; what patterns take is judged where documents come in.
            Some(schema) => match Schema::look_at(schema, looks) {
                Ok(()) => Ok(()),
                Err(reason) => refuse(
                    format!("has an input schema whose {reason}"),
                    "see the guide to tools for the keywords that are checked",
                ),
            },
            None => Ok(()),
        }
    }
}
