//! What commands are asked about as.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::document::{Context, Value};
use belljar_policy::scan::{self, Finding};
use belljar_policy::{MountSpec, SandboxId};

use super::narrow::{check_environment, narrow_lease, narrow_timeout};
use super::{Asker, Governed, Question, QuestionKind, judge, resolved};
use crate::engine::Inner;
use crate::store::SandboxRecord;
use crate::time::now_ms;
use crate::{CreateRequest, ExecRequest, Lease, Program, Result, aside};

/// The fields that a caller's own context cannot have outside of `context`, because they mean something here.
const OWN: &[&str] = &[
    "action",
    "agent_id",
    "argv",
    "arguments",
    "code",
    "command",
    "context",
    "environment",
    "finding_count",
    "finding_names",
    "findings",
    "host",
    "isolation",
    "language",
    "method",
    "mounts",
    "masks",
    "name",
    "network",
    "operation",
    "path",
    "port",
    "program",
    "shell",
    "template",
    "tenant",
    "tool",
    "transport",
    "user",
    "workdir",
];

/// Code that is scanned where it is asked about; more of it is handed to a thread that may take its time.
const SHORT_CODE: usize = 8 << 10;

/// A command that may run.
#[derive(Debug)]
pub(crate) struct Permitted {
    pub(crate) request: ExecRequest,
    /// What stands out in it, where it is Python code.
    pub(crate) findings: Vec<Finding>,
}

/// Asks whether a command may run, and bounds it.
///
/// # Errors
/// `policy-denied` where it may not.
pub(crate) async fn permit_exec(
    inner: &Inner,
    asker: &Asker,
    id: &SandboxId,
    mut request: ExecRequest,
) -> Result<Permitted> {
    let reading = Reading::of(&request);
    let findings = scanned(&reading).await?;
    let Some(governed) = inner.policies.of(inner, id).await? else {
        return Ok(Permitted { request, findings: findings.unwrap_or_default() });
    };
    let (kind, context) = context_of(&request, reading, findings.as_deref());
    let secrets = request.environment.iter().map(|(_, value)| value.to_owned()).collect();
    let question = Question { secrets, ..Question::new(kind, context) };
    judge(&inner.audit, &governed, asker, question).await?.permitted()?;
    let policy = &governed.policy;
    check_environment(policy, &request.environment)?;
    request.timeout = narrow_timeout(policy, request.timeout, request.timeout_asked)?;
    Ok(Permitted { request, findings: findings.unwrap_or_default() })
}

/// What the scan says of Python code. A hint for rules and readers, not a wall.
async fn scanned(reading: &Reading) -> Result<Option<Vec<Finding>>> {
    let Some(code) = reading.python() else { return Ok(None) };
    if code.len() <= SHORT_CODE {
        return Ok(Some(scan::python(code)));
    }
    let code = code.to_owned();
    aside(move || scan::python(&code)).await.map(Some)
}

/// Refuses a lease that ends later than the policy lets the sandbox live.
pub(crate) async fn permit_lease(
    inner: &Inner,
    record: &SandboxRecord,
    lease: Lease,
) -> Result<()> {
    let Some(hard) = lease.hard else { return Ok(()) };
    let Some(governed) = inner.policies.of(inner, &record.id).await? else { return Ok(()) };
    let age = u64::try_from(now_ms() - record.created_at).unwrap_or(0);
    narrow_lease(&governed.policy, Duration::from_millis(age), hard)
}

/// Asks whether a sandbox may be made.
pub(crate) async fn permit_create(
    inner: &Inner,
    asker: &Asker,
    record: &SandboxRecord,
    request: &CreateRequest,
) -> Result<()> {
    let Some(policy) = resolved(request) else { return Ok(()) };
    let governed = Arc::new(Governed::new(record, Arc::clone(policy)));
    let secrets = request.environment.iter().map(|(_, value)| value.to_owned()).collect();
    let context = creation(record, request);
    let question = Question { secrets, ..Question::new(QuestionKind::Create, context) };
    judge(&inner.audit, &governed, asker, question).await?.permitted().map(drop)
}

