//! The container of a sandbox, as the engine is asked for it: hardened in every way that the engine knows.

use std::collections::HashMap;

use belljar_backend::{IsolationClass, SandboxSpec};
use belljar_launcher::wire::{GATEWAY_V4, GATEWAY_V6};
use belljar_machinery::seccomp;
use belljar_policy::NetworkMode;
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig,
    Mount, RestartPolicy, RestartPolicyNameEnum,
};

use crate::agent;
use crate::daemon::{Facts, class};
use crate::limits::Chosen;
use crate::memory::{self, Directory};

/// What of `/proc` and `/sys` is hidden. `/sys` as a whole: nothing in it is the workload's business.
pub(crate) const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    "/sys",
];
const READ_ONLY: &[&str] =
    &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What is asked for besides the specification.
pub(crate) struct Asked<'a> {
    pub(crate) image: &'a str,
    pub(crate) runtime: Option<&'a str>,
    pub(crate) labels: HashMap<String, String>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) directories: &'a [Directory],
    pub(crate) security: Vec<String>,
}

pub(crate) fn body(
    spec: &SandboxSpec,
    chosen: &Chosen,
    facts: &Facts,
    asked: Asked<'_>,
) -> ContainerCreateBody {
    let own_kernel = class(asked.runtime) != IsolationClass::Namespace;
    let strings = |list: &[&str]| Some(list.iter().map(|&text| text.to_owned()).collect());
    let host_config = HostConfig {
        memory: chosen.memory_bytes.map(signed),
        memory_swap: chosen.memory_bytes.filter(|_| facts.swap).map(signed),
        nano_cpus: chosen.cpu_millis.map(|millis| i64::from(millis) * 1_000_000),
        pids_limit: chosen.pids.map(i64::from),
        init: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        network_mode: Some("none".to_owned()),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        // The agent leaves when the lease ends; nobody else has to be there for it.
        auto_remove: Some(true),
        mounts: Some(asked.mounts),
        cap_drop: strings(&["ALL"]),
        cap_add: strings(&agent::CAPABILITIES),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        dns: Some(resolvers(spec.network)),
        // Without these the host's own are taken.
        dns_search: strings(&["."]),
        dns_options: strings(&["edns0", "timeout:5"]),
        ipc_mode: Some("private".to_owned()),
        privileged: Some(false),
        publish_all_ports: Some(false),
        readonly_rootfs: Some(true),
        security_opt: Some(asked.security),
        tmpfs: Some(memory::options(asked.directories, facts)),
        shm_size: Some(signed(chosen.shared_memory_bytes)),
        sysctls: (spec.network != NetworkMode::None).then(|| {
            ["all", "default"]
                .map(|which| (format!("net.ipv6.conf.{which}.disable_ipv6"), "0".to_owned()))
                .into()
        }),
        runtime: asked.runtime.map(str::to_owned),
        masked_paths: strings(MASKED),
        readonly_paths: strings(READ_ONLY),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(asked.image.to_owned()),
        hostname: Some(spec.hostname.clone()),
        // The agent, for as long as it takes to become who it is to be; the workload never has this user.
        user: Some(format!("{0}:{0}", agent::HOST)),
        entrypoint: Some(vec![agent::program()]),
        cmd: Some(agent::arguments(own_kernel)),
        working_dir: Some("/".to_owned()),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        tty: Some(false),
        open_stdin: Some(false),
        // An image's own would be run beside the workload, by the engine.
        healthcheck: Some(HealthConfig { test: strings(&["NONE"]), ..HealthConfig::default() }),
        labels: Some(asked.labels),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// What the kernel is to keep the container from.
pub(crate) fn security(facts: &Facts) -> Vec<String> {
    let mut options =
        vec!["no-new-privileges".to_owned(), format!("seccomp={}", seccomp::profile())];
    if facts.app_armor {
        options.push("apparmor=docker-default".to_owned());
    }
    options
}

/// Where names are found: at the doors, or nowhere.
fn resolvers(network: NetworkMode) -> Vec<String> {
    match network {
        NetworkMode::None => vec!["127.0.0.1".to_owned()],
        _ => vec![GATEWAY_V4.to_string(), GATEWAY_V6.to_string()],
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
