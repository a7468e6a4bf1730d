//! From words to meaning: what was typed, with the settings behind it, becomes a request to the server.
//!
//! Everything is checked here as the server checks it, so that a slip is told before a server is looked for; paths of
//! this host become absolute, because the server stands elsewhere.

mod command;
mod policy;

pub(crate) use command::{
    argv, command_timeout, duration, environment, file_to_write, shell, timeout, user,
};
pub(crate) use policy::{context, documents};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::limits::{parse_cpus, parse_disk, parse_memory, parse_pids, parse_timeout};
use belljar_policy::{
    Invalid, MountSpec, NetworkPolicy, Programs, SandboxName, TemplateSpec, WorkspaceMode,
    WorkspaceSpec, shown,
};

use crate::args::{ExecArgs, RunArgs, SandboxArgs};
use crate::failure::Failure;
use crate::settings::{Key, Origin, Setting, Settings};

/// A sandbox holds a handful of labels.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;
const MAX_METADATA: usize = 4096;

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
            ("--runtime", self.runtime.is_some()),
            ("--isolation", self.isolation.is_some()),
            ("--i-understand-no-isolation", self.i_understand_no_isolation),
            ("--idle-timeout", self.idle_timeout.is_some()),
            ("--lease", self.lease.is_some()),
            ("--label", !self.label.is_empty()),
            ("--policy", self.policy.is_some()),
            ("--policy-root", self.policy_root.is_some()),
            ("--policy-record", self.policy_record),
            ("--profile", self.profile.is_some()),
            ("--network", self.network.is_some()),
            ("--allow-cidr", !self.allow_cidr.is_empty()),
            ("--network-ask", self.network_ask.is_some()),
            ("--network-callback", !self.network_callback.is_empty()),
            ("--network-callback-udp", !self.network_callback_udp.is_empty()),
            ("--allow", !self.allow.is_empty()),
            ("--workspace", self.workspace.is_some()),
            ("--mount", !self.mount.is_empty()),
            ("--mask", !self.mask.is_empty()),
            ("--volume", self.volume.is_some()),
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

/// The sandbox that `args` describe; `hint` is the command it is for.
pub(crate) fn create_request(
    settings: &Settings,
    name: Option<&str>,
    args: &SandboxArgs,
    hint: Vec<String>,
) -> Result<v1::CreateSandboxRequest, Failure> {
    if let Some(name) = name {
        SandboxName::parse(name)?;
    }
    user(args.user.as_deref())?;
    Ok(v1::CreateSandboxRequest {
        name: name.map(str::to_owned),
        template: Some(template(settings)?),
        backend: settings.get(Key::Backend).parse_text(|text| Ok(text.to_owned()))?,
        runtime: args.runtime.clone(),
        isolation: args.isolation.clone(),
        allow_no_isolation: args.i_understand_no_isolation,
        network: Some(network(settings, args)?),
        limits: Some(limits(settings, args.policy.is_some())?),
        best_effort: args.best_effort,
        workspace: workspace(args)?,
        mounts: args.mount.iter().map(|mount| self::mount(mount)).collect::<Result<_, _>>()?,
        masks: args.mask.iter().map(|mask| path_text(mask)).collect::<Result<_, _>>()?,
        environment: environment(&args.env)?.into_map(),
        user: args.user.clone(),
        working_directory: args.workdir.as_deref().map(path_text).transpose()?,
        volume: args.volume.as_deref().map(volume),
        writable: args.writable,
        programs: programs(&args.programs)?,
        idle_timeout_secs: settings.get(Key::IdleTimeout).parse_text(parse_timeout)?.map(seconds),
        lease_secs: duration("--lease", args.lease.as_deref())?,
        ensure: args.ensure.clone(),
        labels: labels(&args.label)?,
        timeout_secs: timeout(settings, args.policy.is_some())?,
        command_hint: hint,
        policy: policy::spec(args)?,
        ..v1::CreateSandboxRequest::default()
    })
}

/// `NAME` or `NAME:DST`; the server judges both.
fn volume(text: &str) -> v1::VolumeMount {
    match text.split_once(':') {
        Some((name, target)) => {
            v1::VolumeMount { name: name.to_owned(), target: Some(target.to_owned()) }
        }
        None => v1::VolumeMount { name: text.to_owned(), target: None },
    }
}

