//! A command that did not do what it was asked: what people and machines are told, and the exit status.

use std::error::Error;

use belljar_codes::Code;
use belljar_policy::Invalid;

use crate::settings::Origin;

/// Exit status when Belljar itself failed.
pub(crate) const EXIT_FAILURE: u8 = 125;
/// Exit status when a time ran out.
pub(crate) const EXIT_TIMED_OUT: u8 = 124;
const EXIT_NOT_EXECUTABLE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;
const EXIT_INTERRUPTED: u8 = 130;

/// A failure, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Outermost first.
    pub(crate) causes: Vec<String>,
    pub(crate) remedy: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), remedy: None }
    }

    /// Adds `error` and all its own causes.
    pub(crate) fn caused_by(mut self, error: &dyn Error) -> Self {
        self.causes.push(error.to_string());
        self.causes.extend(causes(error));
        self
    }

    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Of somebody who watches a process. A server that went away is not the end of the process; tells how it is found
    /// again.
    pub(crate) fn watching(mut self, process: &str) -> Self {
        if matches!(self.code, Code::ServerUnreachable | Code::ServerStopping) {
            self.remedy = Some(format!(
                "the process goes on: `belljar logs --follow {process}` shows what it writes, `belljar wait {process}` how it ends"
            ));
        }
        self
    }

    /// A bad value from a variable or file names that place.
    pub(crate) fn set_by(mut self, origin: &Origin) -> Self {
        if !matches!(origin, Origin::Flag(_) | Origin::Default) {
            self.code = Code::InvalidConfiguration;
            self.message = format!("{} (set by {origin})", self.message);
        }
        self
    }

    /// The exit status that goes with it.
    pub(crate) fn exit_status(&self) -> u8 {
        match self.code {
            Code::ProgramNotFound => EXIT_NOT_FOUND,
            Code::ProgramNotExecutable | Code::ProgramDenied => EXIT_NOT_EXECUTABLE,
            Code::TimedOut => EXIT_TIMED_OUT,
            Code::Interrupted => EXIT_INTERRUPTED,
            _ => EXIT_FAILURE,
        }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid.code, invalid.message).with_remedy(invalid.remedy)
    }
}

impl From<belljar_engine::Error> for Failure {
    fn from(error: belljar_engine::Error) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            causes: causes(&error),
            remedy: error.remedy().map(str::to_owned),
        }
    }
}

impl From<belljar_client::Failure> for Failure {
    fn from(failure: belljar_client::Failure) -> Self {
        let belljar_client::Failure { code, message, causes, remedy } = failure;
        Self { code, message, causes, remedy }
    }
}

impl From<belljar_client::Status> for Failure {
    fn from(status: belljar_client::Status) -> Self {
        belljar_client::Failure::from(status).into()
    }
}

impl From<belljar_server::Problem> for Failure {
    fn from(problem: belljar_server::Problem) -> Self {
        let belljar_server::Problem { code, message, causes, remedy, .. } = problem;
        Self { code, message, causes, remedy }
    }
}

impl From<belljar_backend::Error> for Failure {
    fn from(error: belljar_backend::Error) -> Self {
        Self {
            code: error.code,
            causes: causes(&error),
            message: error.message,
            remedy: error.remedy,
        }
    }
}

fn causes(error: &dyn Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_follows_the_code() {
        let check = |code, expected| assert_eq!(Failure::new(code, "x").exit_status(), expected);
        check(Code::ProgramNotFound, 127);
        check(Code::ProgramNotExecutable, 126);
        check(Code::ProgramDenied, 126);
        check(Code::TimedOut, 124);
        check(Code::Interrupted, 130);
        check(Code::SandboxNotFound, 125);
        check(Code::Internal, 125);
    }

    #[test]
    fn a_server_that_went_away_is_not_the_end_of_a_process() {
        let hint = |code| Failure::new(code, "x").with_remedy("y").watching("p1").remedy.unwrap();
        assert!(hint(Code::ServerUnreachable).contains("`belljar wait p1`"));
        assert!(hint(Code::ServerStopping).contains("`belljar logs --follow p1`"));
        assert_eq!(hint(Code::SandboxGone), "y");
    }

    #[test]
    fn causes_are_kept_in_order() {
        let inner = std::io::Error::other("inner");
        let outer = belljar_backend::Error::new(Code::StartFailed, "outer").with_source(inner);
        let failure = Failure::new(Code::StartFailed, "top").caused_by(&outer);
        assert_eq!(failure.causes, ["outer", "inner"]);
    }
}
