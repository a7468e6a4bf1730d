//! What a caller wants a sandbox to be.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use belljar_api::v1;
use belljar_backend::IsolationClass;
use belljar_codes::Code;
use belljar_engine::{
    BackendChoice, CreateRequest, DEFAULT_VOLUME_TARGET, IpNet, Lease, NetworkCallback,
    VolumeRequest, WorkspaceRequest,
};
use belljar_policy::limits::{parse_cpus, parse_disk, parse_memory, parse_pids};
use belljar_policy::template::{CommandText, detect};
use belljar_policy::{
    Asked, Environment, Family, Limits, MountSpec, NetworkMode, NetworkPolicy, Programs,
    SandboxName, TemplateSpec, UserSpec, WorkspaceMode, shown,
};

use super::network::refuse_ranges;
use super::{policy, seconds};

use crate::caller::{Caller, Permission};
use crate::problem::{Problem, Result};

/// A sandbox holds a handful of labels and a little more metadata.
const MAX_ENTRIES: usize = 64;
const MAX_LABEL: usize = 256;
const MAX_METADATA: usize = 4096;

/// Of a caller who wants such a sandbox.
pub(crate) async fn create_request(
    caller: &Caller,
    wire: &v1::CreateSandboxRequest,
) -> Result<CreateRequest> {
    refuse_beyond_scopes(caller, wire)?;
    explain_request(caller, wire).await
}

/// Of a caller who wants to know about it.
pub(crate) async fn explain_request(
    caller: &Caller,
    wire: &v1::CreateSandboxRequest,
) -> Result<CreateRequest> {
    let template = template(wire.template.as_deref())?;
    refuse_host_paths(caller, wire, &template)?;
    let lease = lease(wire.idle_timeout_secs, wire.lease_secs)?;
    let policy = match &wire.policy {
        Some(spec) => Some(policy::choice(caller, spec).await?),
        None => None,
    };
    Ok(CreateRequest {
        name: wire.name.as_deref().map(SandboxName::parse).transpose()?,
        family_hint: family(&template, &wire.command_hint),
        template,
        backend: backend(wire.backend.as_deref()),
        runtime: wire.runtime.clone(),
        isolation_floor: wire.isolation.as_deref().map(isolation_class).transpose()?,
        waive_isolation: wire.allow_no_isolation,
        network: network(wire.network.as_ref())?,
        network_asked: wire.network.as_ref().is_some_and(|network| {
            network.mode.is_some() || network.profile.is_some() || !network.allow.is_empty()
        }),
        network_callback: callback(wire.network.as_ref()),
        network_callback_udp: callback_udp(wire.network.as_ref())?,
        network_cidrs: cidrs(caller, wire.network.as_ref())?,
        network_ask: wire
            .network
            .as_ref()
            .and_then(|network| network.ask_secs)
            .map(super::network::ask)
            .transpose()?
            .filter(|ask| !ask.is_zero()),
        limits: limits(wire.limits.as_ref())?,
        best_effort: wire.best_effort,
        workspace: wire.workspace.as_ref().map(workspace).transpose()?,
        mounts: mounts(&wire.mounts)?,
        masks: wire.masks.iter().map(PathBuf::from).collect(),
        volume: wire.volume.as_ref().map(volume).transpose()?,
        environment: environment(&wire.environment)?,
        user: wire.user.as_deref().map(UserSpec::parse).transpose()?.unwrap_or_default(),
        workdir: wire.working_directory.as_ref().map(PathBuf::from),
        writable: wire.writable,
        programs: programs(&wire.programs)?,
        idle_timeout: lease.idle,
        hard_limit: lease.hard.filter(|hard| !hard.is_zero()),
        ensure: wire.ensure.clone(),
        labels: texts("label", &wire.labels, MAX_LABEL)?,
        metadata: texts("metadata entry", &wire.metadata, MAX_METADATA)?,
        same_shape: wire.same_shape,
        timeout: wire.timeout_secs.map(|value| seconds("timeout_secs", value)).transpose()?,
        policy,
        ..CreateRequest::default()
    })
}

pub(crate) fn lease(idle: Option<f64>, hard: Option<f64>) -> Result<Lease> {
    Ok(Lease {
        idle: idle.map(|value| seconds("idle_timeout_secs", value)).transpose()?,
        hard: hard.map(|value| seconds("lease_secs", value)).transpose()?,
    })
}

/// Making a sandbox takes more than that where commands run in it or files are put into it: one that has the name may exist.
fn refuse_beyond_scopes(caller: &Caller, wire: &v1::CreateSandboxRequest) -> Result<()> {
    if !wire.ensure.is_empty() {
        caller.check(Permission::Exec)?;
    }
    if !wire.files.is_empty() {
        caller.check(Permission::Files)?;
    }
    Ok(())
}