/// As [`create_request`], for the sandbox of a session: environment and directory belong to each command, so that
/// commands which differ in them share one session.
pub(crate) fn session_request(
    settings: &Settings,
    name: Option<&str>,
    args: &SandboxArgs,
    hint: Vec<String>,
) -> Result<v1::CreateSandboxRequest, Failure> {
    let mut create = create_request(settings, name, args, hint)?;
    create.same_shape = !args.given().is_empty();
    create.environment.clear();
    create.working_directory = None;
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

fn template(settings: &Settings) -> Result<String, Failure> {
    let setting = settings.get(Key::Template);
    match setting.parse(TemplateSpec::parse)?.unwrap_or_default() {
        TemplateSpec::Rootfs(directory) => Ok(format!("rootfs:{}", absolute(&directory)?)),
        spec => Ok(spec.to_string()),
    }
}

fn network(settings: &Settings, args: &SandboxArgs) -> Result<v1::Network, Failure> {
    let setting = settings.get(Key::Profile);
    let profile = setting.parse_text(|text| Ok(text.to_owned()))?;
    let is_flag = matches!(setting.origin, Origin::Flag(_));
    // A profile of a file is a default, which `--network` or a policy replaces; two flags must agree.
    let replaced = args.network.is_some() || args.policy.is_some();
    let profile = profile.filter(|_| is_flag || !replaced);
    let own = profile.as_deref().and_then(|name| settings.profile(name));
    let (mode, profile, mut allow) = match own {
        Some(own) => (args.network.clone().or(Some(own.mode.clone())), None, own.allow.clone()),
        None => (args.network.clone(), profile, Vec::new()),
    };
    allow.extend(args.allow.iter().cloned());
    let callback = |what| args.network_callback.iter().any(|given| given == what);
    let callback_connections = callback("connections");
    // Where a program decides, the list may be empty.
    if !callback_connections {
        NetworkPolicy::from_flags(profile.as_deref(), mode.as_deref(), &allow)?;
    }
    let ask_secs = duration("--network-ask", args.network_ask.as_deref())?;
    Ok(v1::Network {
        mode,
        profile,
        allow,
        cidrs: args.allow_cidr.clone(),
        ask_secs,
        callback_connections,
        callback_requests: callback("requests"),
        callback_udp_ports: args.network_callback_udp.iter().copied().map(u32::from).collect(),
    })
}

/// Only limits that somebody chose are sent: those are enforced fully or refused, defaults are not. Beside a policy, only
/// those of the command line count.
fn limits(settings: &Settings, under_policy: bool) -> Result<v1::Limits, Failure> {
    fn chosen<T>(
        setting: &Setting,
        under_policy: bool,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Result<Option<u64>, Failure>
    where
        u64: From<T>,
    {
        let value = setting.parse_text(parse)?;
        let counts = match under_policy {
            true => matches!(setting.origin, Origin::Flag(_)),
            false => setting.is_chosen(),
        };
        Ok(value.map(u64::from).filter(|_| counts))
    }
    Ok(v1::Limits {
        memory_bytes: chosen(settings.get(Key::Memory), under_policy, parse_memory)?,
        milli_cpus: chosen(settings.get(Key::Cpus), under_policy, parse_cpus)?,
        pids: chosen(settings.get(Key::Pids), under_policy, parse_pids)?,
        disk_bytes: chosen(settings.get(Key::Disk), under_policy, parse_disk)?,
    })
}

fn workspace(args: &SandboxArgs) -> Result<Option<v1::Workspace>, Failure> {
    let Some(argument) = &args.workspace else { return Ok(None) };
    let spec = WorkspaceSpec::parse(argument, args.workspace_mode.as_deref())?;
    let mode = match spec.mode {
        WorkspaceMode::Bind => "bind",
        WorkspaceMode::BindReadOnly => "bind-ro",
        WorkspaceMode::Overlay => "overlay",
    };
    Ok(Some(v1::Workspace { path: absolute(&spec.source)?, mode: Some(mode.to_owned()) }))
}

fn mount(argument: &OsStr) -> Result<String, Failure> {
    let spec = MountSpec::parse(argument)?;
    let access = match spec.access {
        belljar_policy::Access::ReadOnly => "ro",
        belljar_policy::Access::ReadWrite => "rw",
    };
    Ok(format!("{}:{}:{access}", absolute(&spec.source)?, path_text(&spec.target)?))
}

fn programs(lists: &[String]) -> Result<Vec<String>, Failure> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    Ok(Programs::parse(&lists.join(","))?.iter().map(str::to_owned).collect())
}

/// `KEY=VALUE` entries.
pub(crate) fn labels(entries: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    pairs("label", entries, MAX_LABEL)
}

/// As [`labels`], with longer values.
pub(crate) fn metadata(entries: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    pairs("metadata", entries, MAX_METADATA)
}

fn pairs(
    what: &str,
    entries: &[String],
    longest: usize,
) -> Result<BTreeMap<String, String>, Failure> {
    let refuse = |entry: &str, reason: &str| {
        Failure::new(Code::InvalidArgument, format!("{what} `{}` {reason}", shown(entry)))
            .with_remedy(format!(
                "write `KEY=VALUE`, the value up to {longest} characters, without control characters"
            ))
    };
    let mut pairs = BTreeMap::new();
    for entry in entries {
        let (key, value) = entry.split_once('=').ok_or_else(|| refuse(entry, "has no `=`"))?;
        if key.is_empty() || key.len() > MAX_LABEL || value.len() > longest {
            return Err(refuse(entry, "is empty or too long"));
        }
        if entry.contains(char::is_control) {
            return Err(refuse(entry, "contains a control character"));
        }
        pairs.insert(key.to_owned(), value.to_owned());
    }
    if pairs.len() > MAX_LABELS {
        return Err(Failure::new(
            Code::InvalidArgument,
            format!("more than {MAX_LABELS} entries of `--{what}`"),
        )
        .with_remedy("keep what belongs to a sandbox in fewer entries"));
    }
    Ok(pairs)
}

// === values ===

pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// A path of this host, for somebody who stands elsewhere.
fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute: PathBuf = std::path::absolute(path).map_err(|error| {
        Failure::new(
            Code::InvalidArgument,
            format!("path `{}` cannot be used", shown(&path.to_string_lossy())),
        )
        .caused_by(&error)
    })?;
    path_text(&absolute)
}

/// The API speaks UTF-8.
pub(crate) fn path_text(path: &Path) -> Result<String, Failure> {
    text(path.as_os_str())
}

pub(crate) fn text(words: &OsStr) -> Result<String, Failure> {
    words.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(
            Code::InvalidArgument,
            format!("`{}` is not text", shown(&words.to_string_lossy())),
        )
        .with_remedy("use names in UTF-8")
    })
}

#[cfg(test)]
mod tests;
