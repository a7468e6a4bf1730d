//! From words to meaning: what was typed, with the settings behind it, becomes a request to the engine.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use belljar_backend::IsolationClass;
use belljar_codes::Code;
use belljar_engine::{BackendChoice, CreateRequest, Program, WorkspaceRequest};
use belljar_policy::limits::{parse_cpus, parse_disk, parse_memory, parse_pids, parse_timeout};
use belljar_policy::template::{CommandText, detect};
use belljar_policy::{
    Asked, Environment, Family, Invalid, Limits, MountSpec, NetworkPolicy, Programs, SandboxName,
    TemplateSpec, UserSpec, WorkspaceSpec, shown,
};

use crate::args::{CommandArgs, ExecArgs, RunArgs, SandboxArgs};
use crate::failure::Failure;
use crate::settings::{Key, Origin, Settings};

/// A sandbox holds a handful of labels.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;

type Flags = Vec<(Key, OsString)>;

// === options that are also settings ===

impl SandboxArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        let mut give = |key, value: Option<&OsStr>| {
            flags.extend(value.map(|value| (key, value.to_owned())));
        };
        let text = |value: &Option<String>| value.as_ref().map(OsString::from);
        give(Key::Template, self.template.as_deref());
        give(Key::Backend, self.backend.as_deref());
        give(Key::Profile, text(&self.profile).as_deref());
        give(Key::Memory, text(&self.memory).as_deref());
        give(Key::Cpus, text(&self.cpus).as_deref());
        give(Key::Pids, text(&self.pids).as_deref());
        give(Key::Disk, text(&self.disk).as_deref());
        give(Key::IdleTimeout, text(&self.idle_timeout).as_deref());
        flags
    }

    /// The options that only make sense for a sandbox that is still to be made, as far as they were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        [
            ("--template", self.template.is_some()),
            ("--backend", self.backend.is_some()),
            ("--isolation", self.isolation.is_some()),
            ("--i-understand-no-isolation", self.i_understand_no_isolation),
            ("--idle-timeout", self.idle_timeout.is_some()),
            ("--lease", self.lease.is_some()),
            ("--label", !self.label.is_empty()),
            ("--profile", self.profile.is_some()),
            ("--network", self.network.is_some()),
            ("--allow", !self.allow.is_empty()),
            ("--workspace", self.workspace.is_some()),
            ("--mount", !self.mount.is_empty()),
            ("--writable", self.writable),
            ("--memory", self.memory.is_some()),
            ("--cpus", self.cpus.is_some()),
            ("--pids", self.pids.is_some()),
            ("--disk", self.disk.is_some()),
            ("--best-effort", self.best_effort),
            ("--programs", !self.programs.is_empty()),
            ("--ensure", !self.ensure.is_empty()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect()
    }
}

impl RunArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.options.flags();
        flags.extend(self.timeout.as_ref().map(|value| (Key::Timeout, value.into())));
        flags
    }
}

impl ExecArgs {
    pub(crate) fn flags(&self) -> Flags {
        self.timeout.as_ref().map(|value| (Key::Timeout, value.into())).into_iter().collect()
    }
}

// === a new sandbox ===

/// The sandbox that `args` describe, for `command`.
pub(crate) fn create_request(
    settings: &Settings,
    name: Option<&str>,
    args: &SandboxArgs,
    command: CommandText<'_>,
) -> Result<CreateRequest, Failure> {
    let template = settings.get(Key::Template).parse(TemplateSpec::parse)?.unwrap_or_default();
    let family_hint = family(&template, command);
    Ok(CreateRequest {
        name: name.map(SandboxName::parse).transpose()?,
        template,
        family_hint,
        backend: backend(settings)?,
        isolation_floor: args.isolation.as_deref().and_then(isolation_class),
        waive_isolation: args.i_understand_no_isolation,
        network: network(settings, args)?,
        limits: limits(settings)?,
        best_effort: args.best_effort,
        workspace: workspace(args)?,
        mounts: args.mount.iter().map(|mount| MountSpec::parse(mount)).collect::<Result<_, _>>()?,
        environment: environment(&args.env)?,
        user: user(args.user.as_deref())?.unwrap_or_default(),
        workdir: args.workdir.clone(),
        writable: args.writable,
        programs: programs(&args.programs)?,
        idle_timeout: settings.get(Key::IdleTimeout).parse_text(parse_timeout)?,
        hard_limit: args.lease.as_deref().map(parse_timeout).transpose()?,
        ensure: args.ensure.clone(),
        labels: labels(&args.label)?,
        timeout: timeout(settings)?,
        ..CreateRequest::default()
    })
}

/// As [`create_request`], for the sandbox of a session: environment and directory belong to each command, so that
/// commands which differ in them share one session.
pub(crate) fn session_request(
    settings: &Settings,
    name: Option<&str>,
    args: &SandboxArgs,
    command: CommandText<'_>,
) -> Result<CreateRequest, Failure> {
    let mut create = create_request(settings, name, args, command)?;
    create.same_shape = !args.given().is_empty();
    create.environment = Environment::new();
    create.workdir = None;
    Ok(create)
}

