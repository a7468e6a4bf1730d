//! Acting on a process that runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::ProcessId;
use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, kill};
use tokio::sync::watch;

use crate::agent::{AgentError, Connection, Stream, WINDOW};
use crate::{Error, Result};

/// A handle to a process, for as many holders as wanted.
#[derive(Clone, Debug)]
pub struct ProcessControl {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    process: ProcessId,
    /// Whether there is anything inside that input could go to.
    takes_input: bool,
    way: Mutex<Way>,
    /// How far input came before the stream; `None` until the agent has said so.
    input_at: watch::Sender<Option<u64>>,
    /// Holding it is the right to write: writers take turns.
    stdin: tokio::sync::Mutex<Stdin>,
}

/// How the process is reached.
#[derive(Clone, Debug)]
enum Way {
    /// By its attendant's stream; replaced when the connection was lost and made anew.
    Attended(Arc<Stream>),
    /// Another program attends to it: everything but its input can be had.
    Afar(Arc<Connection>),
}

#[derive(Debug, Default)]
struct Stdin {
    /// What was last written to.
    stream: Option<Arc<Stream>>,
    /// Since the process began, as the agent counts it.
    sent: u64,
    closed: bool,
}

impl ProcessControl {
    pub(super) fn new(process: ProcessId, takes_input: bool, stream: Arc<Stream>) -> Self {
        Self::by(process, takes_input, Way::Attended(stream))
    }

    /// For a process that another program attends to.
    pub(super) fn from_afar(
        process: ProcessId,
        takes_input: bool,
        connection: Arc<Connection>,
    ) -> Self {
        Self::by(process, takes_input, Way::Afar(connection))
    }

    fn by(process: ProcessId, takes_input: bool, way: Way) -> Self {
        let shared = Shared {
            process,
            takes_input,
            way: Mutex::new(way),
            input_at: watch::Sender::new(None),
            stdin: tokio::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Input goes on where the agent says that it came to.
    pub(super) fn input_goes_on(&self, offset: u64) {
        self.shared.input_at.send_replace(Some(offset));
    }

    pub(super) fn replace_stream(&self, stream: Arc<Stream>) {
        self.shared.input_at.send_replace(None);
        *self.shared.way.lock().unwrap_or_else(PoisonError::into_inner) = Way::Attended(stream);
    }

    /// Writes to standard input, waiting while the process does not read.
    pub async fn write_stdin(&self, data: &[u8]) -> Result<()> {
        let process = &self.shared.process;
        if !self.shared.takes_input {
            let message = format!("process `{process}` was started without standard input");
            return Err(Error::new(Code::InvalidArgument, message)
                .with_remedy("start it with `stdin`, as `belljar run --detach --stdin` does"));
        }
        let mut stdin = self.shared.stdin.lock().await;
        if stdin.closed {
            let message = format!("the standard input of process `{process}` is closed");
            return Err(Error::new(Code::InvalidArgument, message)
                .with_remedy("start it again, and close its input only after the last write"));
        }
        for piece in data.chunks(MAX_CHUNK) {
            let stream = self.stream()?;
            if stdin.stream.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &stream)) {
                stdin.sent = self.input_at().await;
                stdin.stream = Some(Arc::clone(&stream));
            }
            let end = stdin.sent + piece.len() as u64;
            let taken = end.saturating_sub(WINDOW as u64);
            stream.acknowledged(taken).await.map_err(|error| self.ended(error))?;
            let input = v1::Input { data: piece.to_vec(), close: false };
            stream.send(Body::Input(input)).await.map_err(|error| self.ended(error))?;
            stdin.sent = end;
        }
        Ok(())
    }

    /// Says that no more input comes. Closing twice is fine.
    pub async fn close_stdin(&self) -> Result<()> {
        let mut stdin = self.shared.stdin.lock().await;
        if !stdin.closed {
            let input = v1::Input { data: Vec::new(), close: true };
            self.stream()?.post(Body::Input(input)).map_err(|error| self.ended(error))?;
            stdin.closed = true;
        }
        Ok(())
    }

    /// Sends a signal to the process group; SIGKILL goes to the whole tree.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        const SIGKILL: i32 = 9;
        if !(1..=64).contains(&signal) {
            return Err(Error::new(Code::InvalidArgument, format!("{signal} is not a signal"))
                .with_remedy("use a number from 1 to 64"));
        }
        let scope = if signal == SIGKILL { kill::Scope::Tree } else { kill::Scope::Group };
        let process = self.shared.process.as_str().to_owned();
        self.ask(Body::Kill(v1::Kill { process, signal, scope: scope as i32 })).await
    }

    /// Tells the process's terminal its size.
    pub async fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        let process = self.shared.process.as_str().to_owned();
        let (rows, columns) = (rows.into(), columns.into());
        self.ask(Body::Resize(v1::Resize { process, rows, columns })).await
    }

    /// Ends the process: TERM to its group, and KILL to its tree after `grace`. Returns when that has begun.
    pub async fn cancel(&self, grace: Duration) -> Result<()> {
        let process = self.shared.process.as_str().to_owned();
        let grace_ms = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
        self.ask(Body::Cancel(v1::Cancel { process, grace_ms })).await
    }

    async fn ask(&self, body: Body) -> Result<()> {
        let connection = match self.way() {
            Way::Attended(stream) => Arc::clone(stream.connection()),
            Way::Afar(connection) => connection,
        };
        connection.ask(body).await.map(drop).map_err(|error| self.ended(error))
    }

    fn stream(&self) -> Result<Arc<Stream>> {
        match self.way() {
            Way::Attended(stream) => Ok(stream),
            Way::Afar(_) => {
                let process = &self.shared.process;
                Err(Error::new(
                    Code::ConflictingOptions,
                    format!("another program holds the input of process `{process}`"),
                )
                .with_remedy("write through the program that started it, or end that program"))
            }
        }
    }

    async fn input_at(&self) -> u64 {
        let mut known = self.shared.input_at.subscribe();
        let known = known.wait_for(Option::is_some).await;
        known.ok().and_then(|offset| *offset).unwrap_or(0)
    }

    fn way(&self) -> Way {
        self.shared.way.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ended(&self, error: AgentError) -> Error {
        let gone = error.is_broken()
            || error.is_refusal("process-not-found")
            || error.is_refusal("not-running");
        if gone {
            let process = &self.shared.process;
            Error::new(Code::ProcessEnded, format!("process `{process}` has ended"))
        } else {
            error.into()
        }
    }
}
