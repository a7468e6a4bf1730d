//! Shows what a process writes, as it comes.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use belljar_api::v1;
use belljar_client::Streaming;
use belljar_codes::Code;

use super::attend::{Attendant, Attention};
use super::control::Control;
use crate::failure::Failure;
use crate::output::{Inert, is_closed};

/// How a run ended, from the outside.
#[derive(Debug)]
pub(crate) enum Ending {
    Ended(Box<v1::RunEnded>),
    /// Nobody reads our output any more, so the process was ended too.
    NobodyReads,
}

/// The null device: character device 1:3.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// Whether standard input has something to pass on. A terminal has not: who wants to type uses `shell`. Nor has the
/// null device, which the command gets anyway.
pub(crate) fn has_input() -> bool {
    let is_null = rustix::fs::fstat(io::stdin()).is_ok_and(|found| {
        let device = found.st_rdev;
        let is_device = rustix::fs::FileType::from_raw_mode(found.st_mode).is_char_device();
        is_device && (rustix::fs::major(device), rustix::fs::minor(device)) == NULL_DEVICE
    });
    !is_null && !io::stdin().is_terminal()
}

/// Follows a run to its end. Output goes out as it is; on a terminal it is made inert first.
pub(crate) async fn stream(
    mut messages: Streaming<v1::RunResponse>,
    control: &Control,
    attention: Attention,
) -> Result<Ending, Failure> {
    let attendant = Attendant::start(control, attention)?;
    let mut screen = Screen::new(attention == Attention::Terminal);
    while let Some(message) = messages.message().await? {
        if let Some(ended) = message.ended {
            drop(attendant);
            screen.finish().await?;
            return Ok(Ending::Ended(Box::new(ended)));
        }
        let Some(output) = message.output else { continue };
        let Err(error) = screen.write(output).await else { continue };
        // As a broken pipe would have ended it; the run is over when what was made for it is gone.
        control.cancel(Duration::ZERO).await?;
        while messages.message().await?.is_some() {}
        return if is_closed(&error) { Ok(Ending::NobodyReads) } else { Err(unwritable(&error)) };
    }
    Err(ended_early())
}

/// Waits for the end of a run whose output comes with it.
pub(crate) async fn collect(
    mut messages: Streaming<v1::RunResponse>,
    control: &Control,
    attention: Attention,
) -> Result<v1::RunEnded, Failure> {
    let _attendant = Attendant::start(control, attention)?;
    while let Some(message) = messages.message().await? {
        if let Some(ended) = message.ended {
            return Ok(ended);
        }
    }
    Err(ended_early())
}

pub(crate) fn ended_early() -> Failure {
    Failure::new(Code::SandboxGone, "the sandbox ended while the command ran")
        .with_remedy("run the command again")
}

/// Writes a file's content to standard output, as the output of a command is written.
pub(crate) async fn show(content: &[u8]) -> Result<(), Failure> {
    let mut stdout = Sink::new(Stream::Out, io::stdout().is_terminal());
    stdout.write(content.to_vec()).await.or_else(forgive)?;
    stdout.finish().await.or_else(forgive)
}

pub(crate) fn forgive(error: io::Error) -> Result<(), Failure> {
    if is_closed(&error) { Ok(()) } else { Err(unwritable(&error)) }
}

pub(crate) fn unwritable(error: &io::Error) -> Failure {
    Failure::new(Code::Internal, "the command's output cannot be written").caused_by(error)
}

/// Both of our output streams.
#[derive(Debug)]
pub(crate) struct Screen {
    stdout: Sink,
    stderr: Sink,
}

impl Screen {
    /// With `raw` nothing is made inert: a person has handed over the terminal.
    pub(crate) fn new(raw: bool) -> Self {
        Self {
            stdout: Sink::new(Stream::Out, !raw && io::stdout().is_terminal()),
            stderr: Sink::new(Stream::Err, !raw && io::stderr().is_terminal()),
        }
    }

    /// Shows one piece of output.
    pub(crate) async fn write(&mut self, output: v1::ProcessOutput) -> io::Result<()> {
        let sink = match output.channel() {
            v1::Channel::Stderr => &mut self.stderr,
            v1::Channel::Stdout | v1::Channel::Unspecified => &mut self.stdout,
        };
        if output.data.is_empty() {
            return Ok(());
        }
        sink.write(output.data.into()).await
    }

    /// Shows what is left when no more comes.
    pub(crate) async fn finish(self) -> Result<(), Failure> {
        self.stdout.finish().await.or_else(forgive)?;
        self.stderr.finish().await.or_else(forgive)
    }
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
