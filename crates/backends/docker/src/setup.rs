//! What the agent of a container is told, so that it does its part of the wall.

use std::collections::BTreeMap;
use std::path::PathBuf;

use belljar_backend::{AgentSetup, LandlockAccess, ResourceLimit, SandboxSpec, TreeKill};
use belljar_machinery::{seccomp, tools};
use belljar_policy::Access;

use crate::limits::Chosen;

const RLIMIT_CORE: u32 = 4;

/// Where the agent serves sockets to the inside.
pub(crate) const SERVICE: &str = "/run/belljar/service";

pub(crate) fn agent_setup(
    spec: &SandboxSpec,
    chosen: &Chosen,
    environment: BTreeMap<String, String>,
    own_kernel: bool,
) -> AgentSetup {
    let mut landlock = vec![
        (PathBuf::from("/"), LandlockAccess::ReadExecute),
        (PathBuf::from("/dev"), LandlockAccess::Devices),
        (PathBuf::from("/proc"), LandlockAccess::Devices),
        (PathBuf::from("/dev/shm"), LandlockAccess::ReadWrite),
    ];
    for (path, ..) in &chosen.disks {
        landlock.push((PathBuf::from(path), LandlockAccess::ReadWrite));
    }
    for mount in spec.mounts.iter().filter(|mount| mount.access == Access::ReadWrite) {
        landlock.push((mount.target.clone(), LandlockAccess::ReadWrite));
    }
    if own_kernel {
        landlock.clear(); // that kernel has none, and no rule is given that nobody keeps
    }
    AgentSetup {
        seccomp: vec![seccomp::own().to_vec()],
        shared_seccomp: vec![seccomp::shared().to_vec()],
        landlock,
        tree_kill: if own_kernel { TreeKill::Direct } else { TreeKill::Subreaper },
        resource_limits: vec![ResourceLimit { resource: RLIMIT_CORE, soft: 0, hard: 0 }],
        root_capabilities: 0,
        memory_watch_bytes: None,
        single_user: false,
        environment,
        service_socket: spec.programs.is_some().then(|| PathBuf::from(SERVICE).join("agent.sock")),
        tool_socket: spec.tools.then(|| PathBuf::from(tools::SOCKET)),
        search_paths: if spec.tools { tools::search_paths() } else { Vec::new() },
        workspace_layer: None,
        working_directory: None,
    }
}
