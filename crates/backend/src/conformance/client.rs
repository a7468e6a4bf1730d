//! A minimal client of the agent: one process at a time, everything it printed, how it ended.

use std::os::unix::ffi::OsStrExt;

use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Frame, exited, start};
use belljar_protocol::{Decoder, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::text;
use crate::{AgentSetup, LandlockAccess, Stream, TreeKill, UserIds};

pub(crate) struct Agent {
    stream: Stream,
    decoder: Decoder,
    next_stream: u64,
}

/// How a process ended and what it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) timed_out: bool,
    pub(crate) memory_exceeded: bool,
    pub(crate) pids_exhausted: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Agent {
    pub(crate) async fn configure(
        stream: Stream,
        setup: &AgentSetup,
        user: UserIds,
    ) -> Result<Self, String> {
        let mut agent = Self { stream, decoder: Decoder::default(), next_stream: 1 };
        let hello = v1::Hello { oldest_version: 1, newest_version: 1 };
        agent.send(0, Body::Hello(hello)).await?;
        agent.send(0, Body::Configure(configuration(setup, user))).await?;
        loop {
            match agent.receive().await?.body {
                Some(Body::Configured(_)) => return Ok(agent),
                Some(Body::Failure(failure)) => return Err(format!("configure: {failure:?}")),
                _ => {}
            }
        }
    }

    /// Runs a shell line to its end.
    pub(crate) async fn shell(&mut self, line: &str) -> Result<Ended, String> {
        self.run(line, b"", 60_000).await
    }

    /// Runs a shell line that must succeed; returns what it printed.
    pub(crate) async fn succeed(&mut self, line: &str) -> Result<String, String> {
        let ended = self.shell(line).await?;
        if ended.code == Some(0) {
            Ok(ended.stdout)
        } else {
            Err(format!("`{line}` ended with {ended:?}"))
        }
    }

    /// Runs a shell line that must fail.
    pub(crate) async fn fail(&mut self, line: &str) -> Result<Ended, String> {
        let ended = self.shell(line).await?;
        if ended.code == Some(0) {
            Err(format!("`{line}` succeeded: {ended:?}"))
        } else {
            Ok(ended)
        }
    }

    pub(crate) async fn run(
        &mut self,
        line: &str,
        input: &[u8],
        timeout_ms: u64,
    ) -> Result<Ended, String> {
        let stream = self.next_stream;
        self.next_stream += 1;
        let start = v1::Start {
            process: format!("conformance{stream}"),
            program: Some(start::Program::ShellLine(line.as_bytes().to_vec())),
            stdin: !input.is_empty(),
            timeout_ms,
            ..v1::Start::default()
        };
        self.send(stream, Body::Start(start)).await?;
        if !input.is_empty() {
            self.send(stream, Body::Input(v1::Input { data: input.to_vec(), close: true })).await?;
        }
        let mut channels = [Vec::new(), Vec::new()];
        loop {
            let frame = self.receive().await?;
            if frame.stream != stream {
                continue;
            }
            match frame.body {
                Some(Body::Output(output)) => {
                    let channel = usize::from(output.channel == v1::Channel::Stderr as i32);
                    let end = output.offset + output.data.len() as u64;
                    channels[channel].extend_from_slice(&output.data);
                    let acknowledge = v1::Acknowledge { channel: output.channel, offset: end };
                    self.send(stream, Body::Acknowledge(acknowledge)).await?;
                }
                Some(Body::Exited(exited)) => return Ok(ended(exited, channels)),
                Some(Body::Failure(failure)) => return Err(format!("`{line}`: {failure:?}")),
                _ => {}
            }
        }
    }

    async fn send(&mut self, stream: u64, body: Body) -> Result<(), String> {
        let mut bytes = Vec::new();
        encode(&Frame { stream, body: Some(body) }, &mut bytes).map_err(text)?;
        self.stream.write_all(&bytes).await.map_err(text)
    }

    async fn receive(&mut self) -> Result<Frame, String> {
        loop {
            if let Some(frame) = self.decoder.next().map_err(text)? {
                return Ok(frame);
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer).await.map_err(text)? {
                0 => return Err("the agent closed the stream".to_owned()),
                length => self.decoder.push(&buffer[..length]),
            }
        }
    }
}

fn ended(exited: v1::Exited, [stdout, stderr]: [Vec<u8>; 2]) -> Ended {
    let (code, signal) = match exited.status {
        Some(exited::Status::Code(code)) => (Some(code), None),
        Some(exited::Status::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    Ended {
        code,
        signal,
        timed_out: exited.timed_out,
        memory_exceeded: exited.memory_exceeded,
        pids_exhausted: exited.pids_exhausted,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

fn configuration(setup: &AgentSetup, user: UserIds) -> v1::Configure {
    let bytes = |path: &std::path::Path| path.as_os_str().as_bytes().to_vec();
    let optional =
        |path: &Option<std::path::PathBuf>| path.as_deref().map(bytes).unwrap_or_default();
    let mut environment: std::collections::HashMap<_, _> =
        setup.environment.clone().into_iter().collect();
    environment.insert("HOME".to_owned(), "/home/user".to_owned());
    v1::Configure {
        seccomp: setup.seccomp.clone(),
        shared_seccomp: setup.shared_seccomp.clone(),
        user: Some(v1::User {
            uid: user.uid,
            gid: user.gid,
            name: "user".to_owned(),
            home: b"/home/user".to_vec(),
            groups: Vec::new(),
        }),
        environment: environment.into_iter().collect(),
        working_directory: setup.working_directory.as_deref().map_or(b"/workspace".to_vec(), bytes),
        resource_limits: setup
            .resource_limits
            .iter()
            .map(|limit| v1::ResourceLimit {
                resource: limit.resource,
                soft: limit.soft,
                hard: limit.hard,
            })
            .collect(),
        landlock: setup
            .landlock
            .iter()
            .map(|(path, access)| v1::LandlockRule {
                path: bytes(path),
                access: match access {
                    LandlockAccess::ReadExecute => v1::landlock_rule::Access::ReadExecute,
                    LandlockAccess::ReadWrite => v1::landlock_rule::Access::ReadWrite,
                    LandlockAccess::Devices => v1::landlock_rule::Access::Devices,
                }
                .into(),
            })
            .collect(),
        tree_kill: match setup.tree_kill {
            TreeKill::Cgroup => v1::TreeKill::Cgroup,
            TreeKill::Subreaper => v1::TreeKill::Subreaper,
            TreeKill::Direct => v1::TreeKill::Direct,
        }
        .into(),
        window: 256 * 1024,
        root_capabilities: setup.root_capabilities,
        memory_watch_bytes: setup.memory_watch_bytes.unwrap_or_default(),
        service_socket: optional(&setup.service_socket),
        tool_socket: optional(&setup.tool_socket),
        workspace_layer: optional(&setup.workspace_layer),
        single_user: setup.single_user,
        ..v1::Configure::default()
    }
}
