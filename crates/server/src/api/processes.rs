//! Commands: started, followed, waited for, acted on.

use std::time::Duration;

use belljar_api::v1;
use belljar_engine::{Followed, Follower, ProcessControl, ProcessQuery, SandboxId};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::convert::{self, required, seconds};
use crate::measure::Stage;
use crate::problem::{Problem, Result};

/// Between TERM and KILL.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);

impl Api {
    pub async fn exec(&self, call: &Call, request: v1::ExecRequest) -> Result<v1::ExecResponse> {
        let work = async {
            let since = std::time::SystemTime::now();
            let command = request.command.as_ref();
            let mut response = match request.idempotency_key.as_deref() {
                None => self.complete(call, &request.sandbox, command).await?,
                Some(key) => self.complete_once(call, &request.sandbox, command, key).await?,
            };
            if request.artifacts {
                let sandbox = SandboxId::parse(&response.sandbox_id)?;
                response.artifacts = self.artifacts(call, &sandbox, since).await;
            }
            Ok(response)
        };
        self.act(call, action::EXEC, &request.sandbox, work).await
    }

    /// Runs a command to its end. Output comes straight from whoever attends, and to the log besides; who asks may go
    /// away meanwhile, the command does not.
    async fn complete(
        &self,
        call: &Call,
        sandbox: &str,
        command: Option<&v1::Command>,
    ) -> Result<v1::ExecResponse> {
        let exec = convert::exec_request(command, None)?;
        note_program(call, command);
        let engine = self.engine(call);
        let id = self.subject(call, sandbox).await?;
        let process = Stage::Start.time(engine.exec(&id, exec)).await?;
        call.concerns_process(process.id());
        if let Some(input) = command.and_then(|command| command.input.clone()) {
            feed(process.control(), input);
        }
        let (process_id, findings) = (process.id().clone(), process.findings().to_vec());
        let stripped = process.stripped_environment().to_vec();
        let completed = process.wait().await?;
        let mut response = convert::exec_response(&process_id, &id, &findings, completed);
        response.stripped_environment = stripped;
        Ok(response)
    }

    /// The same where the command may have been started before, by whoever asked with that key.
    async fn complete_once(
        &self,
        call: &Call,
        sandbox: &str,
        command: Option<&v1::Command>,
        key: &str,
    ) -> Result<v1::ExecResponse> {
        let (process, cap) = self.begin(call, sandbox, command, Some(key)).await?;
        let id = convert::process_id(&process.process_id)?;
        let follower = self.engine(call).follow(&id, Default::default()).await?;
        let (info, completed) = follower.collect(cap).await?;
        let mut response =
            convert::exec_response(&info.id, &info.sandbox, &info.findings, completed);
        response.stripped_environment = process.stripped_environment;
        Ok(response)
    }

    pub async fn exec_stream(
        &self,
        call: &Call,
        request: v1::ExecStreamRequest,
    ) -> Result<Answers<v1::ProcessOutput>> {
        let work = async {
            let command = request.command.as_ref();
            let (process, _) = self
                .begin(call, &request.sandbox, command, request.idempotency_key.as_deref())
                .await?;
            let id = convert::process_id(&process.process_id)?;
            let follower = self.engine(call).follow(&id, Default::default()).await?;
            let started =
                v1::ProcessOutput { started: Some(process), ..v1::ProcessOutput::default() };
            Ok(self.until_stopped(stream::iter([Ok(started)]).chain(outputs(follower))))
        };
        self.act(call, action::EXEC, &request.sandbox, work).await
    }

    pub async fn start_process(
        &self,
        call: &Call,
        request: v1::StartProcessRequest,
    ) -> Result<v1::Process> {
        let work = async {
            let command = request.command.as_ref();
            let key = request.idempotency_key.as_deref();
            Ok(self.begin(call, &request.sandbox, command, key).await?.0)
        };
        self.act(call, action::START_PROCESS, &request.sandbox, work).await
    }

    /// Starts a command; its input, where it comes whole, is written in the background.
    pub(super) async fn begin(
        &self,
        call: &Call,
        sandbox: &str,
        command: Option<&v1::Command>,
        key: Option<&str>,
    ) -> Result<(v1::Process, usize)> {
        let exec = convert::exec_request(command, key)?;
        let cap = exec.memory_cap;
        let engine = self.engine(call);
        note_program(call, command);
        let started = Stage::Start.time(engine.start(required("sandbox", sandbox)?, exec)).await?;
        call.concerns(&started.process.sandbox, &started.process.tenant);
        call.concerns_process(&started.process.id);
        let input = command.and_then(|command| command.input.clone());
        if let (Some(input), true) = (input, started.created) {
            feed(engine.control(&started.process.id).await?, input);
        }
        let mut process = convert::process(&started.process);
        process.stripped_environment = started.stripped_environment;
        Ok((process, cap))
    }

