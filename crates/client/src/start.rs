//! Starting the server of a state directory.
//!
//! The new server is a child that leaves our session. It tells on its standard output, in one line, that it is ready,
//! or in a JSON document why it is not; so nothing here waits by looking again and again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use belljar_codes::Code;
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use crate::Failure;
use crate::local::{Local, log};

/// A server first finishes what its predecessor left half done.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What is read of a server that does not start.
const MAX_WORDS: u64 = 64 * 1024;

/// What is shown of its log.
const LOG_TAIL: i64 = 2000;

/// Not for the server: they say where a client finds one.
const CLIENT_VARIABLES: [&str; 2] = ["BELLJAR_SERVER", "BELLJAR_API_KEY"];

/// Held while a server is looked for and started, so that one at a time does it.
#[derive(Debug)]
pub(crate) struct StartLock {
    _file: File,
}

impl StartLock {
    pub(crate) async fn take(state_dir: &Path) -> Result<Self, Failure> {
        let state_dir = state_dir.to_path_buf();
        blocking(move || {
            let refuse = |error: &std::io::Error| {
                Failure::new(
                    Code::StateFailed,
                    format!("state directory `{}` cannot be used", state_dir.display()),
                )
                .caused_by(error)
                .with_remedy("give another `--state-dir`, or make this one writable")
            };
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&state_dir)
                .map_err(|error| refuse(&error))?;
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(state_dir.join("server.start.lock"))
                .map_err(|error| refuse(&error))?;
            flock(&file, FlockOperation::LockExclusive).map_err(|error| refuse(&error.into()))?;
            Ok(Self { _file: file })
        })
        .await
    }
}

/// Starts a server and waits until it listens.
pub(crate) async fn start(local: &Local) -> Result<(), Failure> {
    let mut child = spawn(local)?;
    let stdout = child.stdout.take().expect("it was piped");
    let words = blocking(move || Ok(first_words(stdout)));
    match tokio::time::timeout(START_TIMEOUT, words).await {
        Ok(Ok(Words::Ready)) => Ok(()),
        Ok(Ok(Words::Failed(failure))) => Err(failure),
        Ok(Ok(Words::Nothing)) => Err(did_not_start(local)),
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            // Its pipe closes with it, and so ends who reads.
            let _ = child.kill();
            Err(did_not_start(local))
        }
    }
}

fn spawn(local: &Local) -> Result<Child, Failure> {
    let refuse = |error: &std::io::Error| {
        Failure::new(Code::ServerUnreachable, "a server cannot be started").caused_by(error)
    };
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log(&local.state_dir))
        .map_err(|error| refuse(&error))?;
    let mut command = Command::new(&local.program);
    command
        .args(["serve", "--automatic", "--json", "--state-dir"])
        .arg(&local.state_dir)
        // No directory is kept busy by a server that nobody asked for by name.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    CLIENT_VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.spawn().map_err(|error| refuse(&error))
}

enum Words {
    Ready,
    Failed(Failure),
    Nothing,
}

/// What a failure looks like on the command line's standard output.
#[derive(Deserialize)]
struct FailureDocument {
    error: FailureWords,
}

#[derive(Deserialize)]
struct FailureWords {
    code: String,
    message: String,
    cause: Option<String>,
    remedy: Option<String>,
}

fn first_words(stdout: ChildStdout) -> Words {
    let mut reader = BufReader::new(stdout.take(MAX_WORDS));
    let mut text = String::new();
    // Ready is a whole document in the first line; a failure takes several and then ends.
    if reader.read_line(&mut text).is_ok()
        && serde_json::from_str::<serde_json::Value>(&text).is_ok()
    {
        return Words::Ready;
    }
    let _ = reader.read_to_string(&mut text);
    match serde_json::from_str::<FailureDocument>(&text) {
        Ok(document) => Words::Failed(document.error.into()),
        Err(_) => Words::Nothing,
    }
}

impl From<FailureWords> for Failure {
    fn from(words: FailureWords) -> Self {
        let code = Code::ALL.iter().copied().find(|code| code.as_str() == words.code);
        Self {
            code: code.unwrap_or(Code::Internal),
            message: words.message,
            causes: words.cause.into_iter().collect(),
            remedy: words.remedy,
        }
    }
}

fn did_not_start(local: &Local) -> Failure {
    let path = log(&local.state_dir);
    let mut failure = Failure::new(Code::ServerUnreachable, "the server did not start")
        .with_remedy(format!("look into `{}`", path.display()));
    failure.causes.extend(tail(&path).filter(|text| !text.is_empty()));
    failure
}

fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = i64::try_from(file.metadata().ok()?.len()).ok()?;
    file.seek(SeekFrom::End(-length.min(LOG_TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL.unsigned_abs()).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Failure::new(Code::Internal, "a task ended early").caused_by(&error))
    })
}
