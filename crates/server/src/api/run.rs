//! A command in a session: the sandbox is found or made, files go in, the command runs, files come out.
//!
//! The session belongs to the run and not to the caller: who disconnects kills nothing, and what was made for this
//! run ends when the command does.

use std::path::PathBuf;
use std::time::SystemTime;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{Engine, ProcessId, Session, SessionRequest};
use belljar_policy::limits::format_bytes;
use belljar_policy::shown;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::oneshot;

use super::processes::outputs;
use super::sandboxes::{MAX_FILES, files, too_many_files, write_files};
use super::{Answers, Api};
use crate::action::{self, Action, Target};
use crate::call::Call;
use crate::caller::{Caller, Permission};
use crate::convert;
use crate::measure::{self, Stage};
use crate::problem::{Problem, Result};

/// What is brought back of one file.
const MAX_READ: u64 = 16 << 20;
/// What is brought back of all files: they go in one message, beside the output.
const MAX_READ_TOGETHER: u64 = 32 << 20;

impl Api {
    pub async fn run(
        &self,
        call: &Call,
        request: v1::RunRequest,
    ) -> Result<Answers<v1::RunResponse>> {
        let (action, target) = action_of(&request);
        let work = async {
            let engine = self.engine(call);
            refuse_beyond_scopes(&call.caller, &request)?;
            // Everything that can be wrong with the words is found before anything is made.
            convert::exec_request(request.command.as_ref(), None)?;
            if request.read.len() > MAX_FILES {
                return Err(too_many_files("read", request.read.len()));
            }
            files("write", &request.write)?;
            let read: Vec<PathBuf> = request.read.iter().map(PathBuf::from).collect();
            let session = engine.session(session_request(call, &request).await?);
            let mut session = Stage::Create.time(session).await?;
            call.concerns(&session.sandbox.id, &session.sandbox.tenant);
            if session.created {
                measure::created();
            }
            let since = SystemTime::now();
            let begun = self.begin_in(call, &engine, &session, &request).await;
            let (process, cap) = match begun {
                Ok(begun) => begun,
                Err(problem) => {
                    // What was made for this run goes; the first failure is the one to tell.
                    if let Err(error) = session.end().await {
                        tracing::debug!(%error, "a session was left for the next sweep");
                    }
                    return Err(problem);
                }
            };
            let id = convert::process_id(&process.process_id)?;
            session.hand_over(&id).await?;
            let follower = engine.follow(&id, Default::default()).await?;
            let started = started(&session, process);
            let (told, ended) = oneshot::channel();
            let overseer = Overseer {
                api: self.clone(),
                call: call.clone(),
                id,
                since,
                read,
                artifacts: request.collect || request.artifacts,
                told,
            };
            tokio::spawn(overseer.run(engine, session));
            let first = v1::RunResponse { started: Some(started), ..v1::RunResponse::default() };
            let first = stream::iter([Ok(first)]);
            Ok(if request.detach {
                Box::pin(first) as Answers<_>
            } else if request.collect {
                self.until_stopped(first.chain(collected(follower, cap, ended)))
            } else {
                self.until_stopped(first.chain(streamed(follower, ended)))
            })
        };
        self.act(call, action, &target, work).await
    }

    async fn begin_in(
        &self,
        call: &Call,
        engine: &Engine,
        session: &Session,
        request: &v1::RunRequest,
    ) -> Result<(v1::Process, usize)> {
        let sandbox = &session.sandbox.id;
        write_files(engine, sandbox, &files("write", &request.write)?).await?;
        let key = request.idempotency_key.as_deref();
        self.begin(call, sandbox.as_str(), request.command.as_ref(), key).await
    }
}

/// A run is more than a command where its sandbox may have to be made, or files go in or come out.
fn refuse_beyond_scopes(caller: &Caller, request: &v1::RunRequest) -> Result<()> {
    if request.session.as_ref().is_none_or(|session| session.sandbox.is_none()) {
        caller.check(Permission::Write)?;
    }
    if !request.write.is_empty() || !request.read.is_empty() {
        caller.check(Permission::Files)?;
    }
    Ok(())
}

/// What a run is done to: a sandbox, or one that is yet to be found or made.
fn action_of(request: &v1::RunRequest) -> (Action, String) {
    let session = request.session.as_ref();
    match session.and_then(|session| session.sandbox.clone()) {
        Some(sandbox) => (action::RUN.to(Target::Sandbox), sandbox),
        None => (action::RUN, session.and_then(|session| session.name.clone()).unwrap_or_default()),
    }
}

async fn session_request(call: &Call, request: &v1::RunRequest) -> Result<SessionRequest> {
    let session = request.session.clone().unwrap_or_default();
    if let Some(sandbox) = session.sandbox {
        return Ok(SessionRequest::Existing(sandbox));
    }
    let mut create = request.create.clone().unwrap_or_default();
    if create.command_hint.is_empty() {
        create.command_hint = convert::hint_of(request.command.as_ref());
    }
    if session.name.is_some() {
        create.name.clone_from(&session.name);
    }
    let mut create = convert::create_request(&call.caller, &create).await?;
    if session.ephemeral {
        return Ok(SessionRequest::Ephemeral(create));
    }
    if create.name.is_some() {
        return Ok(SessionRequest::Named(create));
    }
    create.same_shape = false;
    Ok(SessionRequest::Automatic(create))
}

