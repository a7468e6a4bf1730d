//! Failures as the host gets them: a stable code, the stage, the error number, the path.

use std::io;

use belljar_protocol::v1::{Failure, frame::Body};
use rustix::io::Errno;

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    code: &'static str,
    stage: &'static str,
    errno: i32,
    path: Vec<u8>,
    message: &'static str,
}

pub(crate) type Result<T = (), E = Problem> = std::result::Result<T, E>;

impl Problem {
    pub(crate) fn new(code: &'static str, message: &'static str) -> Self {
        Self { code, stage: "", errno: 0, path: Vec::new(), message }
    }

    /// A system call on a file failed; the code follows from the error number.
    pub(crate) fn file(stage: &'static str, path: &[u8], errno: Errno) -> Self {
        Self::new(file_code(errno), "").at(stage).because(errno.raw_os_error()).about(path)
    }

    /// A system call failed that has no code of its own.
    pub(crate) fn system(code: &'static str, stage: &'static str, error: &io::Error) -> Self {
        Self::new(code, "").at(stage).because(error.raw_os_error().unwrap_or(0))
    }

    pub(crate) fn at(mut self, stage: &'static str) -> Self {
        self.stage = stage;
        self
    }

    pub(crate) fn because(mut self, errno: i32) -> Self {
        self.errno = errno;
        self
    }

    pub(crate) fn about(mut self, path: &[u8]) -> Self {
        // A long path is cut: it is for people, and the answer must stay small.
        self.path = path.get(..LONGEST_PATH).unwrap_or(path).to_vec();
        self
    }
}

const LONGEST_PATH: usize = 4096;

impl From<Problem> for Body {
    fn from(problem: Problem) -> Self {
        Self::Failure(Failure {
            code: problem.code.to_owned(),
            stage: problem.stage.to_owned(),
            errno: problem.errno,
            path: problem.path,
            message: problem.message.to_owned(),
        })
    }
}

fn file_code(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "not-found",
        Errno::ACCESS | Errno::PERM => "permission-denied",
        Errno::ISDIR => "is-a-directory",
        Errno::NOTDIR => "not-a-directory",
        Errno::EXIST => "exists",
        Errno::NOTEMPTY => "not-empty",
        Errno::NOSPC | Errno::DQUOT => "no-space",
        Errno::FBIG => "file-too-large",
        Errno::ROFS => "read-only",
        Errno::NAMETOOLONG => "name-too-long",
        Errno::LOOP => "too-many-links",
        Errno::XDEV => "cross-device",
        Errno::BUSY | Errno::TXTBSY => "busy",
        // What opening a pipe, a socket or a device without a driver gives.
        Errno::NXIO | Errno::NODEV => "not-a-file",
        Errno::INVAL => "invalid-argument",
        _ => "io-error",
    }
}

/// Shorthand for requests that ask for something impossible.
pub(crate) fn invalid(message: &'static str) -> Problem {
    Problem::new("invalid-argument", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_hints_need() {
        let Body::Failure(failure) = Problem::file("open", b"/x", Errno::NOSPC).into() else {
            unreachable!()
        };
        assert_eq!(
            (failure.code.as_str(), failure.stage.as_str(), failure.errno, failure.path.as_slice()),
            ("no-space", "open", 28, &b"/x"[..])
        );
    }
}
