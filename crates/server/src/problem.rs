//! A request that failed: what the caller is told, the same over gRPC and REST.

use std::error::Error;
use std::fmt;

use belljar_api::{problem, v1};
use belljar_codes::Code;
use belljar_policy::Invalid;
use http::StatusCode;

/// Where codes are explained.
const DOCS: &str = "docs/reference/errors.md#";

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    pub message: String,
    /// Outermost first.
    pub causes: Vec<String>,
    pub remedy: Option<String>,
    /// What a policy answered, where it is a policy that refuses.
    pub decision: Option<Box<v1::PolicyDecision>>,
    /// It is among the failures that are counted: on its way out it is not counted again.
    counted: bool,
}

/// What every answer of this server can be.
pub type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            causes: Vec::new(),
            remedy: None,
            decision: None,
            counted: false,
        }
    }

    /// An argument that cannot be used.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Marks it as counted.
    #[must_use]
    pub(crate) fn counted(mut self) -> Self {
        self.counted = true;
        self
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Adds `error` and all its own causes.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn Error) -> Self {
        self.causes.push(error.to_string());
        self.causes.extend(causes(error));
        self
    }

    /// As it goes over the wire.
    #[must_use]
    pub fn wire(&self, request_id: &str) -> v1::Problem {
        v1::Problem {
            code: self.code.as_str().to_owned(),
            message: self.message.clone(),
            cause: self.causes.join(": "),
            remedy: self.remedy.clone().unwrap_or_default(),
            docs: format!("{DOCS}{}", self.code),
            request_id: request_id.to_owned(),
            decision: self.decision.as_deref().cloned(),
        }
    }

    #[must_use]
    pub fn status(&self, request_id: &str) -> tonic::Status {
        problem::to_status(grpc_code(self.code), &self.wire(request_id))
    }

    #[must_use]
    pub fn http_status(&self) -> StatusCode {
        http_status(self.code)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Problem {}

impl From<belljar_engine::Error> for Problem {
    fn from(error: belljar_engine::Error) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            causes: causes(&error),
            remedy: error.remedy().map(str::to_owned),
            decision: error.decision().map(|judged| Box::new(decision(judged))),
            counted: false,
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid.code, invalid.message).with_remedy(invalid.remedy)
    }
}

fn decision(judged: &belljar_engine::Judged) -> v1::PolicyDecision {
    v1::PolicyDecision {
        verdict: judged.verdict.as_str().to_owned(),
        rule: judged.rule.clone(),
        message: judged.message.clone(),
        digest: judged.digest.clone(),
    }
}

fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(error.source(), |cause: &&dyn Error| (*cause).source())
        .map(ToString::to_string)
        .collect()
}

/// The kinds of answers that both worlds have a number for.
enum Kind {
    Invalid,
    NotFound,
    Exists,
    NotNow,
    Unauthenticated,
    Denied,
    TooMany,
    TooLarge,
    Conflict,
    WrongMethod,
    WrongMedia,
    TimedOut,
    Exhausted,
    Unavailable,
    Internal,
}

fn kind(code: Code) -> Kind {
    match code {
        Code::ApprovalNotFound
        | Code::SandboxNotFound
        | Code::ProcessNotFound
        | Code::FileNotFound
        | Code::LayerNotFound
        | Code::TenantNotFound
        | Code::KeyNotFound
        | Code::WebhookNotFound
        | Code::SecretNotFound
        | Code::SnapshotNotFound
        | Code::RouteNotFound
        | Code::TemplateNotFound
        | Code::ToolNotFound
        | Code::PolicyNotFound => Kind::NotFound,
        Code::SandboxExists
        | Code::FileExists
        | Code::TenantExists
        | Code::SnapshotExists
        | Code::CallbackExists => Kind::Exists,
        Code::IdempotencyConflict | Code::LayerConflict => Kind::Conflict,
        // The sandbox's own kernel says no to a file operation: the server did its part.
        Code::SandboxNotReady
        | Code::SandboxGone
        | Code::ProcessEnded
        | Code::FileFailed
        | Code::SnapshotTooLarge
        | Code::ToolFailed
        | Code::EnsureFailed => Kind::NotNow,
        Code::Unauthenticated | Code::TokenInvalid => Kind::Unauthenticated,
        Code::PermissionDenied | Code::PolicyDenied | Code::FileDenied => Kind::Denied,
        Code::RateLimited | Code::QuotaExceeded => Kind::TooMany,
        Code::RequestTooLarge => Kind::TooLarge,
        Code::MethodNotAllowed => Kind::WrongMethod,
        Code::UnsupportedMediaType => Kind::WrongMedia,
        Code::RequestTimedOut => Kind::TimedOut,
        Code::HostExhausted | Code::DiskFull | Code::PidsExhausted | Code::Oom => Kind::Exhausted,
        Code::ServerStopping
        | Code::ServerUnreachable
        | Code::ToolUnavailable
        | Code::PortUnreachable
        | Code::Interrupted => Kind::Unavailable,
        Code::StartFailed
        | Code::LauncherFailed
        | Code::AgentFailed
        | Code::StateFailed
        | Code::StateTooNew
        | Code::AuditBroken
        | Code::SnapshotDamaged
        | Code::Internal => Kind::Internal,
        // What was asked for is wrong, or cannot be had on this host: asking again gives the same answer.
        _ => Kind::Invalid,
    }
}

fn grpc_code(code: Code) -> tonic::Code {
    match kind(code) {
        // Clients know by it that the server is an older one.
        Kind::NotFound if code == Code::RouteNotFound => tonic::Code::Unimplemented,
        Kind::Invalid | Kind::WrongMedia | Kind::WrongMethod => tonic::Code::InvalidArgument,
        Kind::NotFound => tonic::Code::NotFound,
        Kind::Exists => tonic::Code::AlreadyExists,
        Kind::NotNow => tonic::Code::FailedPrecondition,
        Kind::Conflict => tonic::Code::Aborted,
        Kind::Unauthenticated => tonic::Code::Unauthenticated,
        Kind::Denied => tonic::Code::PermissionDenied,
        Kind::TooMany | Kind::TooLarge | Kind::Exhausted => tonic::Code::ResourceExhausted,
        Kind::TimedOut => tonic::Code::DeadlineExceeded,
        Kind::Unavailable => tonic::Code::Unavailable,
        Kind::Internal => tonic::Code::Internal,
    }
}

fn http_status(code: Code) -> StatusCode {
    match kind(code) {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Exists | Kind::NotNow | Kind::Conflict => StatusCode::CONFLICT,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Denied => StatusCode::FORBIDDEN,
        Kind::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
        Kind::WrongMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Kind::TimedOut => StatusCode::REQUEST_TIMEOUT,
        Kind::Exhausted => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_is_not_found() {
        let missing = Problem::new(Code::SandboxNotFound, "there is no sandbox `x`");
        assert_eq!(missing.http_status(), 404);
        let status = missing.status("r1");
        assert_eq!(status.code(), tonic::Code::NotFound);
        let wire = problem::from_status(&status).unwrap();
        assert_eq!((wire.code.as_str(), wire.request_id.as_str()), ("sandbox-not-found", "r1"));
    }

    #[test]
    fn codes_that_name_an_absence_are_404() {
        for code in Code::ALL.iter().filter(|code| code.as_str().ends_with("-not-found")) {
            // Inside a sandbox, a command's program may be missing: that is an answer about the command.
            let expected = if *code == Code::ProgramNotFound { 400 } else { 404 };
            assert_eq!(http_status(*code), expected, "{code}");
        }
    }
}