fn started(session: &Session, mut process: v1::Process) -> v1::RunStarted {
    if session.destroy_after {
        process.disposition = v1::Disposition::Ephemeral.into();
    }
    v1::RunStarted {
        sandbox: Some(convert::sandbox(&session.sandbox)),
        session: Some(v1::Session {
            name: session.name.clone(),
            created: session.created,
            overflow: session.overflow,
        }),
        process: Some(process),
    }
}

/// What the command left: files that were asked for, and artifacts.
type Left = Result<(Vec<v1::FileContent>, Vec<v1::Artifact>)>;

/// Sees a run to its end, whether or not anybody listens.
struct Overseer {
    api: Api,
    call: Call,
    id: ProcessId,
    since: SystemTime,
    read: Vec<PathBuf>,
    artifacts: bool,
    told: oneshot::Sender<Left>,
}

impl Overseer {
    async fn run(self, engine: Engine, session: Session) {
        if let Err(error) = engine.wait(&self.id, None).await {
            tracing::debug!(%error, process = %self.id, "nobody saw a run to its end");
        }
        let left = match self.told.is_closed() {
            true => Ok(Default::default()),
            false => self.gather(&engine, &session).await,
        };
        if let Err(error) = session.end().await {
            tracing::debug!(%error, "a session was left for the next sweep");
        }
        // Last: who hears of the end finds what was made for the run gone.
        let _ = self.told.send(left);
    }

    async fn gather(&self, engine: &Engine, session: &Session) -> Left {
        let sandbox = &session.sandbox.id;
        let mut files = Vec::new();
        let mut left = MAX_READ_TOGETHER;
        for path in &self.read {
            let content = engine.read_file(sandbox, path, MAX_READ).await?;
            let path = path.to_string_lossy().into_owned();
            left = left.checked_sub(content.len() as u64).ok_or_else(|| too_much(&path))?;
            files.push(v1::FileContent { path, content: content.into() });
        }
        let artifacts = match self.artifacts {
            true => self.api.artifacts(&self.call, sandbox, self.since).await,
            false => Vec::new(),
        };
        Ok((files, artifacts))
    }
}

/// Output as it comes, then the end.
fn streamed(
    follower: belljar_engine::Follower,
    ended: oneshot::Receiver<Left>,
) -> impl Stream<Item = Result<v1::RunResponse>> + Send + 'static {
    let state = (Box::pin(outputs(follower)), Some(ended));
    stream::try_unfold(state, async |(mut outputs, mut ended)| {
        let Some(output) = outputs.next().await else { return Ok(None) };
        let output = output?;
        let message = match (&output.ended, ended.take()) {
            (Some(process), Some(left)) => finished(result_of(process), left).await?,
            (_, rest) => {
                ended = rest;
                v1::RunResponse { output: Some(output), ..v1::RunResponse::default() }
            }
        };
        Ok::<_, Problem>(Some((message, (outputs, ended))))
    })
}

/// Only the end, with the output in it.
fn collected(
    follower: belljar_engine::Follower,
    cap: usize,
    ended: oneshot::Receiver<Left>,
) -> impl Stream<Item = Result<v1::RunResponse>> + Send + 'static {
    stream::once(async move {
        let (info, completed) = follower.collect(cap).await?;
        let (id, sandbox, findings) = (&info.id, &info.sandbox, &info.findings);
        finished(convert::exec_response(id, sandbox, findings, completed), ended).await
    })
}

async fn finished(
    result: v1::ExecResponse,
    left: oneshot::Receiver<Left>,
) -> Result<v1::RunResponse> {
    let left = left.await.unwrap_or_else(|_| Ok(Default::default()));
    let (files, artifacts) = left.map_err(|problem| after_the_end(problem, &result))?;
    let ended = v1::RunEnded { result: Some(result), files, artifacts };
    Ok(v1::RunResponse { ended: Some(ended), ..v1::RunResponse::default() })
}

fn too_much(path: &str) -> Problem {
    let (path, most) = (shown(path), format_bytes(MAX_READ_TOGETHER));
    let message =
        format!("the files to read are larger than {most} together: `{path}` does not fit");
    Problem::new(Code::FileFailed, message)
        .with_remedy("read fewer, or keep the sandbox and copy them out")
}

/// What the command left cannot be told, but the command has ended, and nobody should run it again to learn how.
fn after_the_end(mut problem: Problem, result: &v1::ExecResponse) -> Problem {
    let (id, code) = (&result.process_id, result.exit_code);
    let ended =
        format!("the command ended with exit status {code}; `belljar logs {id}` shows its output");
    problem.remedy = Some(match problem.remedy {
        Some(remedy) => format!("{remedy}; {ended}"),
        None => ended,
    });
    problem
}

/// The end of a process whose output was told before.
fn result_of(process: &v1::Process) -> v1::ExecResponse {
    v1::ExecResponse {
        process_id: process.process_id.clone(),
        sandbox_id: process.sandbox_id.clone(),
        exit_code: process.exit_code.unwrap_or(125),
        duration_ms: process.duration_ms.unwrap_or(0),
        reason: process.reason.unwrap_or(v1::Reason::Lost.into()),
        timed_out: process.timed_out,
        limits_hit: process.limits_hit.clone(),
        usage: process.usage,
        findings: process.findings.clone(),
        ..v1::ExecResponse::default()
    }
}
