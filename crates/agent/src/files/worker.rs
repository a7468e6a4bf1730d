//! The worker's own life: put on the workload's identity, do one request, answer, end.

use std::os::fd::BorrowedFd;

use belljar_protocol::v1::{Done, Frame, frame::Body};
use belljar_protocol::{Decoder, encode};
use belljar_sys::workload::Failed;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{change, layer, list, metadata, read, watch, write};
use crate::failure::{Problem, Result};

/// What a request is done with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) working_directory: &'a [u8],
    /// Requests about the workspace layer start here.
    pub(super) layer: Option<BorrowedFd<'a>>,
}

/// The way to the agent.
#[derive(Debug)]
pub(super) struct Channel<'a> {
    socket: BorrowedFd<'a>,
    decoder: Decoder,
}

pub(super) fn run(
    socket: BorrowedFd<'_>,
    confine: impl FnOnce() -> Result<(), Failed>,
    context: &Context<'_>,
    request: Body,
) {
    let mut channel = Channel { socket, decoder: Decoder::new() };
    let answer = match confine() {
        Ok(()) => perform(&mut channel, context, request),
        Err(failed) => {
            Err(Problem::new("start-failed", "").at(failed.stage.as_str()).because(failed.errno))
        }
    };
    let answer = answer.unwrap_or_else(Body::from);
    // If nobody listens any more, nobody needs the answer.
    let _ = channel.send(answer);
}

fn perform(channel: &mut Channel<'_>, context: &Context<'_>, request: Body) -> Result<Body> {
    // Modes are given in full by the requests.
    rustix::process::umask(Mode::empty());
    if let Some(layer) = context.layer {
        return match request {
            Body::ReadFile(request) => layer::read(channel, layer, &request),
            Body::Stat(request) => layer::stat(layer, &request).map(Body::Metadata),
            Body::List(request) => layer::list(layer, &request).map(Body::Entries),
            _ => Err(Problem::new("read-only", "the workspace layer is only read")),
        };
    }
    let directory = match context.working_directory {
        [] => b"/",
        path => path,
    };
    // Relative paths start here, or nowhere: not where this worker happens to be. Absolute ones work even where the
    // directory has gone.
    if let Err(errno) = rustix::process::chdir(directory)
        && !paths(&request).iter().all(|path| path.starts_with(b"/"))
    {
        return Err(Problem::file("chdir", directory, errno));
    }
    match request {
        Body::ReadFile(request) => read::read(channel, &request),
        Body::WriteFile(request) => write::write(channel, &request),
        Body::Stat(request) => metadata::stat(&request).map(Body::Metadata),
        Body::List(request) => list::list(&request).map(Body::Entries),
        Body::MakeDirectory(request) => change::make_directory(&request).map(done),
        Body::Move(request) => change::move_file(&request).map(done),
        Body::Remove(request) => change::remove(&request).map(done),
        Body::ChangeMode(request) => change::change_mode(&request).map(done),
        Body::MakeLink(request) => change::make_link(&request).map(done),
        Body::Watch(request) => watch::watch(channel, &request),
        _ => Err(Problem::new("unknown-request", "")),
    }
}

/// The paths that a request is about.
fn paths(request: &Body) -> Vec<&[u8]> {
    match request {
        Body::ReadFile(request) => vec![&request.path],
        Body::WriteFile(request) => vec![&request.path],
        Body::Stat(request) => vec![&request.path],
        Body::List(request) => vec![&request.path],
        Body::MakeDirectory(request) => vec![&request.path],
        Body::Move(request) => vec![&request.from, &request.to],
        Body::Remove(request) => vec![&request.path],
        Body::ChangeMode(request) => vec![&request.path],
        // Where a link leads is text; only its own place counts.
        Body::MakeLink(request) => vec![&request.path],
        Body::Watch(request) => vec![&request.path],
        _ => Vec::new(),
    }
}

fn done((): ()) -> Body {
    Body::Done(Done { size: 0 })
}

impl Channel<'_> {
    /// Sends a frame; blocks while the agent does not read, which is the back-pressure.
    pub(super) fn send(&mut self, body: Body) -> Result {
        let gone = || Problem::new("cancelled", "nobody listens any more");
        let mut bytes = Vec::new();
        encode(&Frame { stream: 0, body: Some(body) }, &mut bytes)
            .map_err(|_| Problem::new("answer-too-large", ""))?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match send(self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(size) => rest = rest.get(size..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => return Err(gone()),
            }
        }
        Ok(())
    }

    /// The next frame from the host; blocks until there is one.
    pub(super) fn receive(&mut self) -> Result<Body> {
        let gone = || Problem::new("cancelled", "the host sends no more");
        let mut buffer = vec![0; 32 * 1024];
        loop {
            if let Some(frame) = self.decoder.next().map_err(|_| gone())? {
                return frame.body.ok_or_else(gone);
            }
            match recv(self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(gone()),
                Ok((size, _)) => self.decoder.push(buffer.get(..size).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(gone()),
            }
        }
    }
}
