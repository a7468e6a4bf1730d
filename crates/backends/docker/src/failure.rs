//! What engines answer when something does not work.

use belljar_backend::Error;
use belljar_codes::Code;
use bollard::errors::Error as Answer;

/// What an answer may have of letters: some engines say back all that they were told, and errors travel in headers.
const LONGEST_ANSWER: usize = 1000;

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
    Error::new(code, what).with_source(shortened(error)).with_remedy(remedy)
}

/// The end says more than the middle.
fn shortened(error: Answer) -> Answer {
    let cut = |text: String| {
        let letters: Vec<char> = text.chars().collect();
        match letters.len() {
            0..=LONGEST_ANSWER => text,
            length => {
                let (start, end) = (&letters[..LONGEST_ANSWER / 2], length - LONGEST_ANSWER / 2);
                start.iter().chain(&[' ', '…', ' ']).chain(&letters[end..]).collect()
            }
        }
    };
    match error {
        Answer::DockerResponseServerError { status_code, message } => {
            Answer::DockerResponseServerError { status_code, message: cut(message) }
        }
        Answer::DockerStreamError { error } => Answer::DockerStreamError { error: cut(error) },
        other => other,
    }
}

/// A refusal: this cannot be kept, so nothing is made.
pub(crate) fn refused(what: &str, why: &str, remedy: &str) -> Error {
    Error::new(Code::NotEnforceable, format!("the docker backend refuses `{what}`: {why}"))
        .with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_length_is_told_in_short() {
        let told = |message: String| {
            failed("it", Answer::DockerResponseServerError { status_code: 500, message })
                .source
                .map(|source| source.to_string())
                .unwrap_or_default()
        };
        assert!(told("no such thing".into()).ends_with("no such thing"));
        let long = told(format!("begins {} ends", "ä".repeat(100_000)));
        assert!(long.len() < 4096 && long.contains("begins") && long.ends_with("ends"), "{long}");
    }
}
