//! Starting a process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::scan::Finding;
use belljar_policy::{ProcessId, SandboxId};
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, start};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::place::Place;
use super::pump::{HOST_GRACE, Pump};
use super::{EVENTS, Process, ProcessControl, ProcessEvent};
use crate::agent::{AgentError, Connection, Stream, environment_of, user_message};
use crate::engine::Inner;
use crate::fault::point;
use crate::live::Live;
use crate::plan::check_path;
use crate::policy::Permitted;
use crate::store::{Claimed, KeyClaim, Operation, ProcessDetails, ProcessRecord, ProcessStatus};
use crate::time::{duration_ms, now_ms};
use crate::{Error, ExecRequest, Program, Result, Stdin, fingerprint, random};

/// An agent that has neither started nor refused a process by then has a problem of its own.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What is recorded of a command, for people.
const MAX_SHOWN_COMMAND: usize = 4096;

/// A process that runs and is attended to.
pub(super) struct Begun {
    pub(super) record: ProcessRecord,
    pub(super) control: ProcessControl,
    pub(super) stripped_environment: Vec<String>,
}

/// What came of starting a command.
pub(super) enum Outcome {
    Begun(Box<Begun>),
    /// The idempotency key is that of a process which was started before.
    Known(ProcessId),
}

/// Starts a command in a sandbox; returns when it runs, or with the reason why it cannot.
pub(crate) async fn start(
    inner: &Arc<Inner>,
    id: &SandboxId,
    permitted: Permitted,
) -> Result<Process> {
    let (sender, events) = mpsc::channel(EVENTS);
    let request = &permitted.request;
    let (memory_cap, logged) = (request.memory_cap, request.keep_output);
    let begun = match begin(inner, id, permitted, Some(sender)).await? {
        Outcome::Begun(begun) => begun,
        // Somebody else reads its events.
        Outcome::Known(process) => {
            return Err(Error::new(
                Code::IdempotencyConflict,
                format!("the command was started before, as process `{process}`"),
            )
            .with_remedy("follow that process"));
        }
    };
    Ok(Process {
        id: begun.record.id,
        sandbox: begun.record.sandbox,
        events,
        control: begun.control,
        stripped_environment: begun.stripped_environment,
        findings: begun.record.details.findings,
        memory_cap,
        logged,
    })
}

/// Starts a command and attends to it. What happens to it goes to `events`, where they are wanted, and waits for whoever
/// reads them.
pub(super) async fn begin(
    inner: &Arc<Inner>,
    id: &SandboxId,
    permitted: Permitted,
    events: Option<mpsc::Sender<ProcessEvent>>,
) -> Result<Outcome> {
    let Permitted { mut request, findings } = permitted;
    check(&request)?;
    let key = match &request.idempotency_key {
        Some(key) => {
            let hash = fingerprint::of_exec(id, &request);
            Some(KeyClaim::new(Operation::Exec, key, hash))
        }
        None => None,
    };
    // Also when the sandbox has ended since.
    if let Some(key) = &key
        && let Some(tenant) = inner.store.tenant_of(id).await?
        && let Some(known) = inner.store.known_key(&tenant, key).await?
    {
        return Ok(Outcome::Known(ProcessId::parse(&known)?));
    }
    let (live, connection) = reach(inner, id).await?;
    let (environment, stripped_environment) = std::mem::take(&mut request.environment).strip();
    request.environment = environment;
    let process = random::process_id();
    let place = match request.keep_output {
        true => Place::new(inner, &process),
        false => Place::without_log(inner, &process),
    };
    let attendant = inner.presence.token()?;
    let reservation = inner.attended.reserve(&process).expect("the id is new");
    let mut record = record(&process, &live, attendant, &request, findings);
    // Before it can run into a limit.
    let baseline = live.baseline().await;
    let mut turn = inner.turns.wait(&live.tenant).await;
    match inner.store.add_process(&record, key.as_ref()).await {
        Ok(Claimed::New) => {}
        // Somebody took the key between our looking and our making.
        Ok(Claimed::Known(known)) => {
            place.discard();
            return Ok(Outcome::Known(ProcessId::parse(&known)?));
        }
        Err(error) => {
            place.discard();
            return Err(error);
        }
    }
    point("exec.recorded");

    let begun = Instant::now();
    let patience = request.timeout.map_or(START_TIMEOUT, |t| (t + HOST_GRACE).min(START_TIMEOUT));
    let sent = async {
        let stream =
            connection.request(Body::Start(message(&process, &request, events.is_some())))?;
        point("exec.sent");
        match started(&stream, patience).await {
            // It may have started all the same: a new connection tells.
            Err(error) if error.is_broken() => again(inner, &live, &process, error).await,
            Err(error) => Err(error),
            Ok(pid) => Ok((stream, pid)),
        }
    };
    let (stream, pid) = match turn.start(sent).await {
        Ok(started) => started,
        Err(error) => {
            inner.store.process_ended(&process, ProcessStatus::Failed, None).await?;
            if error.is_broken() {
                inner.check_later(id);
            }
            let workdir = request.workdir.as_deref().map_or("".into(), |p| p.to_string_lossy());
            return Err(error.for_start(&program_name(&request.program), &workdir));
        }
    };

    let stream = Arc::new(stream);
    let takes_input = request.stdin == Stdin::Piped || request.terminal.is_some();
    let control = ProcessControl::new(process.clone(), takes_input, Arc::clone(&stream));
    control.input_goes_on(0);
    if let Some(events) = &events {
        events.try_send(ProcessEvent::Started { pid }).expect("a new channel has room");
    }
    let attendance = reservation.attend(&live.id, control.clone(), place.received());
    let pump = Pump {
        inner: Arc::clone(inner),
        live,
        process,
        stream,
        control: control.clone(),
        place,
        attendance,
        events,
        baseline,
        begun,
        deadline: request.timeout.map(|timeout| begun + timeout + HOST_GRACE),
        unrecorded_pid: Some(pid),
        turn,
        closed: false,
    };
    tokio::spawn(pump.run());
    (record.status, record.pid) = (ProcessStatus::Running, Some(pid));
    Ok(Outcome::Begun(Box::new(Begun { record, control, stripped_environment })))
}

