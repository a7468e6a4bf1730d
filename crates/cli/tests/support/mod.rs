//! Runs the binary in a place of its own: private home, private state, no settings from outside.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::print_stderr, reason = "a test that does not run says why")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A home directory with its own state.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    embedded: bool,
}

impl Drop for Place {
    /// Nothing outlives its test, also where the test failed: neither sandboxes nor the server that commands started.
    fn drop(&mut self) {
        if self.state_dir().exists() {
            let _ = self.command(&["destroy", "--all"]).output();
            let _ = self.command(&["server", "stop"]).output();
        }
    }
}

/// What a command answered.
pub(crate) struct Answer {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: Option<i32>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), embedded: false }
    }

    /// A place whose commands do everything themselves, without a server.
    pub(crate) fn embedded() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), embedded: true }
    }

    /// A place on a host where sandboxes work; elsewhere the test says why it does not run.
    pub(crate) fn with_sandboxes() -> Option<Self> {
        Self::new().if_sandboxes_work()
    }

    /// As [`Place::embedded`], on a host where sandboxes work.
    pub(crate) fn embedded_with_sandboxes() -> Option<Self> {
        Self::embedded().if_sandboxes_work()
    }

    fn if_sandboxes_work(self) -> Option<Self> {
        let place = self;
        let answer = place.run(&["probe", "--json"]);
        if answer.status == Some(0) {
            return Some(place);
        }
        // Only a host without walls is an excuse; a command that failed is not.
        assert!(answer.json().is_array(), "{}{}", answer.stdout, answer.stderr);
        eprintln!(
            "SKIPPED: no backend with isolation works here\n{}{}",
            answer.stdout, answer.stderr
        );
        None
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The binary, ready to be started here.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belljar"));
        command
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .env("BELLJAR_STATE_DIR", self.state_dir())
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.embedded {
            command.env("BELLJAR_SERVER", "embedded");
        }
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        self.command(words).output().unwrap().into()
    }

    pub(crate) fn run_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Answer {
        self.command(words).envs(variables.iter().copied()).output().unwrap().into()
    }

    pub(crate) fn run_input(&self, words: &[&str], input: &[u8]) -> Answer {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        output.into()
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status.code(),
        }
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        let found = self.status;
        assert_eq!(found, Some(status), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, stdout: &str) -> Self {
        assert_eq!(self.stdout, stdout, "stderr: {}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, stderr: &str) -> Self {
        assert_eq!(self.stderr, stderr, "stdout: {}", self.stdout);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}
