//! One sandbox, held by a test.

use std::ffi::{OsStr, OsString};
use std::fs;

use serde_json::Value;

use crate::{Finished, Installation, Mode, Started};

/// A sandbox of an [`Installation`], destroyed with it.
#[derive(Debug)]
pub struct Sandbox<'a> {
    installation: &'a Installation,
    id: String,
}

impl<'a> Sandbox<'a> {
    pub(crate) fn new(installation: &'a Installation, id: String) -> Self {
        Self { installation, id }
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs a program inside.
    #[track_caller]
    pub fn exec<S: AsRef<OsStr>>(&self, argv: impl IntoIterator<Item = S>) -> Finished {
        self.exec_with(&[], argv)
    }

    /// Runs a program inside, with flags for `belljar exec`.
    #[track_caller]
    pub fn exec_with<S: AsRef<OsStr>>(
        &self,
        flags: &[&str],
        argv: impl IntoIterator<Item = S>,
    ) -> Finished {
        self.start_with(flags, argv).finish()
    }

    /// Starts a program inside and does not wait.
    #[must_use]
    #[track_caller]
    pub fn start_with<S: AsRef<OsStr>>(
        &self,
        flags: &[&str],
        argv: impl IntoIterator<Item = S>,
    ) -> Started {
        let mut arguments: Vec<OsString> = vec!["exec".into()];
        arguments.extend(flags.iter().map(OsString::from));
        arguments.extend([OsString::from(&self.id), "--".into()]);
        arguments.extend(argv.into_iter().map(|argument| argument.as_ref().to_owned()));
        self.installation.start(arguments)
    }

    /// What `belljar inspect` says.
    #[must_use]
    #[track_caller]
    pub fn inspect(&self) -> Value {
        self.installation.run(["inspect", "--json", &self.id]).expect_success().json()
    }

    #[track_caller]
    pub fn destroy(&self) -> Finished {
        self.installation.run(["destroy", &self.id])
    }

    /// The agent's process on the host, with its start time: the pair names one process for ever.
    #[must_use]
    #[track_caller]
    pub fn agent(&self) -> (u32, u64) {
        if self.installation.mode().is_engine() {
            let process = self.installation.daemon().first_process(&self.id);
            let start = start_of(process).map(|(start, _)| start);
            return (process, start.expect("the agent runs"));
        }
        let path = self.installation.state().join("run/sandboxes").join(&self.id).join("process");
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut words = text.split_whitespace();
        let process = words.next().and_then(|word| word.parse().ok());
        let start = words.next().and_then(|word| word.parse().ok());
        process.zip(start).unwrap_or_else(|| panic!("`{text}` names no process"))
    }

    /// Whether the agent that runs now is that one. One that was killed and waits for its parent runs no more.
    #[must_use]
    pub fn agent_is(&self, (process, start): (u32, u64)) -> bool {
        start_of(process).is_some_and(|(started, runs)| runs && started == start)
    }

    /// The mode of the installation that it belongs to.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.installation.mode()
    }
}

/// When a process started, and whether it still runs.
fn start_of(process: u32) -> Option<(u64, bool)> {
    // The 22nd field, counted after the name, which may contain anything.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let started = rest.split_whitespace().nth(19)?.parse().ok()?;
    Some((started, !rest.starts_with(['Z', 'X'])))
}
