//! Runs one command in a sandbox and reports it: live for people, as one JSON object for programs.

use std::time::Duration;

use belljar_api::v1;
use belljar_client::{Client, Streaming};
use belljar_codes::Code;
use belljar_policy::environment::dangerous;
use belljar_policy::limits::format_duration;

use super::Done;
use super::attend::Attention;
use super::control::Control;
use super::drive::{self, Ending};
use super::lost::lost;
use crate::failure::Failure;
use crate::output::{DetachShape, FileShape, RunShape, note, print, print_json};
use crate::terminal::RawTerminal;

/// Everything around one command.
pub(crate) struct Performance {
    pub(crate) client: Client,
    pub(crate) request: v1::RunRequest,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) explain: Option<v1::Explanation>,
}

impl Performance {
    pub(crate) async fn perform(mut self) -> Result<Done, Failure> {
        self.request.collect = self.json;
        let command = self.request.command.clone().unwrap_or_default();
        let attention = match (&command.terminal, command.stdin) {
            (Some(_), _) => Attention::Terminal,
            (None, true) => Attention::Input,
            (None, false) => Attention::Signals,
        };
        let detach = self.request.detach;
        let request = std::mem::take(&mut self.request);
        let mut messages = self.client.processes.run(request).await?.into_inner();
        let started = started(&mut messages).await?;
        self.tell_start(&started);
        // What counts is what the server, or a policy, made of what was asked for.
        let timeout = started.process.as_ref().and_then(|process| process.timeout_secs);
        let timeout = timeout.map(Duration::from_secs_f64);
        if detach {
            return self.leave(started);
        }
        let process_id = started.process.as_ref().map_or("", |process| &process.process_id);
        let control = Control::new(&self.client, process_id);
        let broken = |failure: Failure| failure.watching(process_id);
        if self.json {
            let ended = drive::collect(messages, &control, attention).await.map_err(broken)?;
            return self.report(started, ended, timeout);
        }
        let ending = {
            // Restored before anything else is printed.
            let _raw = match attention {
                Attention::Terminal => Some(RawTerminal::enter()?),
                Attention::Signals | Attention::Input => None,
            };
            drive::stream(messages, &control, attention).await.map_err(broken)?
        };
        let Ending::Ended(ended) = ending else { return Ok(Done::Success) };
        let result = ended.result.unwrap_or_default();
        self.tell_limits(&result.limits_hit, timeout);
        for file in &ended.files {
            drive::show(&file.content).await?;
        }
        if result.reason() == v1::Reason::Lost {
            return Err(lost(&self.client, &started.sandbox.unwrap_or_default().sandbox_id).await);
        }
        Ok(Done::from_exit_code(result.exit_code))
    }

    fn tell_start(&self, started: &v1::RunStarted) {
        if started.session.as_ref().is_some_and(|session| session.overflow) {
            let text = "the session is busy; this runs in a fresh sandbox that ends with it";
            note(self.quiet, text);
        }
        let process = started.process.as_ref();
        for name in process.iter().flat_map(|process| &process.stripped_environment) {
            let reason = dangerous(name).unwrap_or("it is not allowed");
            let text = format!("environment variable `{name}` was not passed on: {reason}");
            note(self.quiet, &text);
        }
    }

    fn leave(self, started: v1::RunStarted) -> Result<Done, Failure> {
        let process = started.process.unwrap_or_default();
        if !self.json {
            print(&format!("{}\n", process.process_id))?;
            return Ok(Done::Success);
        }
        let sandbox = started.sandbox.unwrap_or_default();
        print_json(&DetachShape {
            sandbox_id: sandbox.sandbox_id,
            session: started.session.unwrap_or_default(),
            isolation: sandbox.isolation.unwrap_or_default(),
            process,
            explain: self.explain,
        })?;
        Ok(Done::Success)
    }

    fn report(
        self,
        started: v1::RunStarted,
        ended: v1::RunEnded,
        timeout: Option<Duration>,
    ) -> Result<Done, Failure> {
        let result = ended.result.unwrap_or_default();
        let sandbox = started.sandbox.unwrap_or_default();
        let mut isolation = sandbox.isolation.unwrap_or_default();
        isolation.timeout_secs = timeout.map_or(0, whole_seconds);
        print_json(&RunShape {
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            stdout: String::from_utf8_lossy(&result.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
            reason: result.reason(),
            timed_out: result.timed_out,
            limits_hit: &result.limits_hit,
            findings: &result.findings,
            artifacts: ended.artifacts,
            sandbox_id: sandbox.sandbox_id,
            process_id: &result.process_id,
            session: started.session.unwrap_or_default(),
            isolation,
            usage: result.usage,
            files: ended.files.iter().map(FileShape::from).collect(),
            explain: self.explain,
        })?;
        Ok(Done::from_exit_code(result.exit_code))
    }

    /// A limit that was reached is named, so that nobody takes it for the command's own failure.
    fn tell_limits(&self, limits: &[String], timeout: Option<Duration>) {
        for code in limits {
            let text = if code == Code::TimedOut.as_str() {
                let limit =
                    timeout.map_or_else(String::new, |t| format!(" of {}", format_duration(t)));
                format!(
                    "the command reached its timeout{limit} and was killed; `--timeout` sets another"
                )
            } else if code == Code::Oom.as_str() {
                "the memory limit was reached and a process was killed; `--memory` sets another"
                    .to_owned()
            } else if code == Code::PidsExhausted.as_str() {
                "the limit on processes was reached; `--pids` sets another".to_owned()
            } else if code == Code::DiskFull.as_str() {
                "the disk limit was reached; `--disk` sets another".to_owned()
            } else {
                // Nothing is missing from what was shown as it came.
                continue;
            };
            note(self.quiet, &text);
        }
    }
}

async fn started(messages: &mut Streaming<v1::RunResponse>) -> Result<v1::RunStarted, Failure> {
    while let Some(message) = messages.message().await? {
        if let Some(started) = message.started {
            return Ok(started);
        }
    }
    Err(drive::ended_early())
}

/// Rounded up, so that a limit below a second is not shown as none.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