    pub async fn get_process(
        &self,
        call: &Call,
        request: v1::GetProcessRequest,
    ) -> Result<v1::Process> {
        let work = async {
            let id = convert::process_id(&request.process_id)?;
            Ok(convert::process(&self.engine(call).process(&id).await?))
        };
        self.act(call, action::GET_PROCESS, &request.process_id, work).await
    }

    pub async fn list_processes(
        &self,
        call: &Call,
        request: v1::ListProcessesRequest,
    ) -> Result<v1::ListProcessesResponse> {
        let target = request.sandbox.clone().unwrap_or_default();
        let work = async {
            let statuses = request.statuses.iter();
            let query = ProcessQuery {
                sandbox: request.sandbox.clone(),
                statuses: statuses.filter_map(|status| convert::status_of(*status)).collect(),
                after: request.page_token.clone(),
                limit: request.page_size,
            };
            let page = self.engine(call).processes(&query).await?;
            Ok(v1::ListProcessesResponse {
                processes: page.items.iter().map(convert::listed_process).collect(),
                next_page_token: page.next,
            })
        };
        self.act(call, action::LIST_PROCESSES, &target, work).await
    }

    pub async fn follow_log(
        &self,
        call: &Call,
        request: v1::FollowLogRequest,
    ) -> Result<Answers<v1::ProcessOutput>> {
        let work = async {
            let engine = self.engine(call);
            let id = convert::process_id(&request.process_id)?;
            let since = convert::offsets(request.since.as_ref());
            let channels = request.channels.clone();
            let wanted = move |output: &Result<v1::ProcessOutput>| {
                let wanted = match output {
                    Ok(output) if output.ended.is_none() => {
                        channels.is_empty() || channels.contains(&output.channel)
                    }
                    _ => true,
                };
                std::future::ready(wanted)
            };
            let answers: Answers<v1::ProcessOutput> = if request.follow {
                self.until_stopped(outputs(engine.follow(&id, since).await?).filter(wanted))
            } else {
                Box::pin(replay(engine.log(&id, since).await?).filter(wanted))
            };
            Ok(answers)
        };
        self.act(call, action::FOLLOW_LOG, &request.process_id, work).await
    }

    pub async fn wait_process(
        &self,
        call: &Call,
        request: v1::WaitProcessRequest,
    ) -> Result<v1::Process> {
        let work = async {
            let id = convert::process_id(&request.process_id)?;
            let timeout =
                request.timeout_secs.map(|value| seconds("timeout_secs", value)).transpose()?;
            Ok(convert::process(&self.engine(call).wait(&id, timeout).await?))
        };
        self.act(call, action::WAIT_PROCESS, &request.process_id, work).await
    }

    /// Returns once the process has ended, which it does at the latest after the grace time.
    pub async fn cancel_process(
        &self,
        call: &Call,
        request: v1::CancelProcessRequest,
    ) -> Result<v1::Process> {
        let work = async {
            let engine = self.engine(call);
            let id = convert::process_id(&request.process_id)?;
            let grace = request.grace_secs.map(|value| seconds("grace_secs", value)).transpose()?;
            let known = engine.process(&id).await?;
            call.concerns(&known.sandbox, &known.tenant);
            // Cancelling what has ended is fine: it is what was wanted.
            if known.finished_at.is_none() {
                let grace = grace.unwrap_or(DEFAULT_GRACE);
                match engine.control(&id).await {
                    Ok(control) => control.cancel(grace).await.or_else(forgive_ended)?,
                    Err(error) => forgive_ended(error)?,
                }
                let patience = grace + Duration::from_secs(10);
                return Ok(convert::process(&engine.wait(&id, Some(patience)).await?));
            }
            Ok(convert::process(&known))
        };
        self.act(call, action::CANCEL_PROCESS, &request.process_id, work).await
    }

    pub async fn signal_process(
        &self,
        call: &Call,
        request: v1::SignalProcessRequest,
    ) -> Result<v1::SignalProcessResponse> {
        let work = async {
            let id = convert::process_id(&request.process_id)?;
            let engine = self.engine(call);
            let known = engine.process(&id).await?;
            call.concerns(&known.sandbox, &known.tenant);
            call.note("signal", request.signal.to_string());
            engine.control(&id).await?.signal(request.signal).await?;
            Ok(v1::SignalProcessResponse {})
        };
        self.act(call, action::SIGNAL_PROCESS, &request.process_id, work).await
    }

