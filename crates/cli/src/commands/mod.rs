//! What is done, one file for each command.

pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod destroy;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod forward;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod launcher;
pub(crate) mod layers;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod policy;
pub(crate) mod ports;
pub(crate) mod probe;
pub(crate) mod processes;
pub(crate) mod proxy;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod setup;
pub(crate) mod shell;
pub(crate) mod snapshot;
pub(crate) mod templates;
pub(crate) mod tenants;
pub(crate) mod token;
pub(crate) mod usage;
pub(crate) mod version;
pub(crate) mod webhooks;

mod attend;
mod control;
mod drive;
mod fetch;
mod lost;
mod perform;
mod transfer;

use belljar_codes::Code;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The numbers of words such as `ready` or `process-ended`, as the API has them.
fn enumeration<E: DeserializeOwned + Into<i32>>(words: &[String]) -> Result<Vec<i32>, Failure> {
    let number = |word: &String| {
        let value = serde_json::Value::String(word.replace('-', "_"));
        serde_json::from_value::<E>(value).map(Into::into).map_err(|error| {
            Failure::new(
                Code::InvalidArgument,
                format!("`{}` is not known", belljar_policy::shown(word)),
            )
            .caused_by(&error)
            .with_remedy("choose one of those that exist")
        })
    };
    words.iter().map(number).collect()
}

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