fn creation(record: &SandboxRecord, request: &CreateRequest) -> Context {
    let details = &record.details;
    let mut context = Context::new();
    if let Some(name) = &record.name {
        context.set("name", name.as_str());
    }
    context.set("template", details.template.as_str());
    context.set("backend", record.backend.as_str());
    context.set("isolation", details.class.as_str());
    context.set("network", details.network_mode.as_str());
    context.set("user", details.user.as_str());
    context.set("writable", request.writable);
    context.set("memory_mb", details.limits.memory_bytes.value >> 20);
    context.set("milli_cpus", u64::from(details.limits.cpu_millis.value));
    context.set("pids", u64::from(details.limits.pids.value));
    context.set("disk_mb", details.limits.disk_bytes.value >> 20);
    let mount = |mount: &MountSpec| {
        let (source, target) = (mount.source.display(), mount.target.display());
        format!("{source}:{target}:{}", mount.access.as_str())
    };
    context.set("mounts", request.mounts.iter().map(mount).collect::<Value>());
    let mask = |mask: &std::path::PathBuf| mask.display().to_string();
    context.set("masks", request.masks.iter().map(mask).collect::<Value>());
    if let Some(workspace) = &request.workspace {
        context.set("workspace", workspace.path.display().to_string());
    }
    for (field, texts) in [("labels", &details.labels), ("metadata", &details.metadata)] {
        let texts = texts.iter().map(|(name, text)| (name.clone(), text.as_str().into()));
        context.nest(field, Value::Map(texts.collect()));
    }
    context
}

/// A command, read.
struct Reading {
    words: Vec<String>,
    language: Option<String>,
    /// The program text, where the command has one.
    code: Option<String>,
}

impl Reading {
    fn of(request: &ExecRequest) -> Self {
        let words = words(&request.program);
        let code = code_of(&words);
        let language = request.language.clone().or_else(|| language_of(&words).map(str::to_owned));
        Self { words, language, code }
    }

    fn python(&self) -> Option<&str> {
        self.code.as_deref().filter(|_| self.language.as_deref() == Some("python"))
    }
}

fn context_of(
    request: &ExecRequest,
    reading: Reading,
    findings: Option<&[Finding]>,
) -> (QuestionKind, Context) {
    let mut context = Context::new();
    for (field, value) in &request.context {
        if !OWN.contains(&field.as_str()) {
            context.nest(field, value.clone());
        }
    }
    // Whose work it is: a sandbox that was made for somebody knows better, and says so later.
    if let Some(agent) = request.context.get("agent_id") {
        context.set("agent_id", agent.clone());
    }
    let own = request.context.iter().map(|(field, value)| (field.clone(), value.clone()));
    context.nest("context", Value::Map(own.collect()));

    let Reading { words, language, code } = reading;
    let kind = match (&request.language, &code) {
        (Some(_), _) | (_, Some(_)) => QuestionKind::Code,
        _ => QuestionKind::Exec,
    };
    if let Some(findings) = findings {
        context.set("finding_count", findings.len() as u64);
        scan::describe(findings, &mut context);
    }
    if let Some(language) = language {
        context.set("language", language);
    }
    if let Some(code) = code {
        context.set("code", code);
    }
    context.set("command", command_of(&request.program, &words));
    if let Some(program) = words.first() {
        context.set("program", program_name(program));
    }
    context.set("argv", words.into_iter().collect::<Value>());
    if let Some(user) = &request.user {
        context.set("user", user.to_string());
    }
    if let Some(workdir) = &request.workdir {
        context.set("workdir", workdir.to_string_lossy().into_owned());
    }
    let names = request.environment.iter().map(|(name, _)| name);
    context.set("environment", names.collect::<Value>());
    (kind, context)
}

fn words(program: &Program) -> Vec<String> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    match program {
        Program::Argv(argv) => argv.iter().map(text).collect(),
        Program::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), text(line)],
    }
}

/// A line as one would write it: a shell line as it is, words with spaces between.
fn command_of(program: &Program, words: &[String]) -> String {
    match program {
        Program::Shell(line) => line.to_string_lossy().into_owned(),
        Program::Argv(_) => words.join(" "),
    }
}

fn program_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The language that a program runs, by its name.
fn language_of(words: &[String]) -> Option<&'static str> {
    let name = program_name(words.first()?);
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match plain {
        "python" | "pypy" => Some("python"),
        "node" | "nodejs" | "deno" | "bun" => Some("javascript"),
        "bash" => Some("bash"),
        "sh" | "dash" => Some("sh"),
        "ruby" => Some("ruby"),
        "perl" => Some("perl"),
        _ => None,
    }
}

