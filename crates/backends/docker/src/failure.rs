//! What engines answer when something does not work.

use belljar_backend::Error;
use belljar_codes::Code;
use bollard::errors::Error as Answer;

const UNREACHABLE: &str =
    "start the engine, or name the one to use with BELLJAR_DOCKER_HOST (`unix://PATH`)";

/// The status that the engine answered with.
pub(crate) fn status(error: &Answer) -> Option<u16> {
    match error {
        Answer::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// It is not there.
pub(crate) fn is_missing(error: &Answer) -> bool {
    status(error) == Some(404)
}

/// Its state does not allow that, or allows nothing else.
pub(crate) fn is_conflict(error: &Answer) -> bool {
    matches!(status(error), Some(304 | 409))
}

/// What failed, in the words of `what`.
pub(crate) fn failed(what: impl Into<String>, error: Answer) -> Error {
    let (code, remedy) = match &error {
        Answer::DockerResponseServerError { .. } | Answer::DockerStreamError { .. } => {
            (Code::StartFailed, "the cause is the engine's own answer")
        }
        Answer::RequestTimeoutError => (Code::BackendUnavailable, "the engine is busy or hangs"),
        _ => (Code::BackendUnavailable, UNREACHABLE),
    };
    Error::new(code, what).with_source(error).with_remedy(remedy)
}

/// A refusal: this cannot be kept, so nothing is made.
pub(crate) fn refused(what: &str, why: &str, remedy: &str) -> Error {
    Error::new(Code::NotEnforceable, format!("the docker backend refuses `{what}`: {why}"))
        .with_remedy(remedy)
}
