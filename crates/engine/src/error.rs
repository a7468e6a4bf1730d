//! How the engine fails: a code for machines, a message and a remedy for people, the cause as source.

use std::io;
use std::path::Path;

use belljar_codes::Code;

use crate::policy::Judged;
use crate::store::State;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the engine. The message does not repeat its source; whoever prints walks the chain once.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: Code,
    message: String,
    remedy: Option<String>,
    decision: Option<Box<Judged>>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: None, decision: None, source: None }
    }

    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    #[must_use]
    pub(crate) fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    #[must_use]
    pub(crate) fn with_decision(mut self, judged: Judged) -> Self {
        self.decision = Some(Box::new(judged));
        self
    }

    /// What a policy answered, where it is a policy that refuses.
    #[must_use]
    pub fn decision(&self) -> Option<&Judged> {
        self.decision.as_deref()
    }

    /// The stable name of this kind of failure.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    pub(crate) fn take_remedy(&mut self) -> Option<String> {
        self.remedy.take()
    }

    /// A failure to read or write below the state directory.
    pub(crate) fn state(action: &str, path: &Path, source: io::Error) -> Self {
        let error = Self::new(Code::StateFailed, format!("{action} `{}`", path.display()));
        let error = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                error.with_remedy("free space on the file system of the state directory")
            }
            io::ErrorKind::PermissionDenied => error.with_remedy(
                "make the state directory writable for this user, or set BELLJAR_STATE_DIR",
            ),
            _ => error,
        };
        error.with_source(source)
    }

    pub(crate) fn sandbox_not_found(reference: &str) -> Self {
        Self::new(Code::SandboxNotFound, format!("there is no sandbox `{reference}`"))
            .with_remedy("`belljar list` shows the sandboxes that exist")
    }

    pub(crate) fn process_not_found(id: &belljar_policy::ProcessId) -> Self {
        Self::new(Code::ProcessNotFound, format!("there is no process `{id}`"))
            .with_remedy("`belljar ps --all` shows the processes that are on record")
    }

    pub(crate) fn sandbox_not_ready(id: &str, state: State) -> Self {
        let error =
            Self::new(Code::SandboxNotReady, format!("sandbox `{id}` is {}", state.as_str()));
        match state {
            State::Paused => error.with_remedy("resume it first"),
            _ => error,
        }
    }

    pub(crate) fn sandbox_gone(id: &str) -> Self {
        Self::new(Code::SandboxGone, format!("sandbox `{id}` has ended"))
            .with_remedy("create a new sandbox")
    }
}

impl From<belljar_backend::Error> for Error {
    fn from(error: belljar_backend::Error) -> Self {
        Self {
            code: error.code,
            message: error.message,
            remedy: error.remedy,
            decision: None,
            source: error.source,
        }
    }
}

impl From<belljar_policy::Invalid> for Error {
    fn from(invalid: belljar_policy::Invalid) -> Self {
        Self {
            code: invalid.code,
            message: invalid.message,
            remedy: Some(invalid.remedy).filter(|text| !text.is_empty()),
            decision: None,
            source: None,
        }
    }
}
