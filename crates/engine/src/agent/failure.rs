//! What went wrong between host and agent, and what it means to a caller.

use std::sync::Arc;

use belljar_codes::Code;
use belljar_protocol::v1;
use rustix::io::Errno;

use crate::Error;

/// A request that the agent refused, or a connection that ended.
#[derive(Clone, Debug)]
pub(crate) enum AgentError {
    /// The agent answered with a failure.
    Refused(Arc<v1::Failure>),
    /// The stream to the agent ended: the sandbox is gone, or somebody closed it.
    Gone,
    /// The agent did something that the protocol does not have.
    Breach(Arc<str>),
    /// A request does not fit into a frame.
    TooLarge,
}

impl AgentError {
    pub(crate) fn gone() -> Self {
        Self::Gone
    }

    pub(crate) fn breach(what: impl Into<Arc<str>>) -> Self {
        Self::Breach(what.into())
    }

    pub(crate) fn refused(failure: v1::Failure) -> Self {
        Self::Refused(Arc::new(failure))
    }

    /// Whether the connection as such has ended.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Gone | Self::Breach(_))
    }

    pub(crate) fn is_refusal(&self, code: &str) -> bool {
        matches!(self, Self::Refused(failure) if failure.code == code)
    }

    /// The failure of a file operation.
    pub(crate) fn for_file(self, action: &str) -> Error {
        let Self::Refused(failure) = &self else { return self.into() };
        let code = match (failure.code.as_str(), errno(failure)) {
            ("not-found", _) | (_, Some(Errno::NOENT)) => Code::FileNotFound,
            ("exists", _) | (_, Some(Errno::EXIST)) => Code::FileExists,
            ("permission-denied", _) | (_, Some(Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
                Code::FileDenied
            }
            ("is-a-directory" | "not-a-file" | "not-a-directory", _)
            | (_, Some(Errno::ISDIR | Errno::NOTDIR | Errno::LOOP)) => Code::FileKindWrong,
            ("no-space", _) | (_, Some(Errno::NOSPC | Errno::DQUOT)) => Code::DiskFull,
            _ => Code::FileFailed,
        };
        let path = shown(&failure.path);
        let error = Error::new(code, format!("{action} `{path}` inside the sandbox"));
        let error = match remedy_for_file(code, action) {
            Some(remedy) => error.with_remedy(remedy),
            None => error,
        };
        error.with_source(cause(failure))
    }

    /// The failure to start a program.
    pub(crate) fn for_start(self, program: &str, workdir: &str) -> Error {
        let Self::Refused(failure) = &self else { return self.into() };
        let stage = failure.stage.as_str();
        let errno = errno(failure);
        let (code, message, remedy) = match (failure.code.as_str(), stage, errno) {
            ("program-denied", ..) => (
                Code::ProgramDenied,
                format!("`{program}` is not among the programs of this sandbox"),
                "name it with `--programs`",
            ),
            (_, "chdir", _) | ("working-directory-invalid", ..) => (
                Code::WorkingDirectoryInvalid,
                format!("cannot work in `{workdir}` inside the sandbox"),
                "choose a directory that exists inside the sandbox with `--workdir`",
            ),
            ("user-invalid", ..) | (_, "setuid" | "setgid" | "setgroups" | "user", _) => (
                Code::UserInvalid,
                "cannot become that user inside the sandbox".to_owned(),
                "use the sandbox's own user",
            ),
            ("arguments-too-large", ..) | (_, _, Some(Errno::TOOBIG)) => return too_large(),
            ("program-not-found" | "not-found", ..) | (_, "exec", Some(Errno::NOENT)) => (
                Code::ProgramNotFound,
                format!("there is no program `{program}` in the sandbox"),
                "check the name, or choose a template that has it",
            ),
            ("program-not-executable" | "permission-denied", ..)
            | (
                _,
                "exec",
                Some(
                    Errno::ACCESS
                    | Errno::NOEXEC
                    | Errno::PERM
                    | Errno::ISDIR
                    | Errno::NOTDIR
                    | Errno::LOOP,
                ),
            ) => (
                Code::ProgramNotExecutable,
                format!("`{program}` cannot be executed"),
                "check that it is a program for this machine with its executable bit set",
            ),
            ("pids-exhausted", ..) | (_, _, Some(Errno::AGAIN)) => (
                Code::PidsExhausted,
                format!("no process left for `{program}`"),
                "raise `--pids`, or end processes in the sandbox",
            ),
            (_, _, Some(Errno::NOSPC | Errno::DQUOT)) => (
                Code::DiskFull,
                format!("no disk left for `{program}`"),
                "raise `--disk`, or remove files in the sandbox",
            ),
            (_, _, Some(Errno::NOMEM)) => (
                Code::Oom,
                format!("no memory left for `{program}`"),
                "raise `--memory`, or end processes in the sandbox",
            ),
            _ => {
                return Error::new(Code::AgentFailed, format!("start `{program}`"))
                    .with_source(cause(failure));
            }
        };
        Error::new(code, message).with_remedy(remedy).with_source(cause(failure))
    }
}

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Refused(failure) => {
                let code = match failure.code.as_str() {
                    "process-not-found" => Code::ProcessNotFound,
                    _ => Code::AgentFailed,
                };
                Error::new(code, "the agent refused").with_source(cause(&failure))
            }
            AgentError::Gone => Error::new(Code::SandboxGone, "the sandbox ended while in use")
                .with_remedy("create a new sandbox"),
            AgentError::Breach(what) => Error::new(
                Code::AgentFailed,
                format!("the agent did not answer as it should: {what}"),
            ),
            AgentError::TooLarge => too_large(),
        }
    }
}

