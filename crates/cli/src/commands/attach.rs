//! `belljar attach`: follows a process and types to it, without owning it.

use std::io::{IsTerminal, stdin, stdout};

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::Done;
use super::attend::{pass_size, read_stdin};
use super::control::Control;
use super::drive::{self, Screen, ended_early, unwritable};
use super::lost::lost;
use crate::args::AttachArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{is_closed, note};
use crate::terminal::RawTerminal;

pub(crate) async fn attach(context: &Context, args: &AttachArgs) -> Result<Done, Failure> {
    context
        .with_client(async |mut client| {
            let wanted = v1::GetProcessRequest { process_id: args.process.clone() };
            let process = client.processes.get_process(wanted).await?.into_inner();
            let since = match args.since {
                Some(since) => v1::Offsets { stdout: since, stderr: since },
                None => process.log_end.unwrap_or_default(),
            };
            let attachment = Attachment::begin(&client, args, &process, context.quiet)?;
            let end = attachment.follow(&client, since).await;
            let end = end.map_err(|failure| failure.watching(&args.process))?;
            match end {
                Some(code) => Ok(Done::from_exit_code(code)),
                None => {
                    note(context.quiet, "left; the process goes on");
                    Ok(Done::Success)
                }
            }
        })
        .await
}

/// What is passed on, until dropped.
struct Attachment {
    process_id: String,
    raw: Option<RawTerminal>,
    tasks: Vec<JoinHandle<()>>,
    /// Answered when somebody pressed the keys that leave.
    left: oneshot::Receiver<()>,
}

impl Attachment {
    fn begin(
        client: &Client,
        args: &AttachArgs,
        process: &v1::Process,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let control = Control::new(client, &process.process_id);
        let at_keyboard = stdin().is_terminal() && stdout().is_terminal();
        let keyboard = process.terminal && at_keyboard && !args.no_stdin;
        let (leave, left) = oneshot::channel();
        let mut tasks = Vec::new();
        let raw = keyboard.then(RawTerminal::enter).transpose()?;
        if keyboard {
            let mut keys = LeavingKeys { pending: false, leave: Some(leave) };
            let input = read_stdin(move |piece| keys.filter(&piece));
            tasks.push(tokio::spawn(type_keys(control.clone(), input)));
            tasks.push(tokio::spawn(pass_size(control)?));
        } else if !args.no_stdin && (stdin().is_terminal() || drive::has_input()) {
            let input = read_stdin(Some);
            tasks.push(tokio::spawn(pass_input(control, input, quiet)));
        }
        Ok(Self { process_id: process.process_id.clone(), raw, tasks, left })
    }

    /// The exit code, or `None` where somebody left.
    async fn follow(mut self, client: &Client, since: v1::Offsets) -> Result<Option<i32>, Failure> {
        let request = v1::FollowLogRequest {
            process_id: self.process_id.clone(),
            since: Some(since),
            channels: Vec::new(),
            follow: true,
        };
        let mut pieces = client.processes.clone().follow_log(request).await?.into_inner();
        let mut screen = Screen::new(self.raw.is_some());
        let mut may_leave = true;
        loop {
            let piece = tokio::select! {
                piece = pieces.message() => piece?,
                left = &mut self.left, if may_leave => {
                    if left.is_ok() {
                        return Ok(None);
                    }
                    may_leave = false;
                    continue;
                }
            };
            let Some(piece) = piece else { return Err(ended_early()) };
            if let Some(ended) = &piece.ended {
                screen.finish().await?;
                if ended.reason() == v1::Reason::Lost {
                    return Err(lost(client, &ended.sandbox_id).await);
                }
                return Ok(Some(
                    ended.exit_code.unwrap_or(i32::from(crate::failure::EXIT_FAILURE)),
                ));
            }
            match screen.write(piece).await {
                Ok(()) => {}
                Err(error) if is_closed(&error) => return Ok(None),
                Err(error) => return Err(unwritable(&error)),
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A process that has ended is told by its output; one that takes no input is told here.
async fn pass_input(control: Control, input: mpsc::Receiver<Vec<u8>>, quiet: bool) {
    let Err(status) = control.input(input).await else { return };
    let failure = Failure::from(status);
    if failure.code == Code::InvalidArgument {
        note(quiet, &format!("input is not passed on: {}", failure.message));
    }
}

/// Keys go in as they come; leaving does not close the terminal for others.
async fn type_keys(control: Control, input: mpsc::Receiver<Vec<u8>>) {
    let _ = control.keys(input).await;
}

const CONTROL_P: u8 = 0x10;
const CONTROL_Q: u8 = 0x11;

/// Looks for Ctrl-P Ctrl-Q among the keys.
struct LeavingKeys {
    /// Ctrl-P was pressed and is held back.
    pending: bool,
    leave: Option<oneshot::Sender<()>>,
}

impl LeavingKeys {
    /// What is to be passed on; `None` once somebody leaves.
    fn filter(&mut self, keys: &[u8]) -> Option<Vec<u8>> {
        let mut passed = Vec::with_capacity(keys.len() + 1);
        for &key in keys {
            match (std::mem::take(&mut self.pending), key) {
                (true, CONTROL_Q) => {
                    if let Some(leave) = self.leave.take() {
                        // Who follows may have ended by itself.
                        let _ = leave.send(());
                    }
                    return None;
                }
                (held, key) => {
                    passed.extend(held.then_some(CONTROL_P));
                    self.pending = key == CONTROL_P;
                    passed.extend((!self.pending).then_some(key));
                }
            }
        }
        Some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_leave_are_found_in_pieces_and_others_pass() {
        let (leave, mut left) = oneshot::channel();
        let mut keys = LeavingKeys { pending: false, leave: Some(leave) };
        assert_eq!(keys.filter(b"ab").unwrap(), b"ab");
        assert_eq!(keys.filter(b"\x10").unwrap(), b"");
        assert_eq!(keys.filter(b"x\x11").unwrap(), b"\x10x\x11");
        assert!(left.try_recv().is_err());
        assert_eq!(keys.filter(b"y\x10").unwrap(), b"y");
        assert_eq!(keys.filter(b"\x11z"), None);
        assert!(left.try_recv().is_ok());
    }
}