/// A sandbox that exists cannot be made differently; options that ask for it are refused rather than ignored.
pub(crate) fn refuse_options(args: &SandboxArgs, sandbox: &str) -> Result<(), Failure> {
    match args.given().as_slice() {
        [] => Ok(()),
        given => Err(Failure::new(
            Code::ConflictingOptions,
            format!(
                "sandbox `{}` exists, so {} cannot be changed",
                shown(sandbox),
                given.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        )
        .with_remedy("leave these options out, or create another sandbox")),
    }
}

fn backend(settings: &Settings) -> Result<BackendChoice, Failure> {
    let name = settings.get(Key::Backend).parse_text(|text| Ok(text.to_owned()))?;
    Ok(match name.as_deref() {
        None | Some("auto") => BackendChoice::Auto,
        Some(name) => BackendChoice::Named(name.to_owned()),
    })
}

fn isolation_class(word: &str) -> Option<IsolationClass> {
    match word {
        "namespace" => Some(IsolationClass::Namespace),
        "kernel" => Some(IsolationClass::Kernel),
        "vm" => Some(IsolationClass::Vm),
        _ => None,
    }
}

fn network(settings: &Settings, args: &SandboxArgs) -> Result<NetworkPolicy, Failure> {
    let setting = settings.get(Key::Profile);
    let profile = setting.parse_text(|text| Ok(text.to_owned()))?;
    let is_flag = matches!(setting.origin, Origin::Flag(_));
    // A profile of a file is a default, which `--network` replaces; two flags must agree.
    let profile = profile.filter(|_| is_flag || args.network.is_none());
    Ok(NetworkPolicy::from_flags(profile.as_deref(), args.network.as_deref(), &args.allow)?)
}

fn limits(settings: &Settings) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    let memory = settings.get(Key::Memory);
    if let Some(value) = memory.parse_text(parse_memory)? {
        limits.memory_bytes = Asked { value, asked: memory.is_chosen() };
    }
    let cpus = settings.get(Key::Cpus);
    if let Some(value) = cpus.parse_text(parse_cpus)? {
        limits.cpu_millis = Asked { value, asked: cpus.is_chosen() };
    }
    let pids = settings.get(Key::Pids);
    if let Some(value) = pids.parse_text(parse_pids)? {
        limits.pids = Asked { value, asked: pids.is_chosen() };
    }
    let disk = settings.get(Key::Disk);
    match disk.parse_text(parse_disk)? {
        Some(bytes) if disk.is_chosen() => Ok(limits.with_disk(bytes)),
        _ => Ok(limits),
    }
}

fn workspace(args: &SandboxArgs) -> Result<Option<WorkspaceRequest>, Failure> {
    let Some(argument) = &args.workspace else { return Ok(None) };
    let spec = WorkspaceSpec::parse(argument, args.workspace_mode.as_deref())?;
    Ok(Some(WorkspaceRequest { path: spec.source, mode: spec.mode }))
}

/// What the command's words tell, for `auto`; the engine looks at the workspace where they tell nothing.
fn family(template: &TemplateSpec, command: CommandText<'_>) -> Option<(Family, String)> {
    let (family, reason) = detect(command, &[]);
    (*template == TemplateSpec::Auto && family != Family::Base).then_some((family, reason))
}

fn programs(lists: &[String]) -> Result<Option<Programs>, Failure> {
    if lists.is_empty() {
        return Ok(None);
    }
    Ok(Some(Programs::parse(&lists.join(","))?))
}

fn labels(entries: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let refuse = |entry: &str, reason: &str| {
        Failure::new(Code::InvalidArgument, format!("label `{}` {reason}", shown(entry)))
            .with_remedy("write `KEY=VALUE`, up to 256 characters each, without control characters")
    };
    let mut labels = BTreeMap::new();
    for entry in entries {
        let (key, value) = entry.split_once('=').ok_or_else(|| refuse(entry, "has no `=`"))?;
        if key.is_empty() || key.len() > MAX_LABEL || value.len() > MAX_LABEL {
            return Err(refuse(entry, "is empty or too long"));
        }
        if entry.contains(char::is_control) {
            return Err(refuse(entry, "contains a control character"));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    if labels.len() > MAX_LABELS {
        return Err(Failure::new(Code::InvalidArgument, format!("more than {MAX_LABELS} labels"))
            .with_remedy("keep what belongs to a sandbox in fewer labels"));
    }
    Ok(labels)
}

// === a command ===

pub(crate) fn user(word: Option<&str>) -> Result<Option<UserSpec>, Failure> {
    Ok(word.map(UserSpec::parse).transpose()?)
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
pub(crate) fn timeout(settings: &Settings) -> Result<Option<Duration>, Failure> {
    settings.get(Key::Timeout).parse_text(parse_timeout)
}

impl CommandArgs {
    pub(crate) fn program(&self) -> Result<Program, Failure> {
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
            Some(line) => Ok(Program::Shell(line.clone())),
            None if self.argv.first().is_some_and(|program| program.is_empty()) => {
                Err(Failure::new(Code::ProgramNotFound, "the program's name is empty")
                    .with_remedy("write the program after `--`"))
            }
            None => Ok(Program::Argv(self.argv.clone())),
        }
    }

    /// For detection only.
    pub(crate) fn text(&self) -> CommandText<'_> {
        match &self.cmd {
            Some(line) => line.to_str().map_or(CommandText::None, CommandText::Line),
            None => CommandText::Argv(&self.argv),
        }
    }
}

/// `PATH=CONTENT`, as bytes.
pub(crate) fn file_to_write(argument: &OsStr) -> Result<(&Path, &[u8]), Failure> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = argument.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(split) if split > 0 => {
            Ok((Path::new(OsStr::from_bytes(&bytes[..split])), &bytes[split + 1..]))
        }
        _ => Err(Failure::new(
            Code::InvalidArgument,
            format!("`--write {}` names no path", shown(&argument.to_string_lossy())),
        )
        .with_remedy("write `--write PATH=CONTENT`")),
    }
}

#[cfg(test)]
mod tests;