/// Directories of the host, and running without a wall, are the operator's to give.
fn refuse_host_paths(
    caller: &Caller,
    wire: &v1::CreateSandboxRequest,
    template: &TemplateSpec,
) -> Result<()> {
    if caller.is_admin() {
        return Ok(());
    }
    let asked = [
        ("workspace", wire.workspace.is_some()),
        ("mounts", !wire.mounts.is_empty()),
        ("template", matches!(template, TemplateSpec::Rootfs(_) | TemplateSpec::Image(_))),
        ("allow_no_isolation", wire.allow_no_isolation),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((name, _)) => Err(Problem::new(
            Code::PermissionDenied,
            format!("`{name}` names something of the host, which needs the role `admin`"),
        )
        .with_remedy("upload files instead, or ask the operator")),
    }
}

fn template(word: Option<&str>) -> Result<TemplateSpec> {
    Ok(word.map(|word| TemplateSpec::parse(OsStr::new(word))).transpose()?.unwrap_or_default())
}

/// What the command's words tell, for `auto`; the engine looks at the workspace where they tell nothing.
fn family(template: &TemplateSpec, hint: &[String]) -> Option<(Family, String)> {
    if *template != TemplateSpec::Auto {
        return None;
    }
    let words: Vec<_> = hint.iter().map(std::ffi::OsString::from).collect();
    let text = match hint {
        [] => return None,
        [line] => CommandText::Line(line),
        _ => CommandText::Argv(&words),
    };
    let (family, reason) = detect(text, &[]);
    (family != Family::Base).then_some((family, reason))
}

fn backend(word: Option<&str>) -> BackendChoice {
    match word {
        None | Some("" | "auto") => BackendChoice::Auto,
        Some(name) => BackendChoice::Named(name.to_owned()),
    }
}

fn isolation_class(word: &str) -> Result<IsolationClass> {
    match word {
        "namespace" => Ok(IsolationClass::Namespace),
        "kernel" => Ok(IsolationClass::Kernel),
        "vm" => Ok(IsolationClass::Vm),
        _ => Err(Problem::invalid(format!("isolation class `{}` is not known", shown(word)))
            .with_remedy("use `namespace`, `kernel` or `vm`")),
    }
}

fn network(wire: Option<&v1::Network>) -> Result<NetworkPolicy> {
    let Some(wire) = wire else { return Ok(NetworkPolicy::default()) };
    let NetworkCallback { connections, requests } = callback(Some(wire));
    let profile = wire.profile.as_deref();
    let usual = (connections && profile.is_none()).then_some(NetworkMode::Allowlist.as_str());
    let mode = wire.mode.as_deref().or(usual);
    // A list that a program takes the place of may be empty.
    let policy = match mode {
        Some("allowlist") if usual.is_some() && wire.allow.is_empty() => {
            NetworkPolicy { mode: NetworkMode::Allowlist, allow: Vec::new() }
        }
        _ => NetworkPolicy::from_flags(profile, mode, &wire.allow)?,
    };
    let conflict = |message: &str, remedy: &str| {
        Err(Problem::new(Code::ConflictingOptions, message).with_remedy(remedy))
    };
    match policy.mode {
        NetworkMode::Full if connections => conflict(
            "the network mode `full` leaves no connection to be decided",
            "leave out the mode, or `callback_connections`",
        ),
        NetworkMode::None if (connections || requests) && mode.is_some() => conflict(
            "with the network mode `none` there is nothing to decide",
            "leave out the mode, or use `allowlist`",
        ),
        _ => Ok(policy),
    }
}

/// A socket is kept for each.
const MAX_UDP_PORTS: usize = 64;

fn callback_udp(wire: Option<&v1::Network>) -> Result<Vec<u16>> {
    let Some(wire) = wire.filter(|wire| !wire.callback_udp_ports.is_empty()) else {
        return Ok(Vec::new());
    };
    if !wire.callback_connections || wire.callback_udp_ports.len() > MAX_UDP_PORTS {
        let message = format!(
            "`callback_udp_ports` are {MAX_UDP_PORTS} at most, beside `callback_connections`"
        );
        return Err(Problem::invalid(message).with_remedy("name the ports that are needed"));
    }
    let port = |port: &u32| {
        let port = u16::try_from(*port).ok().filter(|port| *port != 0);
        port.ok_or_else(|| Problem::invalid("a port of `callback_udp_ports` is none"))
    };
    wire.callback_udp_ports.iter().map(port).collect()
}

