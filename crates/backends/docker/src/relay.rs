//! Streams to the agent: a program in the container that the engine attaches us to.
//!
//! The program is the agent's own file, run as a user that no workload can be, by which the agent knows a host. Any
//! process that may ask the engine can have such a stream at any time; nothing is published and nothing listens outside.

use std::io;
use std::pin::Pin;

use belljar_backend::{Error, Result, Stream};
use belljar_codes::Code;
use bollard::Docker as Client;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::StreamExt;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::agent;

/// Frames of the engine's stream are at most this large, mostly.
const CAPACITY: usize = 256 * 1024;

type Output =
    Pin<Box<dyn futures_util::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// A new stream to the agent in `container`.
pub(crate) async fn connect(
    client: &Client,
    container: &str,
    own_kernel: bool,
) -> Result<Stream, Error> {
    let gone = |error: bollard::errors::Error| {
        Error::new(Code::SandboxGone, "the sandbox does not answer")
            .with_source(error)
            .with_remedy("it has ended; create a new one")
    };
    let options = CreateExecOptions {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        user: Some(format!("{0}:{0}", agent::HOST)),
        working_dir: Some("/".to_owned()),
        cmd: Some(agent::relay(own_kernel)),
        ..CreateExecOptions::default()
    };
    let relay = client.create_exec(container, options).await.map_err(gone)?;
    let options =
        StartExecOptions { output_capacity: Some(CAPACITY), ..StartExecOptions::default() };
    match client.start_exec(&relay.id, Some(options)).await.map_err(gone)? {
        StartExecResults::Attached { output, input } => pump(output, input).map_err(|error| {
            Error::new(Code::HostExhausted, "no socket can be made for the sandbox's stream")
                .with_source(error)
        }),
        StartExecResults::Detached => Err(Error::new(Code::Internal, "the engine did not attach")),
    }
}

/// Gives the engine's two streams the form of one socket.
fn pump(mut output: Output, mut input: Input) -> io::Result<Stream> {
    let (ours, theirs) = Stream::pair()?;
    let (mut read, mut write) = ours.into_split();
    tokio::spawn(async move {
        // Whichever side ends first, the other learns of it by the end of its stream.
        let _ = tokio::io::copy(&mut read, &mut input).await;
        let _ = input.shutdown().await;
    });
    tokio::spawn(async move {
        while let Some(Ok(piece)) = output.next().await {
            match piece {
                LogOutput::StdOut { message } => {
                    if write.write_all(&message).await.is_err() {
                        break;
                    }
                }
                other => tracing::debug!(text = %other, "the relay says"),
            }
        }
        let _ = write.shutdown().await;
    });
    Ok(theirs)
}
