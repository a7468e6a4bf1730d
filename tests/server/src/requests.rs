//! Requests in few words.

use belljar_api::v1;
use belljar_client::{Client, Failure, Status};
use belljar_codes::Code;

/// Everything that a process wrote, and its end if it was seen.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub ended: Option<v1::Process>,
}

/// A line for the shell, without a time limit.
#[must_use]
pub fn shell(line: &str) -> v1::Command {
    v1::Command { shell: Some(line.to_owned()), timeout_secs: Some(0.0), ..v1::Command::default() }
}

/// The stable code of a refusal.
#[must_use]
pub fn code(status: Status) -> Code {
    Failure::from(status).code
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    code(answer.map(|_| ()).expect_err("it was not refused"))
}

/// A new sandbox's id.
pub async fn create(client: &Client) -> String {
    create_with(client, v1::CreateSandboxRequest::default()).await.sandbox_id
}

pub async fn create_with(client: &Client, request: v1::CreateSandboxRequest) -> v1::Sandbox {
    client.sandboxes.clone().create_sandbox(request).await.expect("created").into_inner()
}

pub async fn destroy(client: &Client, sandbox: &str) {
    let request = v1::DestroySandboxRequest { sandbox: sandbox.to_owned() };
    client.sandboxes.clone().destroy_sandbox(request).await.expect("destroyed");
}

pub async fn exec(client: &Client, sandbox: &str, line: &str) -> v1::ExecResponse {
    let request = v1::ExecRequest {
        sandbox: sandbox.to_owned(),
        command: Some(shell(line)),
        ..v1::ExecRequest::default()
    };
    client.processes.clone().exec(request).await.expect("executed").into_inner()
}

/// A process that nobody reads.
pub async fn start(client: &Client, sandbox: &str, command: v1::Command) -> v1::Process {
    let request = v1::StartProcessRequest {
        sandbox: sandbox.to_owned(),
        command: Some(command),
        idempotency_key: None,
    };
    client.processes.clone().start_process(request).await.expect("started").into_inner()
}

/// The record of a process once it has ended.
pub async fn wait(client: &Client, process: &str) -> v1::Process {
    try_wait(client, process).await.expect("waited")
}

/// The record of a process once it has ended, or as it is after a minute.
///
/// # Errors
/// Where the server refuses or breaks off.
pub async fn try_wait(client: &Client, process: &str) -> Result<v1::Process, Status> {
    let request =
        v1::WaitProcessRequest { process_id: process.to_owned(), timeout_secs: Some(60.0) };
    client.processes.clone().wait_process(request).await.map(|answer| answer.into_inner())
}

/// The record of a process as it is.
///
/// # Errors
/// Where the server refuses or breaks off.
pub async fn get(client: &Client, process: &str) -> Result<v1::Process, Status> {
    let request = v1::GetProcessRequest { process_id: process.to_owned() };
    client.processes.clone().get_process(request).await.map(|answer| answer.into_inner())
}

/// All that was kept of a process's output: what is there by now, or to its end.
///
/// # Errors
/// Where the server refuses or breaks off.
pub async fn read_log(client: &Client, process: &str, follow: bool) -> Result<Written, Status> {
    let request = v1::FollowLogRequest {
        process_id: process.to_owned(),
        follow,
        ..v1::FollowLogRequest::default()
    };
    let mut stream = client.processes.clone().follow_log(request).await?.into_inner();
    let mut written = Written::default();
    while let Some(output) = stream.message().await? {
        if written.has_gap(&output) {
            let record = get(client, process).await;
            panic!("at {} of {} kept: {record:?}", output.offset, written.stdout.len());
        }
        written.add(output);
    }
    Ok(written)
}

impl Written {
    fn has_gap(&self, output: &v1::ProcessOutput) -> bool {
        let kept = match output.channel() {
            v1::Channel::Stdout => self.stdout.len(),
            v1::Channel::Stderr => self.stderr.len(),
            v1::Channel::Unspecified => return false,
        };
        output.ended.is_none() && output.offset != kept as u64
    }

    /// Adds a piece, which begins where the one before it ended.
    #[track_caller]
    pub fn add(&mut self, output: v1::ProcessOutput) {
        if output.ended.is_some() {
            self.ended = output.ended;
            return;
        }
        let channel = match output.channel() {
            v1::Channel::Stdout => &mut self.stdout,
            v1::Channel::Stderr => &mut self.stderr,
            v1::Channel::Unspecified => return,
        };
        assert_eq!(output.offset, channel.len() as u64, "a gap or a repetition");
        channel.extend_from_slice(&output.data);
    }
}
