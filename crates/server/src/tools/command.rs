//! A tool that is a program of the host.
//!
//! It gets the arguments on its input and next to nothing else: a few variables, no descriptors, `/` as its directory.
//! What it writes is the result, up to a limit; what it writes to standard error goes to the server's log, because it may
//! say things about the host. Whatever it started ends with it: its group is killed, and when it takes too long, writes
//! too much or nobody waits any more, so is everything that left the group but carries the call's mark.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar_codes::Code;
use belljar_engine::{MAX_TOOL_RESULT, ToolCall, ToolFailure};
use belljar_policy::document::Tool;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::sync::Semaphore;

use super::{Result, object_text, result_of, too_slow};

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The variable that everything a call started carries.
const MARK: &str = "BELLJAR_TOOL_CALL";
/// What of standard error is looked at.
const MAX_COMPLAINT: usize = 4 << 10;
/// Programs that run at the same time; others wait for their turn, on their own time.
const MAX_AT_ONCE: usize = 64;
/// How often leftovers are looked for: one may start another while it is looked at.
const ROUNDS: u32 = 10;

/// Runs the tools that are programs.
pub(super) struct Commands {
    places: Semaphore,
}

impl Default for Commands {
    fn default() -> Self {
        Self { places: Semaphore::new(MAX_AT_ONCE) }
    }
}

impl Commands {
    pub(super) async fn run(&self, tool: &Tool, call: &ToolCall) -> Result<String> {
        let ended = tokio::time::timeout(tool.timeout(), self.run_to_the_end(tool, call)).await;
        ended.unwrap_or_else(|_| Err(too_slow(&tool.name, tool.timeout())))
    }

    async fn run_to_the_end(&self, tool: &Tool, call: &ToolCall) -> Result<String> {
        let name = &tool.name;
        let failed =
            |what: &str| ToolFailure::new(Code::ToolFailed, format!("tool `{name}` {what}"));
        let _place = self.places.acquire().await.map_err(|_| failed("has no place"))?;
        let mark = crate::random::id();
        let child = spawn(tool, call, &mark).map_err(|error| {
            tracing::warn!(%error, tool = name, "a tool could not be started");
            failed("could not be started")
        })?;
        let tree = Tree::of(&child, mark);
        let mut guard = Guard(Some(tree.clone()));
        let arguments = object_text(&call.arguments).to_owned();
        let attended = tokio::task::spawn_blocking(move || attend(child, &arguments, &tree)).await;
        let ended =
            attended.ok().and_then(|ended| ended.ok()).ok_or_else(|| failed("broke off"))?;
        if !ended.complaint.is_empty() {
            let said = String::from_utf8_lossy(&ended.complaint);
            let said = said.trim_end();
            tracing::info!(tool = name, sandbox = %call.sandbox, said, "a tool complains");
        }
        if ended.output.len() > MAX_TOOL_RESULT {
            return Err(failed("gave a result that is too large"));
        }
        match (ended.status.success(), ended.status.code()) {
            (true, _) => {
                guard.0 = None;
                result_of(name, ended.output)
            }
            (false, Some(code)) => Err(failed(&format!("failed with exit code {code}"))),
            (false, None) => Err(failed("was killed")),
        }
    }
}

struct Ended {
    status: ExitStatus,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

fn spawn(tool: &Tool, call: &ToolCall, mark: &str) -> std::io::Result<Child> {
    let (program, arguments) =
        tool.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .env("BELLJAR_TOOL", &tool.name)
        .env("BELLJAR_SANDBOX_ID", call.sandbox.as_str())
        .env("BELLJAR_TENANT", call.tenant.as_str())
        .env(MARK, mark)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Feeds the program and takes what it gives, until it has ended.
fn attend(mut child: Child, arguments: &str, tree: &Tree) -> std::io::Result<Ended> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (output, complaint) = std::thread::scope(|threads| {
        // One that does not read its input may still have an answer.
        threads.spawn(move || stdin.map(|mut stdin| stdin.write_all(arguments.as_bytes())));
        let complaint = threads.spawn(move || {
            let mut said = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.by_ref().take(MAX_COMPLAINT as u64).read_to_end(&mut said);
                let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            }
            said
        });
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(MAX_TOOL_RESULT as u64 + 1).read_to_end(&mut output);
        }
        if output.len() > MAX_TOOL_RESULT {
            tree.kill();
        }
        (output, complaint.join().unwrap_or_default())
    });
    // As long as it is not waited for, the number of its group is nobody else's.
    if let Some(group) = tree.group {
        let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }
    tree.kill_group();
    tree.reaped.store(true, Ordering::Release);
    let status = child.wait()?;
    Ok(Ended { status, output, complaint })
}

/// All that a call started.
#[derive(Clone)]
struct Tree {
    group: Option<Pid>,
    mark: String,
    /// The number of the group may belong to others by now.
    reaped: Arc<AtomicBool>,
}

impl Tree {
    fn of(child: &Child, mark: String) -> Self {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Self { group, mark, reaped: Arc::default() }
    }

    fn kill_group(&self) {
        if let Some(group) = self.group
            && !self.reaped.load(Ordering::Acquire)
        {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }

    fn kill(&self) {
        self.kill_group();
        for _ in 0..ROUNDS {
            let left = marked(&self.mark);
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Kills what a call started unless it ended well.
struct Guard(Option<Tree>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(tree) = self.0.take() {
            // Looking at every process takes a moment, and nobody waits for it.
            std::thread::spawn(move || tree.kill());
        }
    }
}

/// Processes that carry the mark.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let carries = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    pids.filter(carries).filter_map(Pid::from_raw).collect()
}