    /// Takes input piece by piece; the first message names the process.
    pub async fn write_input(
        &self,
        call: &Call,
        first: v1::WriteInputRequest,
        rest: impl Stream<Item = Result<v1::WriteInputRequest>> + Send,
    ) -> Result<v1::WriteInputResponse> {
        let target = first.process_id.clone();
        let work = async {
            let id = convert::process_id(&first.process_id)?;
            let engine = self.engine(call);
            let known = engine.process(&id).await?;
            call.concerns(&known.sandbox, &known.tenant);
            let control = engine.control(&id).await?;
            let mut pieces = std::pin::pin!(stream::iter([Ok(first)]).chain(rest));
            let mut written = 0;
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                self.still_let_in(call).await?;
                if !piece.data.is_empty() {
                    control.write_stdin(&piece.data).await?;
                    written += piece.data.len() as u64;
                }
                if piece.close {
                    control.close_stdin().await?;
                    break;
                }
            }
            Ok(v1::WriteInputResponse { written })
        };
        self.act(call, action::WRITE_INPUT, &target, work).await
    }

    pub async fn resize_terminal(
        &self,
        call: &Call,
        request: v1::ResizeTerminalRequest,
    ) -> Result<v1::ResizeTerminalResponse> {
        let work = async {
            let id = convert::process_id(&request.process_id)?;
            let size = request.size.unwrap_or_default();
            let (rows, columns) = convert::terminal(&size)?;
            self.engine(call).control(&id).await?.resize(rows, columns).await?;
            Ok(v1::ResizeTerminalResponse {})
        };
        self.act(call, action::RESIZE_TERMINAL, &request.process_id, work).await
    }

    /// Files of `/output` that are new. A sandbox that ended meanwhile has none to show.
    pub(super) async fn artifacts(
        &self,
        call: &Call,
        sandbox: &SandboxId,
        since: std::time::SystemTime,
    ) -> Vec<v1::Artifact> {
        match self.engine(call).artifacts(sandbox, since).await {
            Ok(artifacts) => artifacts.iter().map(convert::artifact).collect(),
            Err(error) => {
                tracing::debug!(%error, %sandbox, "artifacts were not listed");
                Vec::new()
            }
        }
    }
}

fn note_program(call: &Call, command: Option<&v1::Command>) {
    if let Some(program) = command.and_then(|command| command.argv.first()) {
        call.note("program", program);
    }
}

/// Writes a command's input in the background.
fn feed(control: ProcessControl, input: Bytes) {
    tokio::spawn(async move {
        // A process that ends without reading its input is nobody's failure.
        if control.write_stdin(&input).await.is_ok() {
            let _ = control.close_stdin().await;
        }
    });
}

fn forgive_ended(error: belljar_engine::Error) -> Result<()> {
    use belljar_codes::Code;
    match error.code() {
        Code::ProcessEnded | Code::ProcessNotFound | Code::SandboxGone => Ok(()),
        _ => Err(error.into()),
    }
}

/// What a follower learns, as messages.
pub(super) fn outputs(
    follower: Follower,
) -> impl Stream<Item = Result<v1::ProcessOutput>> + Send + 'static {
    stream::try_unfold(follower, async |mut follower| {
        let message = match follower.next().await? {
            None => return Ok(None),
            Some(Followed::Output(record)) => output(record.channel, record.offset, record.data),
            Some(Followed::Ended(info)) => v1::ProcessOutput {
                ended: Some(convert::process(&info)),
                ..v1::ProcessOutput::default()
            },
        };
        Ok::<_, Problem>(Some((message, follower)))
    })
}

/// What a log has by now, as messages.
fn replay(
    reader: belljar_engine::LogReader,
) -> impl Stream<Item = Result<v1::ProcessOutput>> + Send + 'static {
    stream::try_unfold(reader, async |mut reader| {
        tokio::task::coop::consume_budget().await;
        match reader.next_record() {
            Ok(None) => Ok(None),
            Ok(Some(record)) => {
                let message = output(record.channel, record.offset, record.data);
                Ok(Some((message, reader)))
            }
            Err(error) => Err(Problem::new(
                belljar_codes::Code::StateFailed,
                "the log of the process cannot be read",
            )
            .caused_by(&error)),
        }
    })
}

fn output(channel: belljar_engine::Channel, offset: u64, data: Bytes) -> v1::ProcessOutput {
    v1::ProcessOutput {
        channel: convert::channel(channel).into(),
        offset,
        data,
        ..v1::ProcessOutput::default()
    }
}
