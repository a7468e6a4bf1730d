//! Which mechanism enforces which limit on this host.
//!
//! A limit that somebody asked for is enforced fully or refused, unless less was accepted in so many words. A default
//! falls to the next best mechanism. What was chosen is said in the enforcement list, word for word.

use belljar_backend::{Enforcement, Error, Mask, ResourceLimit, Result, SandboxSpec, Subject};
use belljar_codes::Code;
use belljar_launcher::wire::{Disk, DiskKind, Facts};
use belljar_policy::limits::{format_bytes, format_cpus};
use belljar_policy::{Asked, NetworkMode};

use crate::wall::Wall;

/// Processes of ours that the kernel counts too: the agent and, where a resource limit counts, a supervisor.
const AGENT: u32 = 1;
const AGENT_AND_SUPERVISOR: u32 = 2;
/// What programs expect of `/dev/shm`, at most; it counts against memory.
const SHARED_MEMORY: u64 = 64 << 20;

/// What a runtime's own threads may be, beside those of the workload: Go starts a handful, however small the work.
const RUNTIME_THREADS: u32 = 24;
/// What gVisor itself may take beside the workload: its kernel and its file server, and on the host a process or two
/// for every one inside.
const KERNEL_MEMORY: u64 = 128 << 20;
const KERNEL_THREADS: u32 = 512;
const HOST_THREADS_PER_PROCESS: u32 = 4;

const RLIMIT_CORE: u32 = 4;
const RLIMIT_NPROC: u32 = 6;

const DELEGATION: &str = "run as root, or give this user a delegated cgroup \
    (`systemd-run --user --scope -p Delegate=yes belljar …`), or accept a weaker mechanism with `--best-effort`";

/// What the launcher and the agent are told, and what is told to people.
#[derive(Clone, Debug)]
pub(crate) struct Mechanisms {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memory_watch_bytes: Option<u64>,
    pub(crate) cpu_millis: Option<u32>,
    pub(crate) affinity: Option<u64>,
    pub(crate) pids: Option<u32>,
    pub(crate) disk: Disk,
    pub(crate) shared_memory_bytes: u64,
    pub(crate) resource_limits: Vec<ResourceLimit>,
    pub(crate) enforcement: Vec<Enforcement>,
}

/// Chooses. Nothing is made; an error names the rule that cannot be kept here.
pub(crate) fn choose(spec: &SandboxSpec, facts: &Facts, wall: &Wall) -> Result<Mechanisms> {
    let mut chosen = Mechanisms {
        memory_bytes: None,
        memory_watch_bytes: None,
        cpu_millis: None,
        affinity: None,
        pids: None,
        disk: Disk {
            bytes: spec.limits.disk_bytes.value,
            inodes: spec.limits.disk_inodes.value,
            kind: DiskKind::Memory,
        },
        shared_memory_bytes: SHARED_MEMORY.min(spec.limits.memory_bytes.value / 2),
        resource_limits: vec![ResourceLimit { resource: RLIMIT_CORE, soft: 0, hard: 0 }],
        enforcement: Vec::new(),
    };
    network(spec, wall, &mut chosen);
    memory(spec, facts, wall, &mut chosen)?;
    cpu(spec, facts, &mut chosen)?;
    pids(spec, facts, wall, &mut chosen);
    disk(spec, facts, &mut chosen)?;
    walls(spec, facts, wall, &mut chosen);
    Ok(chosen)
}

fn network(spec: &SandboxSpec, wall: &Wall, chosen: &mut Mechanisms) {
    let mechanism = match spec.network {
        NetworkMode::None if wall.has_own_kernel() => {
            "gVisor's own network stack, with no interface but loopback"
        }
        NetworkMode::Allowlist | NetworkMode::Full if wall.has_own_kernel() => {
            "gVisor in host mode (sockets of the host's kernel) inside a network namespace whose only link leads to a \
            gateway without a way out; nftables there turns connections and DNS to doors on the host and drops all else"
        }
        NetworkMode::None => "network namespace with no interface but loopback",
        NetworkMode::Allowlist | NetworkMode::Full => {
            "network namespace whose only link leads to a gateway without a way out; \
            nftables there turns connections and DNS to doors on the host and drops all else"
        }
    };
    chosen.say(Subject::Network, spec.network.as_str(), mechanism, true);
}

