//! What a caller wants to run.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{DEFAULT_MEMORY_CAP, ExecRequest, Program, Stdin};
use belljar_policy::limits::DEFAULT_TIMEOUT;
use belljar_policy::{UserSpec, shown};

use super::create::environment;
use super::{policy, seconds};
use crate::problem::{Problem, Result};

/// What an answer brings back of one channel at most; the log has more.
const MAX_OUTPUT: u64 = 8 << 20;

/// Larger terminals exist on no desk.
const MAX_TERMINAL: u32 = 10_000;

pub(crate) fn exec_request(
    command: Option<&v1::Command>,
    idempotency_key: Option<&str>,
) -> Result<ExecRequest> {
    let Some(command) = command else {
        return Err(Problem::invalid("`command` is missing").with_remedy("say what to run"));
    };
    let mut request = ExecRequest::new(program(command)?);
    request.environment = environment(&command.environment)?;
    request.workdir = command.working_directory.as_ref().map(PathBuf::from);
    request.user = command.user.as_deref().map(UserSpec::parse).transpose()?;
    request.timeout = timeout(command.timeout_secs)?;
    request.timeout_asked = command.timeout_secs.is_some();
    request.language = command.code.as_ref().and(command.language.clone());
    request.context =
        command.context.as_deref().map(policy::context).transpose()?.unwrap_or_default();
    request.terminal = command.terminal.as_ref().map(terminal).transpose()?;
    let piped = command.stdin || command.input.is_some() || request.terminal.is_some();
    request.stdin = if piped { Stdin::Piped } else { Stdin::Null };
    request.memory_cap = output_limit(command.output_limit);
    request.idempotency_key = idempotency_key.map(str::to_owned);
    Ok(request)
}

/// The words by which `auto` finds a family.
pub(crate) fn hint_of(command: Option<&v1::Command>) -> Vec<String> {
    match command {
        Some(command) if command.shell.is_some() => command.shell.iter().cloned().collect(),
        Some(command) => command.argv.clone(),
        None => Vec::new(),
    }
}

fn program(command: &v1::Command) -> Result<Program> {
    let given = [
        ("argv", !command.argv.is_empty()),
        ("raw_argv", !command.raw_argv.is_empty()),
        ("shell", command.shell.is_some()),
        ("code", command.code.is_some()),
    ];
    let names: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    let program = match names.as_slice() {
        ["argv"] => Program::Argv(command.argv.iter().map(OsString::from).collect()),
        ["raw_argv"] => Program::Argv(
            command.raw_argv.iter().map(|word| OsString::from_vec(word.to_vec())).collect(),
        ),
        ["shell"] => Program::Shell(command.shell.clone().unwrap_or_default().into()),
        ["code"] => {
            let code = command.code.as_deref().unwrap_or_default();
            Program::Argv(interpreter(command.language.as_deref(), code)?)
        }
        [] => {
            return Err(Problem::invalid("the command is empty")
                .with_remedy("give one of `argv`, `shell` and `code`"));
        }
        several => {
            let names = several.join("`, `");
            return Err(Problem::new(
                Code::ConflictingOptions,
                format!("`{names}` cannot be given together"),
            )
            .with_remedy("give one of them"));
        }
    };
    check(&program)?;
    Ok(program)
}

fn check(program: &Program) -> Result<()> {
    let words = match program {
        Program::Argv(words) => words.as_slice(),
        Program::Shell(line) => std::slice::from_ref(line),
    };
    if words.iter().any(|word| word.as_encoded_bytes().contains(&0)) {
        return Err(Problem::invalid("the command contains a NUL byte")
            .with_remedy("leave out the NUL byte, or pass the data in a file"));
    }
    if words.first().is_some_and(|word| word.is_empty()) && matches!(program, Program::Argv(_)) {
        return Err(Problem::new(Code::ProgramNotFound, "the program's name is empty")
            .with_remedy("give a program"));
    }
    Ok(())
}

fn interpreter(language: Option<&str>, code: &str) -> Result<Vec<OsString>> {
    let words: [&str; 2] = match language {
        Some("python") => ["python3", "-c"],
        Some("javascript") => ["node", "-e"],
        Some("bash") => ["bash", "-c"],
        Some("sh") => ["sh", "-c"],
        other => {
            let shown = shown(other.unwrap_or(""));
            return Err(Problem::invalid(format!("language `{shown}` is not known"))
                .with_remedy("use `python`, `javascript`, `bash` or `sh`"));
        }
    };
    Ok(words.into_iter().chain([code]).map(OsString::from).collect())
}

fn timeout(value: Option<f64>) -> Result<Option<Duration>> {
    let timeout = value.map(|value| seconds("timeout_secs", value)).transpose()?;
    Ok(Some(timeout.unwrap_or(DEFAULT_TIMEOUT)).filter(|timeout| !timeout.is_zero()))
}

pub(crate) fn terminal(size: &v1::Terminal) -> Result<(u16, u16)> {
    let part = |name: &str, value: u32| match u16::try_from(value) {
        Ok(value) if (1..=MAX_TERMINAL).contains(&u32::from(value)) => Ok(value),
        _ => Err(Problem::invalid(format!("a terminal cannot have {value} {name}"))
            .with_remedy(format!("give {name} from 1 to {MAX_TERMINAL}"))),
    };
    Ok((part("rows", size.rows)?, part("columns", size.columns)?))
}

fn output_limit(asked: Option<u64>) -> usize {
    asked.map_or(DEFAULT_MEMORY_CAP, |asked| {
        usize::try_from(asked.min(MAX_OUTPUT)).expect("a few megabytes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> v1::Command {
        v1::Command::default()
    }

    #[test]
    fn exactly_one_program() {
        let argv = v1::Command { argv: vec!["true".into()], ..command() };
        assert_eq!(program(&argv).unwrap(), Program::Argv(vec!["true".into()]));
        let both = v1::Command { shell: Some("true".into()), ..argv };
        assert_eq!(program(&both).unwrap_err().code, Code::ConflictingOptions);
        assert_eq!(program(&command()).unwrap_err().code, Code::InvalidArgument);
        let code = v1::Command { code: Some("1".into()), ..command() };
        assert!(program(&code).is_err());
        let code = v1::Command { language: Some("python".into()), ..code };
        assert_eq!(
            program(&code).unwrap(),
            Program::Argv(vec!["python3".into(), "-c".into(), "1".into()])
        );
        let nul = v1::Command { argv: vec!["a\0".into()], ..command() };
        assert_eq!(program(&nul).unwrap_err().code, Code::InvalidArgument);
    }

    #[test]
    fn time_limits() {
        assert_eq!(timeout(None).unwrap(), Some(DEFAULT_TIMEOUT));
        assert_eq!(timeout(Some(0.0)).unwrap(), None);
        assert_eq!(timeout(Some(2.0)).unwrap(), Some(Duration::from_secs(2)));
    }
}