/// The sandbox and its agent. Of one that is connected it is seen with the record of the process whether it can be used.
async fn reach(inner: &Arc<Inner>, id: &SandboxId) -> Result<(Arc<Live>, Arc<Connection>)> {
    if let Some(live) = inner.known_live(id)
        && let Some(connection) = live.known_connection().await
    {
        return Ok((live, connection));
    }
    let live = inner.live(id).await?;
    let connection = live.connection(inner).await?;
    Ok((live, connection))
}

/// Looks for a process on a new connection after the one it was sent on broke.
async fn again(
    inner: &Arc<Inner>,
    live: &Live,
    process: &ProcessId,
    error: AgentError,
) -> Result<(Stream, u32), AgentError> {
    let Ok(connection) = live.connection(inner).await else { return Err(error) };
    let process = process.as_str().to_owned();
    let stream =
        connection.request(Body::Attach(v1::Attach { process, ..v1::Attach::default() }))?;
    let pid = started(&stream, START_TIMEOUT).await?;
    Ok((stream, pid))
}

async fn started(stream: &Stream, patience: Duration) -> Result<u32, AgentError> {
    match tokio::time::timeout(patience, stream.answer()).await {
        Ok(Ok(Body::Started(started))) => Ok(started.pid),
        Ok(Ok(_)) => Err(AgentError::breach("a process began with something else than its start")),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(AgentError::breach("a process did not start in time")),
    }
}

fn check(request: &ExecRequest) -> Result<()> {
    let refuse = |message: &str| {
        Err(Error::new(Code::InvalidArgument, message).with_remedy("name a program to run"))
    };
    let words: &[OsString] = match &request.program {
        Program::Argv(argv) if argv.first().is_none_or(|program| program.is_empty()) => {
            return refuse("the command is empty");
        }
        Program::Argv(argv) => argv,
        Program::Shell(line) => std::slice::from_ref(line),
    };
    if words.iter().any(|word| word.as_bytes().contains(&0)) {
        return refuse("the command contains a NUL byte");
    }
    if let Some(workdir) = &request.workdir {
        check_path(workdir)?;
    }
    Ok(())
}