fn memory(spec: &SandboxSpec, facts: &Facts, wall: &Wall, chosen: &mut Mechanisms) -> Result<()> {
    let limit = spec.limits.memory_bytes;
    let rule = format_bytes(limit.value);
    match &facts.memory {
        Some(version) if wall.has_own_kernel() => {
            // Its kernel shares the controller with the workload and must not be what is killed first.
            chosen.memory_watch_bytes = Some(limit.value);
            chosen.memory_bytes = Some(limit.value.saturating_add(KERNEL_MEMORY));
            let mechanism = format!(
                "the agent watches resident memory and kills the workload above it; {version} memory controller, no \
                swap, at {} more for gVisor itself",
                format_bytes(KERNEL_MEMORY)
            );
            chosen.say(Subject::Memory, &rule, &mechanism, true);
        }
        Some(version) => {
            chosen.memory_bytes = Some(limit.value);
            chosen.say(
                Subject::Memory,
                &rule,
                &format!("{version} memory controller, no swap"),
                true,
            );
        }
        None => {
            may_weaken(
                limit,
                spec,
                "memory",
                &rule,
                "no memory controller is delegated to this user",
            )?;
            chosen.memory_watch_bytes = Some(limit.value);
            let mechanism = "the agent watches resident memory and kills the workload above it";
            chosen.say(Subject::Memory, &rule, mechanism, false);
        }
    }
    Ok(())
}

fn cpu(spec: &SandboxSpec, facts: &Facts, chosen: &mut Mechanisms) -> Result<()> {
    let limit = spec.limits.cpu_millis;
    let rule = format!("{} CPU", format_cpus(limit.value));
    if let Some(version) = &facts.cpu {
        chosen.cpu_millis = Some(limit.value);
        chosen.say(Subject::Cpu, &rule, &format!("{version} cpu controller"), true);
        return Ok(());
    }
    let whole = limit.value.div_ceil(1000).max(1);
    let whole_cpus = limit.value.is_multiple_of(1000);
    if !whole_cpus {
        may_weaken(
            limit,
            spec,
            "cpus",
            &rule,
            "without a cpu controller only whole CPUs can be given",
        )?;
    }
    if whole < facts.cpus.min(64) {
        chosen.affinity = Some(affinity(spec.id.as_str(), whole, facts.cpus.min(64)));
    }
    let mechanism =
        format!("affinity to {} CPU(s), which the workload cannot change", whole.min(facts.cpus));
    chosen.say(Subject::Cpu, &rule, &mechanism, whole_cpus);
    Ok(())
}

/// `count` neighbouring CPUs out of `of`, starting where the sandbox's name happens to point.
fn affinity(id: &str, count: u32, of: u32) -> u64 {
    let start = id.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    (0..count).fold(0, |mask, step| mask | 1 << (start.wrapping_add(step) % of))
}

fn pids(spec: &SandboxSpec, facts: &Facts, wall: &Wall, chosen: &mut Mechanisms) {
    let limit = spec.limits.pids.value;
    let rule = format!("{limit} processes and threads");
    if let (Some(version), Some(_)) = (&facts.pids, wall.runtime()) {
        // The controller counts the runtime too, whose threads come and go; so the exact number is kept inside.
        let around = match wall.has_own_kernel() {
            true => limit.saturating_mul(HOST_THREADS_PER_PROCESS).saturating_add(KERNEL_THREADS),
            false => limit.saturating_add(RUNTIME_THREADS),
        };
        chosen.pids = Some(around);
        // The agent has a user of its own there. gVisor's kernel lets one more pass than Linux does.
        chosen.limit_processes(limit.saturating_sub(u32::from(wall.has_own_kernel())));
        let mechanism = format!(
            "RLIMIT_NPROC for each user inside; {version} pids controller at {around} for all of it, the runtime included"
        );
        chosen.say(Subject::Pids, &rule, &mechanism, true);
    } else if let Some(version) = &facts.pids {
        chosen.pids = Some(limit.saturating_add(AGENT));
        chosen.say(Subject::Pids, &rule, &format!("{version} pids controller"), true);
    } else {
        chosen.limit_processes(limit.saturating_add(AGENT_AND_SUPERVISOR));
        chosen.say(Subject::Pids, &rule, "RLIMIT_NPROC, counted per user namespace", true);
    }
}

