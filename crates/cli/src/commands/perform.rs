//! Runs one command in a sandbox and reports it: live for people, as one JSON object for programs.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use belljar_codes::Code;
use belljar_engine::{Completed, Engine, ExecRequest, Exit, Sandbox, Stdin};
use belljar_policy::environment::dangerous;
use belljar_policy::limits::format_duration;

use super::Done;
use super::attend::Attention;
use super::drive::{self, Ending};
use crate::failure::Failure;
use crate::output::{
    ArtifactShape, ExplainShape, FileShape, IsolationShape, RunShape, SessionShape, note,
    print_json,
};
use crate::terminal::RawTerminal;

/// What `--read` brings back of one file.
const MAX_READ: u64 = 16 * 1024 * 1024;

/// Everything around one command.
pub(crate) struct Performance<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) session: SessionShape,
    /// Files to bring back afterwards.
    pub(crate) read: &'a [PathBuf],
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) explain: Option<ExplainShape>,
}

impl Performance<'_> {
    pub(crate) async fn perform(self, exec: ExecRequest) -> Result<Done, Failure> {
        let timeout = exec.timeout;
        let attention = match (&exec.terminal, exec.stdin) {
            (Some(_), _) => Attention::Terminal,
            (None, Stdin::Piped) => Attention::Input,
            (None, Stdin::Null) => Attention::Signals,
        };
        let started = SystemTime::now();
        let process = self.engine.exec(&self.sandbox.id, exec).await?;
        for name in process.stripped_environment() {
            let reason = dangerous(name).unwrap_or("it is not allowed");
            let text = format!("environment variable `{name}` was not passed on: {reason}");
            note(self.quiet, &text);
        }
        if self.json {
            let completed = drive::collect(process, attention).await?;
            return self.report(completed, timeout, started).await;
        }
        let ending = {
            // Restored before anything else is printed.
            let _raw = match attention {
                Attention::Terminal => Some(RawTerminal::enter()?),
                Attention::Signals | Attention::Input => None,
            };
            drive::stream(process, attention).await?
        };
        let Ending::Exit(exit) = ending else { return Ok(Done::Success) };
        self.tell_limits(&exit, timeout);
        for path in self.read {
            let content = self.engine.read_file(&self.sandbox.id, path, MAX_READ).await?;
            drive::show(content).await?;
        }
        Ok(Done::from_exit_code(exit.code()))
    }

    async fn report(
        self,
        completed: Completed,
        timeout: Option<Duration>,
        started: SystemTime,
    ) -> Result<Done, Failure> {
        let id = &self.sandbox.id;
        let exit = completed.exit;
        let mut files = Vec::new();
        for path in self.read {
            let content = self.engine.read_file(id, path, MAX_READ).await?;
            files.push(FileShape::new(path, &content));
        }
        let artifacts = self.engine.artifacts(id, started).await?;
        let mut isolation = IsolationShape::from(self.sandbox);
        isolation.timeout_secs = timeout.map_or(0, whole_seconds);
        print_json(&RunShape {
            exit_code: exit.code(),
            duration_ms: u64::try_from(exit.duration.as_millis()).unwrap_or(u64::MAX),
            stdout: String::from_utf8_lossy(&completed.stdout.data).into_owned(),
            stderr: String::from_utf8_lossy(&completed.stderr.data).into_owned(),
            reason: exit.reason.as_str(),
            timed_out: exit.timed_out,
            limits_hit: exit.limits_hit.iter().map(|code| code.as_str()).collect(),
            artifacts: artifacts.iter().map(ArtifactShape::from).collect(),
            sandbox_id: id.clone(),
            session: self.session,
            isolation,
            files,
            explain: self.explain,
        })?;
        Ok(Done::from_exit_code(exit.code()))
    }

    /// A limit that was reached is named, so that nobody takes it for the command's own failure.
    fn tell_limits(&self, exit: &Exit, timeout: Option<Duration>) {
        for code in &exit.limits_hit {
            let text = match code {
                Code::TimedOut => {
                    let limit =
                        timeout.map_or_else(String::new, |t| format!(" of {}", format_duration(t)));
                    format!(
                        "the command reached its timeout{limit} and was killed; `--timeout` sets another"
                    )
                }
                Code::Oom => {
                    "the memory limit was reached and a process was killed; `--memory` sets another"
                        .to_owned()
                }
                Code::PidsExhausted => {
                    "the limit on processes was reached; `--pids` sets another".to_owned()
                }
                Code::DiskFull => "the disk limit was reached; `--disk` sets another".to_owned(),
                // Nothing is missing from what was shown as it came.
                _ => continue,
            };
            note(self.quiet, &text);
        }
    }
}

/// Rounded up, so that a limit below a second is not shown as none.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
