//! Which mechanism of the engine enforces which limit.
//!
//! A limit that somebody asked for is enforced fully or refused, unless less was accepted in so many words.

use belljar_backend::{Enforcement, Mask, Result, SandboxSpec, Subject};
use belljar_policy::limits::{format_bytes, format_cpus};
use belljar_policy::{Asked, NetworkMode};

use crate::daemon::Facts;
use crate::failure::refused;
use crate::{agent, podman};

/// What the kernel counts besides the workload: the agent and a supervisor; on an engine elsewhere also a relay.
const AGENT_AND_SUPERVISOR: u32 = 2;
const RELAY: u32 = 1;
/// What programs expect of `/dev/shm`, at most; it counts against memory.
const SHARED_MEMORY: u64 = 64 << 20;
/// Directories that are the workload's own, with the parts of the disk that each gets.
pub(crate) const WORK_DIRECTORIES: [(&str, u64); 4] =
    [("/workspace", 3), ("/tmp", 2), ("/output", 1), ("/home/user", 2)];

const OTHER_BACKEND: &str = "use another backend, or accept less with `--best-effort`";

/// What the engine is told, and what is told to people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpu_millis: Option<u32>,
    pub(crate) pids: Option<u32>,
    pub(crate) shared_memory_bytes: u64,
    /// Work directories: bytes and inodes.
    pub(crate) disks: Vec<(String, u64, u64)>,
    pub(crate) enforcement: Vec<Enforcement>,
}

/// Chooses; nothing is made. `volumes`: directories that the image wants to write to.
pub(crate) fn choose(spec: &SandboxSpec, facts: &Facts, volumes: &[String]) -> Result<Chosen> {
    let mut chosen = Chosen {
        shared_memory_bytes: SHARED_MEMORY.min(spec.limits.memory_bytes.value / 2),
        ..Chosen::default()
    };
    podman::check(facts)?;
    network(spec, facts, &mut chosen)?;
    controllers(spec, facts, &mut chosen)?;
    disk(spec, volumes, &mut chosen)?;
    walls(spec, facts, &mut chosen)?;
    Ok(chosen)
}

fn network(spec: &SandboxSpec, facts: &Facts, chosen: &mut Chosen) -> Result<()> {
    let mechanism = match spec.network {
        NetworkMode::None => "the engine's network mode `none`: no interface but loopback",
        NetworkMode::Allowlist | NetworkMode::Full if facts.near => {
            "network mode `none` with one link to a gateway without a way out; nftables there turns connections and DNS \
            to doors on the host and drops all else"
        }
        NetworkMode::Allowlist | NetworkMode::Full => {
            return Err(refused(
                "network",
                "a gateway can only be given to containers of an engine on this host, by root",
                "run as root on the engine's own host, or use `--network none`",
            ));
        }
    };
    chosen.say(Subject::Network, spec.network.as_str(), mechanism, true);
    Ok(())
}

fn controllers(spec: &SandboxSpec, facts: &Facts, chosen: &mut Chosen) -> Result<()> {
    let memory = spec.limits.memory_bytes;
    let rule = format_bytes(memory.value);
    match (facts.memory, facts.swap) {
        (true, true) => {
            chosen.memory_bytes = Some(memory.value);
            chosen.say(Subject::Memory, &rule, "the engine's memory limit, no swap", true);
        }
        (true, false) => {
            may_weaken(memory, spec, "memory", "this engine cannot limit swap")?;
            chosen.memory_bytes = Some(memory.value);
            chosen.say(
                Subject::Memory,
                &rule,
                "the engine's memory limit, swap not limited",
                false,
            );
        }
        (false, _) => {
            may_weaken(memory, spec, "memory", "this engine has no memory controller")?;
            chosen.say(Subject::Memory, &rule, "not enforced", false);
        }
    }
    let cpu = spec.limits.cpu_millis;
    let rule = format!("{} CPU", format_cpus(cpu.value));
    if facts.cpu {
        chosen.cpu_millis = Some(cpu.value);
        chosen.say(Subject::Cpu, &rule, "the engine's CPU quota", true);
    } else {
        may_weaken(cpu, spec, "cpus", "this engine has no CPU quota")?;
        chosen.say(Subject::Cpu, &rule, "not enforced", false);
    }
    let pids = spec.limits.pids;
    let rule = format!("{} processes and threads", pids.value);
    if facts.pids {
        let relay = if facts.near { 0 } else { RELAY };
        chosen.pids = Some(pids.value.saturating_add(AGENT_AND_SUPERVISOR + relay));
        chosen.say(Subject::Pids, &rule, "the engine's pids limit", true);
    } else {
        may_weaken(pids, spec, "pids", "this engine has no pids limit")?;
        chosen.say(Subject::Pids, &rule, "not enforced", false);
    }
    Ok(())
}

/// Work directories are in memory, each with a part of the disk, so that together they never have more.
fn disk(spec: &SandboxSpec, volumes: &[String], chosen: &mut Chosen) -> Result<()> {
    let limit = spec.limits.disk_bytes;
    let memory = spec.limits.memory_bytes.value;
    let bytes = if limit.value > memory / 2 {
        let reason = format!(
            "work directories are in memory, and half of the memory limit is {}",
            format_bytes(memory / 2)
        );
        may_weaken(limit, spec, "disk", &reason)?;
        memory / 2
    } else {
        limit.value
    };
    let inodes = spec.limits.disk_inodes.value;
    let is_mounted =
        |path: &str| spec.mounts.iter().any(|mount| mount.target == std::path::Path::new(path));
    let mut parts: Vec<(String, u64)> =
        WORK_DIRECTORIES.iter().map(|(path, part)| ((*path).to_owned(), *part)).collect();
    for volume in volumes {
        if !parts.iter().any(|(path, _)| path == volume) {
            parts.push((volume.clone(), 1));
        }
    }
    parts.retain(|(path, _)| !is_mounted(path));
    let whole: u64 = parts.iter().map(|(_, part)| part).sum();
    for (path, part) in parts {
        chosen.disks.push((path, bytes / whole * part, inodes / whole * part));
    }
    let rule = format!("{}, {inodes} inodes", format_bytes(bytes));
    let mechanism = "a tmpfs per work directory, each with its part of it; counts as memory too";
    chosen.say(Subject::Disk, &rule, mechanism, bytes == limit.value);
    Ok(())
}

