//! Drives a started process to its end and shows what it writes.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use belljar_codes::Code;
use belljar_engine::{Channel, Completed, Exit, Process, ProcessEvent};

use super::attend::{Attendant, Attention};
use crate::failure::Failure;
use crate::output::{Inert, is_closed};

/// How a process ended, from the outside.
#[derive(Debug)]
pub(crate) enum Ending {
    Exit(Exit),
    /// Nobody reads our output any more, so the process was ended too.
    NobodyReads,
}

/// Whether standard input has something to pass on. A terminal has not: who wants to type uses `shell`.
pub(crate) fn has_input() -> bool {
    !io::stdin().is_terminal()
}

/// Shows output as it comes. Bytes go out as they are; on a terminal they are made inert first.
pub(crate) async fn stream(mut process: Process, attention: Attention) -> Result<Ending, Failure> {
    let control = process.control();
    let attendant = Attendant::start(&control, attention)?;
    let raw = attention == Attention::Terminal;
    let mut stdout = Sink::new(Stream::Out, !raw && io::stdout().is_terminal());
    let mut stderr = Sink::new(Stream::Err, !raw && io::stderr().is_terminal());
    while let Some(event) = process.next().await {
        let written = match event {
            ProcessEvent::Started { .. } => Ok(()),
            ProcessEvent::Output { channel: Channel::Stdout, data } => stdout.write(data).await,
            ProcessEvent::Output { channel: Channel::Stderr, data } => stderr.write(data).await,
            ProcessEvent::Exited(exit) => {
                drop(attendant);
                stdout.finish().await.or_else(forgive)?;
                stderr.finish().await.or_else(forgive)?;
                return Ok(Ending::Exit(exit));
            }
        };
        match written {
            Ok(()) => {}
            Err(error) if is_closed(&error) => {
                // As a broken pipe would have ended it.
                control.cancel(Duration::ZERO).await?;
                return Ok(Ending::NobodyReads);
            }
            Err(error) => {
                control.cancel(Duration::ZERO).await?;
                return Err(unwritable(&error));
            }
        }
    }
    Err(Failure::new(Code::SandboxGone, "the sandbox ended while the command ran")
        .with_remedy("run the command again"))
}

/// Collects the output, bounded, until the process ends.
pub(crate) async fn collect(process: Process, attention: Attention) -> Result<Completed, Failure> {
    let _attendant = Attendant::start(&process.control(), attention)?;
    Ok(process.wait().await?)
}

/// Writes a file's content to standard output, as the output of a command is written.
pub(crate) async fn show(content: Vec<u8>) -> Result<(), Failure> {
    let mut stdout = Sink::new(Stream::Out, io::stdout().is_terminal());
    stdout.write(content).await.or_else(forgive)?;
    stdout.finish().await.or_else(forgive)
}

fn forgive(error: io::Error) -> Result<(), Failure> {
    if is_closed(&error) { Ok(()) } else { Err(unwritable(&error)) }
}

fn unwritable(error: &io::Error) -> Failure {
    Failure::new(Code::Internal, "the command's output cannot be written").caused_by(error)
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Out,
    Err,
}

/// One of our own output streams.
#[derive(Debug)]
struct Sink {
    stream: Stream,
    inert: Option<Inert>,
}

impl Sink {
    fn new(stream: Stream, inert: bool) -> Self {
        Self { stream, inert: inert.then(Inert::default) }
    }

    /// Writes elsewhere than on the runtime's thread: whoever reads us may be slow, and signals must get through.
    async fn write(&mut self, data: Vec<u8>) -> io::Result<()> {
        let data = match &mut self.inert {
            Some(inert) => inert.push(&data).into_bytes(),
            None => data,
        };
        let stream = self.stream;
        let written = tokio::task::spawn_blocking(move || match stream {
            Stream::Out => write_through(io::stdout().lock(), &data),
            Stream::Err => write_through(io::stderr().lock(), &data),
        });
        written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    async fn finish(mut self) -> io::Result<()> {
        match self.inert.take().map(Inert::finish) {
            None | Some("") => Ok(()),
            Some(rest) => self.write(rest.as_bytes().to_vec()).await,
        }
    }
}

fn write_through(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    to.write_all(data)?;
    to.flush()
}