fn disk(spec: &SandboxSpec, facts: &Facts, chosen: &mut Mechanisms) -> Result<()> {
    let limit = spec.limits.disk_bytes;
    let rule = format!("{}, {} inodes", format_bytes(limit.value), chosen.disk.inodes);
    if facts.disk_image {
        chosen.disk.kind = DiskKind::Image;
        chosen.say(Subject::Disk, &rule, "a file system of its own in a sparse image", true);
        return Ok(());
    }
    // In memory, a full disk must not be able to push the workload over its memory limit unnoticed.
    let memory = spec.limits.memory_bytes.value;
    if facts.memory.is_some() && limit.value > memory / 2 {
        let reason = format!(
            "without disk images the disk is in memory, and half of the memory limit is {}",
            format_bytes(memory / 2)
        );
        may_weaken(limit, spec, "disk", &rule, &reason)?;
        chosen.disk.bytes = memory / 2;
        let rule = format!("{}, {} inodes", format_bytes(memory / 2), chosen.disk.inodes);
        chosen.say(Subject::Disk, &rule, "tmpfs, half of the memory limit", false);
    } else {
        chosen.say(Subject::Disk, &rule, "tmpfs of that size", true);
    }
    Ok(())
}

fn walls(spec: &SandboxSpec, facts: &Facts, wall: &Wall, chosen: &mut Mechanisms) {
    let root = if spec.writable_root {
        "root is a copy-on-write layer; the template stays as it is"
    } else {
        "root is read-only; /workspace, /tmp, /output and /home/user are writable"
    };
    let mounts = if spec.writable_root { "overlay" } else { "read-only mounts" };
    let place = match wall.has_own_kernel() {
        true => "in a mount namespace, served to gVisor's kernel as its only files",
        false => "in a mount namespace with none of the host's mounts",
    };
    let landlock = match wall.has_own_kernel() || spec.writable_root {
        true => "",
        false => ", Landlock where the kernel has it",
    };
    chosen.say(Subject::Filesystem, root, &format!("{mounts} {place}{landlock}"), true);
    if let Some(rule) = Mask::rule(&spec.masks) {
        chosen.say(Subject::Filesystem, &rule, "an empty read-only mount over each", true);
    }
    let identity = if facts.privileged {
        "user namespace with ids of its own; no capabilities, no_new_privs"
    } else {
        "user namespace that maps one id; no capabilities, no_new_privs"
    };
    chosen.say(Subject::Identity, &format!("uid {}", spec.user.uid), identity, true);
    let calls = if wall.has_own_kernel() {
        "seccomp filter in gVisor's kernel, which answers what is left; a few of the host's own reach the host, by gVisor's filter"
    } else {
        "seccomp filter, 32-bit entry ends the process"
    };
    chosen.say(Subject::Syscalls, "only those in the table", calls, true);
    let kill = match (wall.has_own_kernel(), facts.group_kill) {
        (true, _) => {
            "the agent adopts the orphans of one process, a subreaper those of each beside it"
        }
        (false, true) => "a cgroup per process, killed as one",
        (false, false) => "a subreaper per process",
    };
    chosen.say(Subject::Processes, "a timeout ends the whole tree", kill, true);
    if let Some(programs) = &spec.programs {
        let names: Vec<_> = programs.iter().collect();
        chosen.say(
            Subject::Programs,
            &names.join(", "),
            "other programs are not there; stubs report attempts",
            true,
        );
    }
}

fn may_weaken<T>(
    limit: Asked<T>,
    spec: &SandboxSpec,
    flag: &str,
    rule: &str,
    reason: &str,
) -> Result<()> {
    if !limit.asked || spec.best_effort {
        return Ok(());
    }
    Err(Error::new(
        Code::NotEnforceable,
        format!("`--{flag}` {rule} cannot be enforced here: {reason}"),
    )
    .with_remedy(DELEGATION))
}

impl Mechanisms {
    /// For each user inside.
    fn limit_processes(&mut self, most: u32) {
        let value = u64::from(most);
        let limit = ResourceLimit { resource: RLIMIT_NPROC, soft: value, hard: value };
        self.resource_limits.push(limit);
    }

    fn say(&mut self, subject: Subject, rule: &str, mechanism: &str, full: bool) {
        self.enforcement.push(Enforcement {
            subject,
            rule: rule.to_owned(),
            mechanism: mechanism.to_owned(),
            full,
        });
    }
}