fn callback(wire: Option<&v1::Network>) -> NetworkCallback {
    wire.map_or_else(NetworkCallback::default, |wire| NetworkCallback {
        connections: wire.callback_connections,
        requests: wire.callback_requests,
    })
}

fn cidrs(caller: &Caller, wire: Option<&v1::Network>) -> Result<Vec<IpNet>> {
    let entries = wire.map_or(&[][..], |wire| &wire.cidrs);
    refuse_ranges(caller, entries)?;
    if !entries.is_empty() && network(wire)?.mode == NetworkMode::None {
        return Err(Problem::new(
            Code::ConflictingOptions,
            "addresses were allowed, but the network mode is `none`",
        )
        .with_remedy("use the network mode `allowlist` or `full`"));
    }
    Ok(entries
        .iter()
        .map(|entry| belljar_engine::parse_cidr(entry))
        .collect::<std::result::Result<_, _>>()?)
}

/// The numbers go through the same checks as the words of the command line.
fn limits(wire: Option<&v1::Limits>) -> Result<Limits> {
    let mut limits = Limits::default();
    let Some(wire) = wire else { return Ok(limits) };
    if let Some(bytes) = wire.memory_bytes {
        limits.memory_bytes = Asked::by_caller(parse_memory(&bytes.to_string())?);
    }
    if let Some(millis) = wire.milli_cpus {
        let cpus = format!("{}.{:03}", millis / 1000, millis % 1000);
        limits.cpu_millis = Asked::by_caller(parse_cpus(&cpus)?);
    }
    if let Some(pids) = wire.pids {
        limits.pids = Asked::by_caller(parse_pids(&pids.to_string())?);
    }
    match wire.disk_bytes {
        Some(bytes) => Ok(limits.with_disk(parse_disk(&bytes.to_string())?)),
        None => Ok(limits),
    }
}

fn workspace(wire: &v1::Workspace) -> Result<WorkspaceRequest> {
    let path = PathBuf::from(super::required("workspace.path", &wire.path)?);
    if !path.is_absolute() || wire.path.contains('\0') {
        return Err(Problem::invalid("the workspace's path is not an absolute path")
            .with_remedy("give the absolute path of a directory of the server's host"));
    }
    let mode = match wire.mode.as_deref() {
        None | Some("overlay") => WorkspaceMode::Overlay,
        Some("bind") => WorkspaceMode::Bind,
        Some("bind-ro") => WorkspaceMode::BindReadOnly,
        Some(other) => {
            return Err(Problem::invalid(format!(
                "workspace mode `{}` is not known",
                shown(other)
            ))
            .with_remedy("use `overlay`, `bind` or `bind-ro`"));
        }
    };
    Ok(WorkspaceRequest { path, mode })
}

fn volume(wire: &v1::VolumeMount) -> Result<VolumeRequest> {
    let target = wire.target.as_deref().unwrap_or(DEFAULT_VOLUME_TARGET);
    Ok(VolumeRequest { name: SandboxName::parse(&wire.name)?, target: PathBuf::from(target) })
}

fn mounts(entries: &[String]) -> Result<Vec<MountSpec>> {
    Ok(entries
        .iter()
        .map(|entry| MountSpec::parse(OsStr::new(entry)))
        .collect::<std::result::Result<_, _>>()?)
}

pub(super) fn environment(entries: &BTreeMap<String, String>) -> Result<Environment> {
    let mut environment = Environment::new();
    for (name, value) in entries {
        environment.set(name, value)?;
    }
    Ok(environment)
}

fn programs(names: &[String]) -> Result<Option<Programs>> {
    if names.is_empty() {
        return Ok(None);
    }
    Ok(Some(Programs::parse(&names.join(","))?))
}

fn texts(
    what: &str,
    entries: &BTreeMap<String, String>,
    longest: usize,
) -> Result<BTreeMap<String, String>> {
    let refuse = |key: &str, reason: &str| {
        Problem::invalid(format!("{what} `{}` {reason}", shown(key)))
            .with_remedy("use short keys and values without control characters")
    };
    if entries.len() > MAX_ENTRIES {
        return Err(Problem::invalid(format!("more than {MAX_ENTRIES} entries of kind `{what}`")));
    }
    for (key, value) in entries {
        if key.is_empty() || key.len() > MAX_LABEL || value.len() > longest {
            return Err(refuse(key, "is empty or too long"));
        }
        if key.contains(char::is_control) || value.contains(['\0', '\x1b']) {
            return Err(refuse(key, "contains a control character"));
        }
    }
    Ok(entries.clone())
}
