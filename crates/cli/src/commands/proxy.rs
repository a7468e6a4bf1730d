//! `belljar proxy`: a sandbox behind lines of JSON, for programs that speak nothing else.

use std::io::BufRead;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::Done;
use super::attend::{Signals, see_through};
use crate::args::ProxyArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, note, print};
use crate::request;

/// What `read` brings back at most.
const MAX_READ: usize = 16 << 20;

/// The longest request: a file may be written with one.
const MAX_LINE: u64 = 64 << 20;

/// A file is sent in messages of this size.
const PIECE: usize = 1 << 20;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Request {
    Ping,
    Exec {
        cmd: String,
        timeout: Option<f64>,
        #[serde(default)]
        stream: bool,
    },
    Read {
        path: String,
    },
    Write {
        path: String,
        content: String,
    },
    Destroy,
}

#[derive(Debug, Serialize, PartialEq)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Answer {
    Pong,
    Exec {
        exit_code: i32,
        duration_ms: u64,
        stdout: String,
        stderr: String,
    },
    /// A piece of output, where `exec` asked for it as it comes.
    Output {
        stream: v1::Channel,
        data: String,
    },
    Read {
        path: String,
        content: String,
    },
    Write,
    Destroy,
    Error {
        message: String,
    },
}

pub(crate) async fn proxy(context: &Context, args: ProxyArgs) -> Result<Done, Failure> {
    let name = args.name.as_deref();
    let create = request::create_request(&context.settings, name, &args.options, Vec::new())?;
    context
        .with_client(async |mut client| {
            // Before there is anything that a signal could leave behind.
            let mut signals = Signals::watch()?;
            let creation = client.sandboxes.create_sandbox(create);
            // The server makes it in any case; only when it is there can it be taken away.
            let tell =
                || note(context.quiet, "ends when its sandbox is made; ask again to leave it");
            match see_through(creation, async || signals.ending().await, None, tell).await {
                Ok((created, asked)) => {
                    let sandbox = created?.into_inner().sandbox_id;
                    let adapter = Adapter { client: client.clone(), sandbox };
                    adapter.live(signals, asked, context.quiet).await
                }
                Err(status) => Ok(Done::Status(status)),
            }
        })
        .await
}

struct Adapter {
    client: Client,
    sandbox: String,
}

impl Adapter {
    /// Answers until the input ends, or somebody ends us, or has already; the sandbox ends with either.
    async fn live(
        mut self,
        mut signals: Signals,
        asked: Option<u8>,
        quiet: bool,
    ) -> Result<Done, Failure> {
        let (served, asked) = match asked {
            Some(_) => (Ok(()), asked),
            None => tokio::select! {
                served = self.serve_and_deliver() => (served, None),
                status = signals.ending() => (Ok(()), Some(status)),
            },
        };
        let tell = || note(quiet, "ends when its sandbox is gone; ask again to leave it");
        match see_through(self.destroy(), async || signals.ending().await, asked, tell).await {
            // One that was destroyed by request is gone already, which is fine.
            Ok((destroyed, asked)) => {
                served.and(destroyed).map(|()| asked.map_or(Done::Success, Done::Status))
            }
            Err(status) => Ok(Done::Status(status)),
        }
    }

    /// Answers until the input ends; then all of it has been written.
    async fn serve_and_deliver(&mut self) -> Result<(), Failure> {
        let (answers, written) = write_lines();
        let served = self.serve(answers).await;
        // What could not be written is why nothing was served any more.
        written.await.unwrap_or(Ok(())).and(served)
    }

    /// Answers line by line.
    async fn serve(&mut self, answers: Answers) -> Result<(), Failure> {
        let mut lines = read_lines();
        while let Some(line) = lines.recv().await {
            if line.trim().is_empty() {
                continue;
            }
            let request = match serde_json::from_str(&line) {
                Ok(request) => request,
                Err(error) => {
                    let message = format!("invalid request: {error}");
                    answers.give(&Answer::Error { message }).await?;
                    continue;
                }
            };
            let last = request == Request::Destroy;
            let answer = match self.answer(request, &answers).await {
                Ok(answer) => answer,
                Err(failure) => Answer::Error { message: sentence(&failure) },
            };
            let destroyed = last && answer == Answer::Destroy;
            answers.give(&answer).await?;
            if destroyed {
                break;
            }
        }
        Ok(())
    }

