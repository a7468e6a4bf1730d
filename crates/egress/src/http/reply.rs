//! What a program in the sandbox is told when its request goes no further.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde::Serialize;

use super::body::{Body, empty};
use crate::Reason;
use crate::decide::label;

/// Tells a reply of ours from one of the host's.
pub(super) const DECISION: &str = "x-belljar-decision";

/// A request that was not sent, or whose reply is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) reason: Reason,
    pub(super) rule: Option<String>,
    pub(super) message: String,
}

#[derive(Serialize)]
struct Told<'a> {
    decision: &'static str,
    code: &'static str,
    reason: &'static str,
    rule: Option<&'a str>,
    host: Option<&'a str>,
    method: &'a str,
    path: Option<&'a str>,
    message: &'a str,
}

impl Refused {
    pub(super) fn new(status: StatusCode, reason: Reason, message: impl Into<String>) -> Self {
        Self { status, reason, rule: None, message: message.into() }
    }

    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Reason::Malformed, message)
    }

    /// The reply, in words that a program and a person can read.
    pub(super) fn reply(
        &self,
        host: Option<&str>,
        method: &str,
        path: Option<&str>,
    ) -> Response<Body> {
        let (decision, code) = match self.status {
            StatusCode::BAD_REQUEST => ("deny", "invalid-argument"),
            StatusCode::BAD_GATEWAY if self.reason == Reason::SecretUnavailable => {
                ("error", "secret-unavailable")
            }
            StatusCode::BAD_GATEWAY => ("error", "upstream-failed"),
            StatusCode::TOO_MANY_REQUESTS => ("deny", "quota-exceeded"),
            _ => ("deny", "policy-denied"),
        };
        let reason = self.reason.as_str();
        let (rule, message) = (self.rule.as_deref(), self.message.as_str());
        // How a program failed is for the record only.
        let unnamed = label("");
        let rule = match self.reason {
            Reason::CallbackUnanswered => Some(unnamed.as_str()),
            _ => rule,
        };
        let told = Told { decision, code, reason, rule, host, method, path, message };
        let mut text = serde_json::to_vec(&told).expect("texts serialise");
        text.push(b'\n');
        let length = text.len();
        // In HTTP/2 nobody takes away what must not follow such a head, and the client would see a broken stream.
        let body = if method == Method::HEAD { empty() } else { full(text) };
        let mut reply = Response::new(body);
        *reply.status_mut() = self.status;
        let headers = reply.headers_mut();
        headers.insert(CONTENT_LENGTH, length.into());
        headers.insert(DECISION, HeaderValue::from_static(decision));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        reply
    }
}

fn full(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync()
}

/// A sentence for each reason.
pub(super) fn sentence(reason: Reason, host: &str) -> String {
    match reason {
        Reason::NotListed => format!("no rule allows this request to `{host}`"),
        Reason::RuleDenies => format!("a rule denies this request to `{host}`"),
        Reason::CallbackDenies => {
            format!("the program that decides denies this request to `{host}`")
        }
        Reason::CallbackUnanswered => {
            format!("nobody decided about this request to `{host}`")
        }
        Reason::NotApproved => format!("nobody approved this request to `{host}`"),
        Reason::BudgetSpent => format!("the budget for requests to `{host}` is spent"),
        Reason::AddressNotPublic => format!("`{host}` is at an address that may not be reached"),
        Reason::ResolveFailed => format!("`{host}` does not resolve"),
        Reason::ConnectFailed => format!("`{host}` does not answer"),
        Reason::CertificateInvalid => format!("the other side does not prove to be `{host}`"),
        Reason::Revoked => format!("requests to `{host}` are no longer allowed"),
        reason => format!("`{host}`: {}", reason.as_str().replace('-', " ")),
    }
}
