//! What is done, one file for each command.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod create;
pub(crate) mod destroy;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod inspect;
pub(crate) mod launcher;
pub(crate) mod layers;
pub(crate) mod list;
pub(crate) mod probe;
pub(crate) mod run;
pub(crate) mod setup;
pub(crate) mod shell;
pub(crate) mod templates;
pub(crate) mod usage;
pub(crate) mod version;

mod attend;
mod drive;
mod perform;

/// A command that did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Success,
    /// The answer is "no", or the status is somebody else's.
    Status(u8),
}

impl Done {
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Status(status) => status,
        }
    }

    /// From the exit code of a command in a sandbox.
    pub(crate) fn from_exit_code(code: i32) -> Self {
        Self::Status(u8::try_from(code & 0xff).expect("eight bits remain"))
    }
}