/// `attended`: somebody waits for how it ends.
fn message(process: &ProcessId, request: &ExecRequest, attended: bool) -> v1::Start {
    let mut environment = request.user.map(environment_of).unwrap_or_default();
    if request.terminal.is_some() {
        environment.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    for (name, value) in request.environment.iter() {
        environment.insert(name.to_owned(), value.to_owned());
    }
    let bytes = |word: &OsString| word.as_bytes().to_vec();
    v1::Start {
        process: process.as_str().to_owned(),
        program: Some(match &request.program {
            Program::Argv(argv) => {
                start::Program::Argv(v1::Argv { args: argv.iter().map(bytes).collect() })
            }
            Program::Shell(line) => start::Program::ShellLine(bytes(line)),
        }),
        environment,
        working_directory: request
            .workdir
            .as_ref()
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .unwrap_or_default(),
        user: request.user.map(user_message),
        stdin: request.stdin == Stdin::Piped,
        terminal: request
            .terminal
            .map(|(rows, columns)| v1::Terminal { rows: rows.into(), columns: columns.into() }),
        // Zero would mean "none"; the shortest timeout is a millisecond.
        timeout_ms: request.timeout.map_or(0, |timeout| duration_ms(timeout).max(1)),
        grace_ms: 0,
        // Most commands end at once, and a word less wakes us once less. Whoever talks to a command wants to begin.
        patient: attended && request.stdin != Stdin::Piped && request.terminal.is_none(),
    }
}

fn record(
    process: &ProcessId,
    live: &Live,
    attendant: &str,
    request: &ExecRequest,
    findings: Vec<Finding>,
) -> ProcessRecord {
    ProcessRecord {
        id: process.clone(),
        sandbox: live.id.clone(),
        tenant: live.tenant.clone(),
        status: ProcessStatus::Starting,
        attendant: attendant.to_owned(),
        command: shown_command(&request.program),
        pid: None,
        timeout_ms: request.timeout.map(duration_ms),
        started_at: now_ms(),
        finished_at: None,
        exit: None,
        details: ProcessDetails {
            terminal: request.terminal.is_some(),
            stdin: request.stdin == Stdin::Piped,
            findings,
        },
    }
}

fn shown_command(program: &Program) -> String {
    let text = match program {
        Program::Shell(line) => line.to_string_lossy().into_owned(),
        Program::Argv(argv) => {
            let words: Vec<_> = argv.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        }
    };
    match text.char_indices().nth(MAX_SHOWN_COMMAND) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// A word as one would type it.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn program_name(program: &Program) -> String {
    let name = match program {
        Program::Argv(argv) => argv.first().map(OsString::as_os_str).unwrap_or_default(),
        Program::Shell(_) => OsStr::new("/bin/sh"),
    };
    belljar_policy::shown(&name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let argv = |words: &[&str]| Program::Argv(words.iter().map(OsString::from).collect());
        let check = |program: &Program, expected: &str| {
            assert_eq!(shown_command(program), expected);
        };
        check(&argv(&["ls", "-la", "/tmp"]), "ls -la /tmp");
        check(&argv(&["echo", "two words", "it's", ""]), r"echo 'two words' 'it'\''s' ''");
        check(&Program::Shell("a | b".into()), "a | b");
        let long = shown_command(&argv(&[&"x".repeat(10 << 20)]));
        assert_eq!(long.chars().count(), MAX_SHOWN_COMMAND + 1);
    }

    #[test]
    fn commands_that_are_none_are_refused() {
        let code = |program: Program| check(&ExecRequest::new(program)).map_err(|e| e.code());
        assert_eq!(code(Program::Argv(vec![])), Err(Code::InvalidArgument));
        assert_eq!(code(Program::Argv(vec!["".into()])), Err(Code::InvalidArgument));
        assert_eq!(code(Program::Argv(vec!["a\0b".into()])), Err(Code::InvalidArgument));
        assert_eq!(code(Program::Shell("a\0b".into())), Err(Code::InvalidArgument));
        assert_eq!(code(Program::Shell("".into())), Ok(()));
        assert_eq!(code(Program::Argv(vec!["true".into()])), Ok(()));
    }

    #[test]
    fn a_start_is_told_at_once_to_whoever_goes_on_with_it() {
        let id = random::process_id();
        let mut request = ExecRequest::new(Program::Shell("x".into()));
        assert!(message(&id, &request, true).patient);
        assert!(!message(&id, &request, false).patient, "nobody waits for the end");
        request.terminal = Some((24, 80));
        assert!(!message(&id, &request, true).patient);
        request = ExecRequest { stdin: Stdin::Piped, terminal: None, ..request };
        assert!(!message(&id, &request, true).patient);
    }

    #[test]
    fn a_terminal_has_a_kind_unless_the_caller_says_another() {
        let mut request = ExecRequest::new(Program::Shell("x".into()));
        let id = random::process_id();
        assert_eq!(message(&id, &request, true).environment.get("TERM"), None);
        request.terminal = Some((24, 80));
        assert_eq!(message(&id, &request, true).environment["TERM"], "xterm-256color");
        request.environment = belljar_policy::Environment::parse(["TERM=dumb"]).unwrap();
        assert_eq!(message(&id, &request, true).environment["TERM"], "dumb");
    }
}