/// What to do about a file operation that failed.
fn remedy_for_file(code: Code, action: &str) -> Option<&'static str> {
    let only_looks = matches!(action, "read" | "list" | "look at" | "watch");
    Some(match code {
        Code::DiskFull => "raise `--disk`, or remove files in the sandbox",
        Code::FileDenied if only_looks => "choose a path that the sandbox's user may read",
        Code::FileDenied => "choose a writable path, such as one below `/workspace`",
        Code::FileNotFound => "check the path; `belljar files ls` lists a directory",
        Code::FileExists => "choose another path, or remove what is there with `belljar files rm`",
        Code::FileKindWrong if action == "read" => {
            "name a file; `belljar files ls` lists a directory, and `belljar cp` copies one"
        }
        Code::FileKindWrong => "check the path; `belljar files stat` tells what is there",
        _ => return None,
    })
}

/// A failure as it crossed the wire, for the end of the chain of causes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Cause(String);

fn cause(failure: &v1::Failure) -> Cause {
    let errno = errno(failure).map(|errno| std::io::Error::from(errno).to_string());
    let message = Some(&failure.message).filter(|message| !message.is_empty());
    // The code is for machines; people see it only where there is nothing else.
    let text = match (message, errno) {
        (Some(message), Some(errno)) if !message.contains(&errno) => format!("{message}: {errno}"),
        (Some(message), _) => message.clone(),
        (None, Some(errno)) => errno,
        (None, None) => failure.code.clone(),
    };
    let stage = Some(&failure.stage).filter(|stage| !stage.is_empty());
    let text = stage.map_or_else(|| text.clone(), |stage| format!("{stage}: {text}"));
    Cause(belljar_policy::shown(&text))
}

fn errno(failure: &v1::Failure) -> Option<Errno> {
    (failure.errno > 0).then(|| Errno::from_raw_os_error(failure.errno))
}

fn shown(path: &[u8]) -> String {
    belljar_policy::shown(&String::from_utf8_lossy(path))
}

fn too_large() -> Error {
    Error::new(Code::ArgumentsTooLarge, "arguments and environment are too large")
        .with_remedy("pass large values in a file or on standard input")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: &str, stage: &str, errno: Errno) -> AgentError {
        AgentError::refused(v1::Failure {
            code: code.to_owned(),
            stage: stage.to_owned(),
            errno: errno.raw_os_error(),
            path: b"/x\n".to_vec(),
            message: String::new(),
        })
    }

    #[test]
    fn file_failures_have_codes() {
        let check = |code: &str, errno: Errno, expected: Code| {
            let error = refusal(code, "open", errno).for_file("read");
            assert_eq!(error.code(), expected, "{code} {errno}");
        };
        check("not-found", Errno::NOENT, Code::FileNotFound);
        check("failed", Errno::NOENT, Code::FileNotFound);
        check("exists", Errno::EXIST, Code::FileExists);
        check("failed", Errno::ROFS, Code::FileDenied);
        check("is-a-directory", Errno::ISDIR, Code::FileKindWrong);
        check("no-space", Errno::NOSPC, Code::DiskFull);
        check("failed", Errno::IO, Code::FileFailed);
    }

    #[test]
    fn remedies_go_with_what_was_tried() {
        let remedy = |errno: Errno, action: &str| {
            refusal("failed", "open", errno).for_file(action).remedy().unwrap().to_owned()
        };
        assert!(remedy(Errno::ACCESS, "read").contains("may read"));
        assert!(remedy(Errno::ACCESS, "write").contains("writable"));
        assert!(remedy(Errno::ISDIR, "read").contains("name a file"));
        assert!(remedy(Errno::EXIST, "make").contains("another path"));
    }

    #[test]
    fn start_failures_have_codes() {
        let check = |code: &str, stage: &str, errno: Errno, expected: Code| {
            let error = refusal(code, stage, errno).for_start("x", "/");
            assert_eq!(error.code(), expected, "{code} {stage} {errno}");
        };
        check("not-found", "exec", Errno::NOENT, Code::ProgramNotFound);
        check("not-found", "chdir", Errno::NOENT, Code::WorkingDirectoryInvalid);
        check("permission-denied", "exec", Errno::ACCESS, Code::ProgramNotExecutable);
        check("failed", "exec", Errno::NOEXEC, Code::ProgramNotExecutable);
        check("program-denied", "exec", Errno::ACCESS, Code::ProgramDenied);
        check("failed", "exec", Errno::TOOBIG, Code::ArgumentsTooLarge);
        check("failed", "fork", Errno::AGAIN, Code::PidsExhausted);
        check("failed", "setuid", Errno::PERM, Code::UserInvalid);
        check("failed", "pty", Errno::IO, Code::AgentFailed);
    }

    #[test]
    fn names_from_inside_are_shown_inert() {
        let error = refusal("not-found", "open", Errno::NOENT).for_file("read");
        assert_eq!(error.to_string(), "read `/x\\n` inside the sandbox");
        assert!(error.remedy().is_some());
    }
}