    async fn answer(&mut self, request: Request, answers: &Answers) -> Result<Answer, Failure> {
        match request {
            Request::Ping => Ok(Answer::Pong),
            Request::Exec { cmd, timeout, stream: false } => self.exec(cmd, timeout).await,
            Request::Exec { cmd, timeout, stream: true } => {
                self.exec_stream(cmd, timeout, answers).await
            }
            Request::Read { path } => self.read(path).await,
            Request::Write { path, content } => self.write(path, content).await,
            Request::Destroy => self.destroy().await.map(|()| Answer::Destroy),
        }
    }

    async fn exec(&mut self, cmd: String, timeout: Option<f64>) -> Result<Answer, Failure> {
        let request = v1::ExecRequest {
            sandbox: self.sandbox.clone(),
            command: Some(command(cmd, timeout)),
            idempotency_key: None,
            artifacts: false,
        };
        let result = self.client.processes.exec(request).await?.into_inner();
        Ok(Answer::Exec {
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            stdout: String::from_utf8_lossy(&result.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
        })
    }

    async fn exec_stream(
        &mut self,
        cmd: String,
        timeout: Option<f64>,
        answers: &Answers,
    ) -> Result<Answer, Failure> {
        let request = v1::ExecStreamRequest {
            sandbox: self.sandbox.clone(),
            command: Some(command(cmd, timeout)),
            idempotency_key: None,
        };
        let mut pieces = self.client.processes.exec_stream(request).await?.into_inner();
        let mut texts = [Text::default(), Text::default()];
        while let Some(piece) = pieces.message().await? {
            if let Some(ended) = piece.ended {
                for (text, stream) in
                    texts.iter_mut().zip([v1::Channel::Stdout, v1::Channel::Stderr])
                {
                    answers.tell(stream, text.rest()).await?;
                }
                return Ok(Answer::Exec {
                    exit_code: ended.exit_code.unwrap_or(-1),
                    duration_ms: ended.duration_ms.unwrap_or(0),
                    stdout: String::new(),
                    stderr: String::new(),
                });
            }
            let stream = piece.channel();
            let text = &mut texts[usize::from(stream == v1::Channel::Stderr)];
            answers.tell(stream, text.push(&piece.data)).await?;
        }
        Err(super::drive::ended_early())
    }

    async fn read(&mut self, path: String) -> Result<Answer, Failure> {
        let request = v1::ReadFileRequest {
            sandbox: self.sandbox.clone(),
            path: path.clone(),
            ..v1::ReadFileRequest::default()
        };
        let mut chunks = self.client.files.read_file(request).await?.into_inner();
        let mut content = Vec::new();
        while let Some(chunk) = chunks.message().await? {
            content.extend_from_slice(&chunk.data);
            if content.len() > MAX_READ {
                return Err(Failure::new(
                    Code::RequestTooLarge,
                    format!("`{path}` is larger than {} MiB", MAX_READ >> 20),
                ));
            }
        }
        match String::from_utf8(content) {
            Ok(content) => Ok(Answer::Read { path, content }),
            // Replaced bytes would look like the file and not be it.
            Err(_) => Err(Failure::new(
                Code::FileKindWrong,
                format!(
                    "`{path}` is not UTF-8 text; `belljar cp {}:{path} FILE` copies it as it is",
                    self.sandbox
                ),
            )),
        }
    }

    async fn write(&mut self, path: String, content: String) -> Result<Answer, Failure> {
        let head = v1::WriteFileRequest {
            sandbox: self.sandbox.clone(),
            path,
            make_parents: true,
            ..v1::WriteFileRequest::default()
        };
        let pieces = content.as_bytes().chunks(PIECE).map(|piece| v1::WriteFileRequest {
            data: piece.to_vec().into(),
            ..v1::WriteFileRequest::default()
        });
        let messages: Vec<_> = std::iter::once(head).chain(pieces).collect();
        let messages = tokio_stream::iter(messages);
        self.client.files.write_file(messages).await?;
        Ok(Answer::Write)
    }

    async fn destroy(&mut self) -> Result<(), Failure> {
        let request = v1::DestroySandboxRequest { sandbox: self.sandbox.clone() };
        self.client.sandboxes.destroy_sandbox(request).await?;
        Ok(())
    }
}

fn command(line: String, timeout_secs: Option<f64>) -> v1::Command {
    v1::Command { shell: Some(line), timeout_secs, ..v1::Command::default() }
}

/// All of a failure in one line.
fn sentence(failure: &Failure) -> String {
    let parts = std::iter::once(&failure.message).chain(&failure.causes);
    parts.map(String::as_str).collect::<Vec<_>>().join(": ")
}

/// Text out of bytes that come in pieces; a character may be cut in two.
#[derive(Default)]
struct Text {
    pending: Vec<u8>,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // Whatever is wrong in the middle is replaced, but a beginning at the end may be completed.
            Err(_) => self.pending.len() - unfinished(&self.pending),
            Ok(_) => self.pending.len(),
        };
        let rest = self.pending.split_off(whole);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// How many bytes at the end could begin a character.
fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .rev()
        .find(|&count| {
            let tail = &bytes[bytes.len() - count..];
            std::str::from_utf8(tail)
                .is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}

/// Where answers are given; they are written one after the other.
struct Answers(mpsc::Sender<String>);

impl Answers {
    async fn give(&self, answer: &Answer) -> Result<(), Failure> {
        let line = format!("{}\n", json_line(answer)?);
        // Why is told by whoever writes.
        let unwritable = |_| Failure::new(Code::Internal, "standard output cannot be written");
        self.0.send(line).await.map_err(unwritable)
    }

    async fn tell(&self, stream: v1::Channel, data: String) -> Result<(), Failure> {
        match data.is_empty() {
            true => Ok(()),
            false => self.give(&Answer::Output { stream, data }).await,
        }
    }
}

/// A thread of its own writes, because a write to somebody who does not read cannot be given up. It tells when all is written
/// or nothing can be any more.
fn write_lines() -> (Answers, oneshot::Receiver<Result<(), Failure>>) {
    let (sender, mut lines) = mpsc::channel::<String>(1);
    let (told, written) = oneshot::channel();
    std::thread::spawn(move || {
        let mut all = Ok(());
        while all.is_ok()
            && let Some(line) = lines.blocking_recv()
        {
            all = print(&line);
        }
        // Nobody waits for it where a signal came first.
        let _ = told.send(all);
    });
    (Answers(sender), written)
}

/// A thread of its own reads, because a read cannot be given up.
fn read_lines() -> mpsc::Receiver<String> {
    use std::io::Read;
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match stdin.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                Ok(1..) => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if sender.blocking_send(line).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_as_promised() {
        let request = |text: &str| serde_json::from_str::<Request>(text).ok();
        assert_eq!(request(r#"{"op":"ping"}"#), Some(Request::Ping));
        let exec = Request::Exec { cmd: "ls".into(), timeout: Some(5.0), stream: false };
        assert_eq!(request(r#"{"op":"exec","cmd":"ls","timeout":5}"#), Some(exec));
        assert_eq!(request(r#"{"op":"exec"}"#), None);
        assert_eq!(request(r#"{"op":"reboot"}"#), None);
        let line = |answer: &Answer| serde_json::to_string(answer).unwrap();
        assert_eq!(line(&Answer::Pong), r#"{"op":"pong"}"#);
        assert_eq!(line(&Answer::Write), r#"{"op":"write"}"#);
        let message = "no".to_owned();
        assert_eq!(line(&Answer::Error { message }), r#"{"op":"error","message":"no"}"#);
        let exec = Answer::Exec {
            exit_code: 0,
            duration_ms: 7,
            stdout: "a\n".into(),
            stderr: String::new(),
        };
        let expected = r#"{"op":"exec","exit_code":0,"duration_ms":7,"stdout":"a\n","stderr":""}"#;
        assert_eq!(line(&exec), expected);
    }

    #[test]
    fn characters_survive_being_cut() {
        let whole = "aé漢🦀z".as_bytes();
        for split in 0..=whole.len() {
            let mut text = Text::default();
            let (first, second) = whole.split_at(split);
            let joined = text.push(first) + &text.push(second) + &text.rest();
            assert_eq!(joined, "aé漢🦀z", "split at {split}");
        }
        let mut text = Text::default();
        assert_eq!(text.push(b"\xffa\xe6"), "\u{fffd}a");
        assert_eq!(text.push(b"\xbc\xa2"), "漢");
        assert_eq!(text.push(b"\xe6"), "");
        assert_eq!(text.rest(), "\u{fffd}");
    }
}
