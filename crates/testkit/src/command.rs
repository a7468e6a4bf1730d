//! Running the binary with a bound on time and on output.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::wait_until;

/// No command of a test takes longer unless the product hangs.
const DEADLINE: Duration = Duration::from_secs(120);

/// A command that ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub time: Duration,
}

/// A command that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Started {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    began: Instant,
    shown: String,
}

impl Finished {
    /// The exit status as a shell shows it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {self}"))
    }

    /// Fails the test unless the exit status is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "exit status; {self}");
        self
    }

    #[track_caller]
    pub fn expect_success(self) -> Self {
        self.expect_code(0)
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = self.text();
        let start: String = stdout.chars().take(4000).collect();
        let (code, time) = (self.code(), self.time);
        write!(f, "status {code} after {time:?}\nstdout: {start}\nstderr: {}", self.stderr)
    }
}

impl Started {
    /// Starts `command` with all three streams piped.
    #[track_caller]
    pub(crate) fn new(mut command: Command, input: &[u8]) -> Self {
        let shown = format!("{command:?}");
        let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            let input = input.to_vec();
            // The program may end without reading it all.
            thread::spawn(move || drop(stdin.write_all(&input)));
        }
        let stdout = child.stdout.take().map(BufReader::new);
        let mut stderr = child.stderr.take().expect("piped above");
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            bytes
        });
        Self { child, stdout, stderr: Some(stderr), began, shown }
    }

    /// The process of the binary on the host.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line of standard output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.stdout.as_mut().expect("only `finish` takes it");
        let read = stdout.read_line(&mut line);
        assert!(matches!(read, Ok(1..)), "{} ended without a line ({read:?})", self.shown);
        line
    }

    /// Kills the binary, as a user's `kill -9` would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end.
    #[must_use]
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let mut stdout = self.stdout.take().expect("only `finish` takes it");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            bytes
        });
        let status = wait_until(DEADLINE, || self.child.try_wait().expect("our own child"));
        let time = self.began.elapsed();
        let Some(status) = status else {
            self.kill();
            panic!("{} did not end within {DEADLINE:?}", self.shown);
        };
        let stdout = reader.join().expect("reading does not panic");
        let stderr = self.stderr.take().expect("only `finish` takes it");
        let stderr = stderr.join().expect("reading does not panic");
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Finished { status, stdout, stderr, time }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}
