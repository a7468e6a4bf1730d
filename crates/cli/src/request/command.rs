//! What to run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::limits::parse_timeout;
use belljar_policy::{Environment, Invalid, UserSpec, shown};

use super::text;
use crate::args::CommandArgs;
use crate::failure::Failure;
use crate::settings::{Key, Origin, Settings};

impl CommandArgs {
    pub(crate) fn command(&self) -> Result<v1::Command, Failure> {
        let words = self.cmd.iter().chain(&self.argv);
        if words.into_iter().any(|word| word.as_encoded_bytes().contains(&0)) {
            return Err(Invalid::new(
                Code::InvalidArgument,
                "the command contains a NUL byte",
                "leave out the NUL byte, or pass the data in a file",
            )
            .into());
        }
        match &self.cmd {
            Some(line) => Ok(shell(line)),
            None if self.argv.first().is_some_and(|program| program.is_empty()) => {
                Err(Failure::new(Code::ProgramNotFound, "the program's name is empty")
                    .with_remedy("write the program after `--`"))
            }
            None => Ok(argv(&self.argv)),
        }
    }

    /// For the detection of a template: the words, or the line as one.
    pub(crate) fn hint(&self) -> Vec<String> {
        let words = self.cmd.iter().chain(&self.argv);
        words.filter_map(|word| word.to_str().map(str::to_owned)).collect()
    }
}

/// Program and arguments, which need not be text.
pub(crate) fn argv(words: &[OsString]) -> v1::Command {
    let text: Option<Vec<String>> =
        words.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    match text {
        Some(argv) => v1::Command { argv, ..v1::Command::default() },
        None => v1::Command {
            raw_argv: words.iter().map(|word| word.as_bytes().to_vec().into()).collect(),
            ..v1::Command::default()
        },
    }
}

/// A line for the sandbox's shell.
pub(crate) fn shell(line: &OsStr) -> v1::Command {
    match line.to_str() {
        Some(line) => v1::Command { shell: Some(line.to_owned()), ..v1::Command::default() },
        None => argv(&["/bin/sh".into(), "-c".into(), line.to_owned()]),
    }
}

pub(crate) fn user(word: Option<&str>) -> Result<Option<String>, Failure> {
    word.map(UserSpec::parse).transpose()?;
    Ok(word.map(str::to_owned))
}

/// Entries `NAME=VALUE`; of `NAME` alone the value is taken from this process, if it has one.
pub(crate) fn environment(entries: &[String]) -> Result<Environment, Failure> {
    let mut environment = Environment::new();
    for entry in entries {
        if let Some((name, value)) = entry.split_once('=') {
            environment.set(name, value)?;
            continue;
        }
        // Checked before it is looked up: the operating system's lookup would panic on a NUL byte.
        environment.clone().set(entry, "")?;
        match std::env::var(entry) {
            Ok(value) => environment.set(entry, &value)?,
            Err(std::env::VarError::NotPresent) => {}
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Failure::new(
                    Code::InvalidArgument,
                    format!("the value of environment variable `{entry}` is not text"),
                )
                .with_remedy("give the value as `NAME=VALUE` in UTF-8"));
            }
        }
    }
    Ok(environment)
}

/// How long a command may run, for those that have a limit by default.
/// How long commands of a new sandbox may run, in seconds. Beside a policy, only the command line counts.
pub(crate) fn timeout(settings: &Settings, under_policy: bool) -> Result<Option<f64>, Failure> {
    let setting = settings.get(Key::Timeout);
    let found = setting.parse_text(parse_timeout)?.map(|timeout| timeout.as_secs_f64());
    Ok(found.filter(|_| !under_policy || matches!(setting.origin, Origin::Flag(_))))
}

/// How long a command may run. What nobody chose is the server's to decide; `unlimited` commands have a limit only where
/// the command line gives one.
pub(crate) fn command_timeout(
    settings: &Settings,
    unlimited: bool,
) -> Result<Option<f64>, Failure> {
    let setting = settings.get(Key::Timeout);
    let found = setting.parse_text(parse_timeout)?.map(|timeout| timeout.as_secs_f64());
    Ok(match &setting.origin {
        Origin::Flag(_) => found,
        _ if unlimited => Some(0.0),
        _ => found.filter(|_| setting.is_chosen()),
    })
}

/// A time that was typed, in seconds. Zero is a time here: it ends waiting, or takes a limit away.
/// `flag` is what it was typed after.
pub(crate) fn duration(flag: &str, text: Option<&str>) -> Result<Option<f64>, Failure> {
    match text {
        None => Ok(None),
        Some("0") => Ok(Some(0.0)),
        Some(text) => match parse_timeout(text) {
            Ok(time) => Ok(Some(time.as_secs_f64())),
            // Not everything that is a time is a timeout.
            Err(invalid) => Err(Failure {
                message: format!("`{flag} {}` is not a time of up to 30 days", shown(text)),
                ..invalid.into()
            }),
        },
    }
}

/// `PATH=CONTENT`, as bytes.
pub(crate) fn file_to_write(argument: &OsStr) -> Result<v1::FileContent, Failure> {
    let bytes = argument.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(split) if split > 0 => Ok(v1::FileContent {
            path: text(OsStr::from_bytes(&bytes[..split]))?,
            content: bytes[split + 1..].to_vec().into(),
        }),
        _ => Err(Failure::new(
            Code::InvalidArgument,
            format!("`--write {}` names no path", shown(&argument.to_string_lossy())),
        )
        .with_remedy("write `--write PATH=CONTENT`")),
    }
}
