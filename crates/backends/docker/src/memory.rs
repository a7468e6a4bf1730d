//! Directories of a container that are in memory: whose, how much and how many files.

use std::collections::HashMap;

use belljar_backend::SandboxSpec;

use crate::daemon::Facts;
use crate::limits::Chosen;
use crate::{agent, podman, setup};

/// What the agent's sockets need.
const SERVICE_BYTES: u64 = 64 << 10;
const SERVICE_INODES: u64 = 16;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    mode: &'static str,
    flags: &'static str,
}

/// Those of the workload, and those of the agent.
pub(crate) fn of(spec: &SandboxSpec, chosen: &Chosen, own_kernel: bool) -> Vec<Directory> {
    let work = chosen.disks.iter().map(|(path, bytes, inodes)| Directory {
        path: path.clone(),
        bytes: *bytes,
        inodes: *inodes,
        owner: spec.user.uid,
        group: spec.user.gid,
        mode: if path == "/tmp" { "1777" } else { "0755" },
        flags: "rw,exec,nosuid,nodev",
    });
    let small = |path: &str, user: u32, mode| Directory {
        path: path.to_owned(),
        bytes: SERVICE_BYTES,
        inodes: SERVICE_INODES,
        owner: user,
        group: user,
        mode,
        flags: "rw,noexec,nosuid,nodev",
    };
    let serves = spec.programs.is_some() || spec.tools;
    let service = serves.then(|| small(setup::SERVICE, agent::USER, "0755"));
    let door = own_kernel.then(|| small(agent::DOOR, agent::HOST, "0700"));
    work.chain(service).chain(door).collect()
}

/// As the engine is told.
pub(crate) fn options(directories: &[Directory], facts: &Facts) -> HashMap<String, String> {
    let told = directories.iter().map(|directory| {
        let Directory { bytes, inodes, owner, group, mode, flags, .. } = directory;
        let known_to_all = format!("{flags},size={bytes},mode={mode}");
        let options = match facts.podman {
            true => podman::with_what_it_knows(&known_to_all),
            false => format!("{known_to_all},nr_inodes={inodes},uid={owner},gid={group}"),
        };
        (directory.path.clone(), options)
    });
    let opened = facts.podman.then(podman::opened).into_iter().flatten();
    opened.chain(told).collect()
}
