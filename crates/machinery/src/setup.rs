//! What the agent of a sandbox is told, so that it does its part of the wall.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belljar_backend::{AgentSetup, LandlockAccess, SandboxSpec, TreeKill};
use belljar_launcher::wire::Facts;
use belljar_policy::Access;

use crate::mechanism::Mechanisms;
use crate::wall::Wall;
use crate::{seccomp, tools};

/// Capabilities that a workload asked to be root has inside its user namespace: what package managers need.
/// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE, SYS_CHROOT, SETFCAP.
const ROOT_CAPABILITIES: u64 =
    1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 18 | 1 << 31;

/// Those of them by which root could end the agent in a kernel that does not shield its first process (gVisor's):
/// KILL, and becoming the agent's user by SETGID and SETUID.
const ENDS_THE_AGENT: u64 = 1 << 5 | 1 << 6 | 1 << 7;

pub(crate) fn agent_setup(
    spec: &SandboxSpec,
    facts: &Facts,
    wall: &Wall,
    mechanisms: &Mechanisms,
    search_path: &[String],
) -> AgentSetup {
    let shared =
        if mechanisms.affinity.is_some() { seccomp::keep_affinity() } else { seccomp::shared() };
    let root =
        if spec.writable_root { LandlockAccess::ReadWrite } else { LandlockAccess::ReadExecute };
    let mut landlock = vec![
        (PathBuf::from("/"), root),
        (PathBuf::from("/dev"), LandlockAccess::Devices),
        (PathBuf::from("/proc"), LandlockAccess::Devices),
    ];
    for path in ["/workspace", "/tmp", "/output", "/home/user", "/dev/shm"] {
        landlock.push((PathBuf::from(path), LandlockAccess::ReadWrite));
    }
    for mount in &spec.mounts {
        if mount.access == Access::ReadWrite || mount.overlay {
            landlock.push((mount.target.clone(), LandlockAccess::ReadWrite));
        }
    }
    if wall.has_own_kernel() {
        landlock.clear(); // that kernel has none, and no rule is given that nobody keeps
    }
    let tree_kill = if wall.has_own_kernel() {
        TreeKill::Direct // a cgroup of the host is no handle on processes that only another kernel knows
    } else if facts.group_kill {
        TreeKill::Cgroup
    } else {
        TreeKill::Subreaper
    };
    let environment = BTreeMap::from([("PATH".to_owned(), search_path.join(":"))]);
    AgentSetup {
        seccomp: vec![seccomp::own().to_vec()],
        shared_seccomp: vec![shared.to_vec()],
        landlock,
        tree_kill,
        resource_limits: mechanisms.resource_limits.clone(),
        root_capabilities: match wall.has_own_kernel() {
            true => ROOT_CAPABILITIES & !ENDS_THE_AGENT,
            false => ROOT_CAPABILITIES,
        },
        memory_watch_bytes: mechanisms.memory_watch_bytes,
        single_user: !facts.privileged,
        environment,
        service_socket: spec
            .programs
            .is_some()
            .then(|| PathBuf::from("/run/belljar/service/agent.sock")),
        tool_socket: spec.tools.then(|| PathBuf::from(tools::SOCKET)),
        search_paths: if spec.tools { tools::search_paths() } else { Vec::new() },
        workspace_layer: spec
            .mounts
            .iter()
            .any(|mount| mount.overlay)
            .then(|| PathBuf::from("/run/belljar/private/layers/workspace-0/upper")),
        working_directory: None,
    }
}