fn walls(spec: &SandboxSpec, facts: &Facts, chosen: &mut Chosen) -> Result<()> {
    if [agent::HOST, agent::USER].contains(&spec.user.uid) {
        return Err(refused(
            "user",
            "root of a container is root of the host unless its engine is set up otherwise, and 65533 is the agent's user",
            "leave out `--user`, or use `--backend native`, whose root is nobody outside",
        ));
    }
    if spec.writable_root {
        return Err(refused(
            "writable",
            "nothing limits what a container writes to its own layer on the engine's disk",
            "install what is needed into an image, or use `--backend native`",
        ));
    }
    if spec.mounts.iter().any(|mount| mount.overlay) {
        return Err(refused(
            "workspace-mode overlay",
            "a container has no layer over a directory of the host that could be reset",
            "use `--workspace-mode bind`, or `--backend native`",
        ));
    }
    let shows_files = !spec.mounts.is_empty() || !spec.covers.is_empty();
    if shows_files && !facts.near {
        return Err(refused(
            "mounts",
            "the engine is not on this host, or we may not look at its containers to see what was mounted",
            "upload files instead, or run as root on the engine's own host",
        ));
    }
    chosen.say(
        Subject::Filesystem,
        "root is read-only; /workspace, /tmp, /output and /home/user are writable",
        "read-only container, tmpfs, binds checked after the start, Landlock where the kernel has it",
        true,
    );
    if let Some(rule) = Mask::rule(&spec.masks) {
        let mechanism = "an empty read-only bind over each, checked after the start";
        chosen.say(Subject::Filesystem, &rule, mechanism, true);
    }
    let identity = if facts.own_ids {
        "container with ids of its own; no capabilities, no_new_privs"
    } else {
        "container with the host's ids, the agent another user; no capabilities, no_new_privs"
    };
    chosen.say(Subject::Identity, &format!("uid {}", spec.user.uid), identity, true);
    let profile = match (facts.app_armor, facts.podman) {
        (true, false) => {
            "our seccomp profile in the engine and the exact filter in the agent, AppArmor `docker-default`"
        }
        (true, true) => {
            "our seccomp profile in the engine and the exact filter in the agent, the engine's own AppArmor profile"
        }
        (false, _) => "our seccomp profile in the engine and the exact filter in the agent",
    };
    chosen.say(Subject::Syscalls, "only those in the table", profile, true);
    chosen.say(
        Subject::Processes,
        "a timeout ends the whole tree",
        "a subreaper per process; in a kernel of its own one process has the agent for it",
        true,
    );
    if let Some(programs) = &spec.programs {
        let names: Vec<_> = programs.iter().collect();
        let mechanism = "other programs are not there; stubs report attempts";
        chosen.say(Subject::Programs, &names.join(", "), mechanism, true);
    }
    Ok(())
}

fn may_weaken<T>(limit: Asked<T>, spec: &SandboxSpec, flag: &str, reason: &str) -> Result<()> {
    if !limit.asked || spec.best_effort {
        return Ok(());
    }
    Err(refused(flag, reason, OTHER_BACKEND))
}

impl Chosen {
    pub(crate) fn say(&mut self, subject: Subject, rule: &str, mechanism: &str, full: bool) {
        self.enforcement.push(Enforcement {
            subject,
            rule: rule.to_owned(),
            mechanism: mechanism.to_owned(),
            full,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_codes::Code;

    fn facts() -> Facts {
        Facts { near: true, memory: true, swap: true, cpu: true, pids: true, ..Facts::default() }
    }

    #[test]
    fn work_directories_together_have_the_disk_and_no_more() {
        let mut spec = belljar_machinery::probe::spec();
        spec.limits = spec.limits.with_disk(32 << 20);
        let chosen = choose(&spec, &facts(), &["/data".to_owned(), "/tmp".to_owned()]).unwrap();
        let bytes: u64 = chosen.disks.iter().map(|(_, bytes, _)| bytes).sum();
        let inodes: u64 = chosen.disks.iter().map(|(.., inodes)| inodes).sum();
        assert!(bytes <= 32 << 20 && inodes <= spec.limits.disk_inodes.value);
        assert_eq!(chosen.disks.len(), 5);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let refused = |change: &dyn Fn(&mut SandboxSpec), facts: &Facts| {
            let mut spec = belljar_machinery::probe::spec();
            change(&mut spec);
            let refusal = choose(&spec, facts, &[]).unwrap_err();
            assert_eq!(refusal.code, Code::NotEnforceable);
            assert!(refusal.remedy.is_some());
        };
        let far = Facts { near: false, ..facts() };
        refused(&|spec| spec.network = NetworkMode::Full, &far);
        refused(&|spec| spec.user.uid = 0, &facts());
        refused(&|spec| spec.writable_root = true, &facts());
        let without = Facts { memory: false, ..facts() };
        refused(&|spec| spec.limits.memory_bytes = Asked::by_caller(1 << 30), &without);
    }
}
