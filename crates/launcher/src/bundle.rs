//! The description of a sandbox in the words of the OCI runtime specification.
//!
//! Made here, on the side that holds the privilege, from the same request as every other sandbox: whoever asks chooses
//! neither what is mounted from where nor who is root. Guarantees: a user namespace with the sandbox's own range of
//! ids, no capability but those the agent needs, no new privileges, nothing of the host but the assembled root. The
//! network namespace and the cgroups are those that the runtime itself was started in.

use std::path::{Path, PathBuf};

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxIdMapping,
    LinuxIdMappingBuilder, LinuxNamespaceBuilder, LinuxNamespaceType, Mount, MountBuilder, Process,
    ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};

use crate::ids::{self, AGENT, RANGE};
use crate::plan::AGENT_CAPABILITIES;
use crate::wire::{INIT_DIRECTORY, MountKind, RuntimeKind, Start};

type Result<T> = std::result::Result<T, OciSpecError>;

/// What the description is made from besides the request.
pub(crate) struct Described<'a> {
    pub(crate) kind: RuntimeKind,
    /// Where the root was assembled.
    pub(crate) root: &'a Path,
    pub(crate) range: u32,
    /// Paths to hide and paths to make read-only.
    pub(crate) masks: (Vec<String>, Vec<String>),
    /// The agent's arguments.
    pub(crate) arguments: Vec<String>,
}

/// `config.json` of the sandbox's bundle.
pub(crate) fn describe(start: &Start, described: Described<'_>) -> Result<Spec> {
    let mounts = if described.kind.has_own_kernel() {
        mounts_of_own_kernel(start, described.root)?
    } else {
        mounts_of_this_kernel(described.root)?
    };
    let root =
        RootBuilder::default().path(described.root).readonly(!start.writable_root).build()?;
    let mut spec = SpecBuilder::default()
        .version("1.0.2")
        .root(root)
        .mounts(mounts)
        .hostname(&*start.hostname)
        .process(process(described.kind, described.arguments)?)
        .linux(linux(described.range, described.masks)?)
        .build()?;
    spec.set_annotations(None);
    Ok(spec)
}

fn process(kind: RuntimeKind, arguments: Vec<String>) -> Result<Process> {
    // gVisor takes capabilities from everybody but root at `exec`; there the agent changes its user by itself.
    let id = if kind.has_own_kernel() { 0 } else { AGENT };
    let mut all = vec![format!("/{INIT_DIRECTORY}/belljar-agent")];
    all.extend(arguments);
    let capabilities: std::collections::HashSet<Capability> = capabilities().into_iter().collect();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(capabilities.clone())
        .effective(capabilities.clone())
        .permitted(capabilities.clone())
        .inheritable(capabilities.clone())
        .ambient(capabilities)
        .build()?;
    let mut process = ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(id).gid(id).build()?)
        .args(all)
        .env(Vec::<String>::new())
        .cwd("/")
        .no_new_privileges(true)
        .capabilities(capabilities)
        .build()?;
    process.set_rlimits(None); // the agent sets what the workload gets
    Ok(process)
}

/// Those of [`AGENT_CAPABILITIES`], by name.
fn capabilities() -> Vec<Capability> {
    const NAMES: [(u32, Capability); 11] = [
        (0, Capability::Chown),
        (1, Capability::DacOverride),
        (3, Capability::Fowner),
        (4, Capability::Fsetid),
        (5, Capability::Kill),
        (6, Capability::Setgid),
        (7, Capability::Setuid),
        (8, Capability::Setpcap),
        (10, Capability::NetBindService),
        (18, Capability::SysChroot),
        (31, Capability::Setfcap),
    ];
    let kept = NAMES.into_iter().filter(|(number, _)| AGENT_CAPABILITIES & (1 << number) != 0);
    kept.map(|(_, capability)| capability).collect()
}

fn linux(range: u32, (hidden, read_only): (Vec<String>, Vec<String>)) -> Result<Linux> {
    let ids: LinuxIdMapping = LinuxIdMappingBuilder::default()
        .container_id(0u32)
        .host_id(ids::outside(range, 0))
        .size(RANGE)
        .build()?;
    use LinuxNamespaceType::{Cgroup, Ipc, Mount, Pid, User, Uts};
    let namespaces: Vec<_> = [User, Mount, Pid, Ipc, Uts, Cgroup]
        .into_iter()
        .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build())
        .collect::<Result<_>>()?;
    let mut linux = LinuxBuilder::default()
        .uid_mappings(vec![ids])
        .gid_mappings(vec![ids])
        .namespaces(namespaces)
        .masked_paths(hidden)
        .readonly_paths(read_only)
        .build()?;
    // The launcher's own cgroups are around the whole of it, and hold the runtime too.
    linux.set_resources(None);
    linux.set_cgroups_path(None);
    Ok(linux)
}

/// Everything but `/proc` is in the assembled root. Naming `/dev` keeps the runtime from making one of its own.
fn mounts_of_this_kernel(root: &Path) -> Result<Vec<Mount>> {
    Ok(vec![bind(&root.join("dev"), "/dev", &["rbind"])?, proc()?])
}

/// What another kernel makes by itself is told; what comes from the host and can change there is named one by one, so that
/// it is looked at anew each time, while the root may be remembered.
fn mounts_of_own_kernel(start: &Start, root: &Path) -> Result<Vec<Mount>> {
    let shared_memory = format!("size={}", start.shared_memory_bytes);
    let mut mounts = vec![
        proc()?,
        memory("/sys", &["ro", "nosuid", "nodev", "noexec", "size=4k", "mode=0555"])?,
        memory("/dev/shm", &["nosuid", "nodev", "noexec", "mode=1777", &shared_memory])?,
    ];
    if start.service {
        let options = ["nosuid", "nodev", "noexec", "size=64k", "mode=0755"];
        mounts.push(memory("/run/belljar/service", &options)?);
    }
    let writable = ["rbind", "rw", "nosuid", "nodev"];
    let asked: Vec<(String, bool)> = start
        .mounts
        .iter()
        .map(|mount| {
            let target = String::from_utf8_lossy(&mount.target).into_owned();
            (target, mount.kind != MountKind::ReadOnly)
        })
        .collect();
    for directory in ["workspace", "output", "home/user", "tmp"] {
        if !asked.iter().any(|(target, _)| target == directory) {
            mounts.push(bind(&root.join(directory), &format!("/{directory}"), &writable)?);
        }
    }
    for (target, may_write) in asked {
        let options = if may_write { writable } else { ["rbind", "ro", "nosuid", "nodev"] };
        mounts.push(bind(&root.join(&target), &format!("/{target}"), &options)?);
    }
    if start.mounts.iter().any(|mount| mount.kind == MountKind::Layer) {
        let layers = "run/belljar/private/layers";
        mounts.push(bind(&root.join(layers), &format!("/{layers}"), &writable)?);
    }
    Ok(mounts)
}

fn proc() -> Result<Mount> {
    mount("/proc", "proc", Path::new("proc"), &["nosuid", "noexec", "nodev"])
}

fn memory(target: &str, options: &[&str]) -> Result<Mount> {
    mount(target, "tmpfs", Path::new("tmpfs"), options)
}

fn bind(source: &Path, target: &str, options: &[&str]) -> Result<Mount> {
    mount(target, "bind", source, options)
}

fn mount(target: &str, kind: &str, source: &Path, options: &[&str]) -> Result<Mount> {
    MountBuilder::default()
        .destination(PathBuf::from(target))
        .typ(kind)
        .source(source)
        .options(options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>())
        .build()
}
