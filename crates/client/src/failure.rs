//! A request that failed, as the server told it or as the way there broke.

use std::error::Error;
use std::fmt;

use belljar_api::problem;
use belljar_codes::Code;
use tonic::Status;

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    /// Outermost first.
    pub causes: Vec<String>,
    pub remedy: Option<String>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), remedy: None }
    }

    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Adds `error` and all its own causes.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn Error) -> Self {
        self.causes.push(error.to_string());
        self.causes.extend(causes(error));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let Some(problem) = problem::from_status(&status) else { return broken(&status) };
        let code = Code::ALL.iter().copied().find(|code| code.as_str() == problem.code);
        let message = match code {
            Some(_) => problem.message,
            // A newer server may know codes that we do not.
            None => format!("{} (`{}`)", problem.message, problem.code),
        };
        Self {
            code: code.unwrap_or(Code::Internal),
            message,
            causes: Some(problem.cause).filter(|cause| !cause.is_empty()).into_iter().collect(),
            remedy: Some(problem.remedy).filter(|remedy| !remedy.is_empty()),
        }
    }
}

/// A status that no Belljar server made: the way there, or something on it.
fn broken(status: &Status) -> Failure {
    let (code, message, remedy) = match status.code() {
        tonic::Code::Unimplemented => (
            Code::RouteNotFound,
            "the server does not know this request",
            "it may be of another version; `belljar server status` tells",
        ),
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => {
            (Code::Unauthenticated, "the server did not accept the request", "check `--api-key`")
        }
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => (
            Code::RequestTooLarge,
            "a message is larger than server or client take",
            "ask for less at once",
        ),
        _ => (
            Code::ServerUnreachable,
            "the connection to the server broke",
            "try again; `belljar server status` tells whether it runs",
        ),
    };
    let mut failure = Failure::new(code, message).with_remedy(remedy);
    if !status.message().is_empty() {
        failure.causes.push(status.message().to_owned());
    }
    failure.causes.extend(causes(status));
    failure.causes.dedup();
    failure
}

/// What is behind an error, outermost first.
pub(crate) fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(error.source(), |&cause| cause.source())
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_api::v1::Problem;

    fn status(code: &str) -> Status {
        let problem = Problem {
            code: code.to_owned(),
            message: "there is no sandbox `x`".to_owned(),
            cause: "why".to_owned(),
            ..Problem::default()
        };
        problem::to_status(tonic::Code::NotFound, &problem)
    }

    #[test]
    fn a_problem_keeps_its_code_and_text() {
        let failure = Failure::from(status("sandbox-not-found"));
        assert_eq!(failure.code, Code::SandboxNotFound);
        assert_eq!(failure.message, "there is no sandbox `x`");
        assert_eq!((failure.causes.as_slice(), failure.remedy), (&["why".to_owned()][..], None));
    }

    #[test]
    fn a_code_of_a_newer_server_is_told() {
        let failure = Failure::from(status("from-the-future"));
        assert_eq!(failure.code, Code::Internal);
        assert_eq!(failure.message, "there is no sandbox `x` (`from-the-future`)");
    }

    #[test]
    fn a_broken_connection_is_not_the_servers_answer() {
        let failure = Failure::from(Status::unavailable("tcp connect error"));
        assert_eq!(failure.code, Code::ServerUnreachable);
        assert_eq!(failure.causes, ["tcp connect error"]);
    }
}