/// The program text in `python3 -c TEXT` and the like, also behind other options. Shell lines are commands.
fn code_of(words: &[String]) -> Option<String> {
    let flag = |word: &str, letter: char| {
        word.strip_prefix('-').is_some_and(|rest| {
            !rest.starts_with('-')
                && rest.chars().all(char::is_alphanumeric)
                && rest.ends_with(letter)
        })
    };
    let letters: &[char] = match language_of(words)? {
        "python" => &['c'],
        "javascript" | "ruby" => &['e', 'p'],
        "perl" => &['e', 'E'],
        _ => return None,
    };
    let options = words.iter().enumerate().skip(1);
    let mut options =
        options.take_while(|(at, word)| word.starts_with('-') || takes_value(&words[at - 1]));
    let (at, word) = options.find(|(_, word)| {
        letters.iter().any(|letter| flag(word, *letter))
            || matches!(word.split('=').next(), Some("--eval" | "--print"))
            || attached(word, letters).is_some()
    })?;
    if let Some(text) = attached(word, letters) {
        return Some(text.to_owned());
    }
    match word.split_once('=') {
        Some((_, text)) if word.starts_with("--") => Some(text.to_owned()),
        _ => words.get(at + 1).cloned(),
    }
}

/// Options of interpreters whose value is the next word.
fn takes_value(word: &str) -> bool {
    matches!(word, "-W" | "-X" | "-r" | "--require" | "-I" | "--import")
}

/// `-cTEXT`, as Python takes it.
fn attached<'a>(word: &'a str, letters: &[char]) -> Option<&'a str> {
    let rest = word.strip_prefix('-')?;
    let text = letters.iter().find_map(|letter| rest.strip_prefix(*letter))?;
    (letters == ['c'] && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(words: &[&str]) -> ExecRequest {
        ExecRequest::new(Program::Argv(words.iter().map(Into::into).collect()))
    }

    fn asked(request: &ExecRequest) -> (QuestionKind, Context) {
        let reading = Reading::of(request);
        let findings = reading.python().map(scan::python);
        context_of(request, reading, findings.as_deref())
    }

    fn text<'a>(context: &'a Context, field: &str) -> &'a str {
        match context.get(field) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    #[test]
    fn code_is_found_in_commands() {
        let check = |words: &[&str], kind: QuestionKind, language: &str, code: &str| {
            let (found, context) = asked(&exec(words));
            assert_eq!(found, kind, "{words:?}");
            assert_eq!((text(&context, "language"), text(&context, "code")), (language, code));
        };
        use QuestionKind::{Code, Exec};
        check(&["ls", "-c", "x"], Exec, "", "");
        check(&["python3", "-c", "print(1)"], Code, "python", "print(1)");
        check(&["/usr/bin/python3.12", "-u", "-c", "x", "-c"], Code, "python", "x");
        check(&["python3", "-Ic", "x"], Code, "python", "x");
        check(&["python3", "-cprint(1)"], Code, "python", "print(1)");
        check(&["python3", "-W", "ignore", "-c", "x"], Code, "python", "x");
        check(&["python3", "main.py", "-c", "x"], Exec, "python", "");
        check(&["node", "-e", "x"], Code, "javascript", "x");
        check(&["node", "--eval=x"], Code, "javascript", "x");
        check(&["bash", "-c", "ls"], Exec, "bash", "");
    }

    #[test]
    fn python_is_scanned() {
        let findings = |code: &str| {
            let (_, context) = asked(&exec(&["python3", "-c", code]));
            (context.get("finding_count").cloned(), context.get("findings").cloned())
        };
        let (count, _) = findings("print(1)");
        assert_eq!(count, Some(Value::Int(0)));
        let (count, found) = findings("import os; os.system('id'); os.system('ls')");
        assert_eq!(count, Some(Value::Int(2)));
        assert!(matches!(found, Some(Value::List(found)) if found.len() == 1));
        let (_, context) = asked(&exec(&["node", "-e", "x"]));
        assert_eq!(context.get("finding_count"), None);
    }

    #[test]
    fn callers_cannot_pretend() {
        let mut request = exec(&["ls"]);
        request.context.insert("tool".to_owned(), "search".into());
        request.context.insert("command".to_owned(), "true".into());
        request.context.insert("confidence".to_owned(), Value::Float(0.5));
        request.context.insert("agent_id".to_owned(), "a1".into());
        let (_, context) = asked(&request);
        assert_eq!((text(&context, "command"), context.get("tool")), ("ls", None));
        assert_eq!(text(&context, "context.tool"), "search");
        assert_eq!(context.get("confidence"), Some(&Value::Float(0.5)));
        assert_eq!(text(&context, "agent_id"), "a1");
    }

    #[test]
    fn a_shell_line_is_a_command() {
        let (kind, context) = asked(&ExecRequest::new(Program::Shell("a | b".into())));
        assert_eq!((kind, text(&context, "command")), (QuestionKind::Exec, "a | b"));
        assert_eq!(text(&context, "language"), "sh");
    }
}
