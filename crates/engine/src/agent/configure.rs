//! What an agent is told before anything else: the backend's part of the wall, and the sandbox's own identity.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use belljar_backend::{AgentSetup, LandlockAccess, TreeKill};
use belljar_policy::mounts::WORKSPACE_TARGET;
use belljar_policy::{Environment, Programs, UserSpec};
use belljar_protocol::v1;

use super::WINDOW;
use crate::time::duration_ms;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The engine's part of an agent's configuration.
#[derive(Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) user: UserSpec,
    pub(crate) hostname: &'a str,
    pub(crate) workdir: Option<&'a Path>,
    /// The caller's variables, without the dangerous ones.
    pub(crate) environment: &'a Environment,
    pub(crate) programs: Option<&'a Programs>,
    pub(crate) idle: Option<Duration>,
    pub(crate) hard: Option<Duration>,
    /// It has a network, and whose its connections are will be asked.
    pub(crate) network: bool,
}

pub(crate) fn configuration(setup: AgentSetup, identity: &Identity<'_>) -> v1::Configure {
    let mut environment = BTreeMap::from([
        ("PATH".to_owned(), DEFAULT_PATH.to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    environment.extend(environment_of(identity.user));
    environment.extend(setup.environment);
    for (name, value) in identity.environment.iter() {
        environment.insert(name.to_owned(), value.to_owned());
    }
    for (name, place) in setup.search_paths {
        let path = environment.entry(name).or_default();
        *path = if path.is_empty() { place } else { format!("{path}:{place}") };
    }
    let workdir = identity
        .workdir
        .or(setup.working_directory.as_deref())
        .unwrap_or(Path::new(WORKSPACE_TARGET));
    let has_tools = setup.tool_socket.is_some();
    v1::Configure {
        seccomp: setup.seccomp,
        shared_seccomp: setup.shared_seccomp,
        user: Some(user_message(identity.user)),
        environment,
        working_directory: bytes(workdir),
        resource_limits: setup
            .resource_limits
            .iter()
            .map(|limit| v1::ResourceLimit {
                resource: limit.resource,
                soft: limit.soft,
                hard: limit.hard,
            })
            .collect(),
        landlock: setup
            .landlock
            .iter()
            .map(|(path, access)| v1::LandlockRule {
                path: bytes(path),
                access: match access {
                    LandlockAccess::ReadExecute => v1::landlock_rule::Access::ReadExecute,
                    LandlockAccess::ReadWrite => v1::landlock_rule::Access::ReadWrite,
                    LandlockAccess::Devices => v1::landlock_rule::Access::Devices,
                } as i32,
            })
            .collect(),
        tree_kill: match setup.tree_kill {
            TreeKill::Cgroup => v1::TreeKill::Cgroup,
            TreeKill::Subreaper => v1::TreeKill::Subreaper,
            TreeKill::Direct => v1::TreeKill::Direct,
        } as i32,
        window: u32::try_from(WINDOW).expect("a window of some hundred kilobytes"),
        lease: Some(v1::Lease {
            idle_ms: identity.idle.map_or(0, duration_ms),
            hard_ms: identity.hard.map_or(0, duration_ms),
        }),
        root_capabilities: setup.root_capabilities,
        memory_watch_bytes: setup.memory_watch_bytes.unwrap_or(0),
        tool_socket: setup.tool_socket.as_deref().map(bytes).unwrap_or_default(),
        service_socket: setup.service_socket.as_deref().map(bytes).unwrap_or_default(),
        programs: programs_of(identity.programs, has_tools),
        hostname: identity.hostname.to_owned(),
        workspace_layer: setup.workspace_layer.as_deref().map(bytes).unwrap_or_default(),
        single_user: setup.single_user,
        find_owners: identity.network,
    }
}

/// The program that calls tools is there wherever tools are.
fn programs_of(programs: Option<&Programs>, has_tools: bool) -> Vec<String> {
    let Some(programs) = programs else { return Vec::new() };
    let tool = has_tools.then(|| "belljar-tool".to_owned());
    programs.iter().map(str::to_owned).chain(tool).collect()
}

pub(crate) fn user_message(user: UserSpec) -> v1::User {
    v1::User {
        uid: user.uid(),
        gid: user.gid(),
        name: name_of(user),
        home: home_of(user).as_bytes().to_vec(),
        groups: Vec::new(),
    }
}

/// The variables that say who one is.
pub(crate) fn environment_of(user: UserSpec) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("HOME".to_owned(), home_of(user).to_owned()),
        ("USER".to_owned(), name_of(user)),
        ("LOGNAME".to_owned(), name_of(user)),
    ])
}

fn name_of(user: UserSpec) -> String {
    user.name().map_or_else(|| user.uid().to_string(), str::to_owned)
}

fn home_of(user: UserSpec) -> &'static str {
    match user.name() {
        Some("root") => "/root",
        Some("user") => "/home/user",
        _ => "/",
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_variables_win_over_the_backends_and_ours() {
        let environment = Environment::parse(["LANG=de_DE.UTF-8", "MINE=1"]).unwrap();
        let setup = AgentSetup {
            environment: BTreeMap::from([("PATH".to_owned(), "/opt/bin".to_owned())]),
            search_paths: [("MINE", "/mine"), ("OTHER", "/other")]
                .map(|(name, place)| (name.to_owned(), place.to_owned()))
                .to_vec(),
            ..AgentSetup::default()
        };
        let identity = Identity {
            user: UserSpec::Root,
            hostname: "box",
            workdir: None,
            environment: &environment,
            programs: None,
            idle: Some(Duration::from_secs(1800)),
            hard: None,
            network: true,
        };
        let configure = configuration(setup, &identity);
        let get = |name: &str| configure.environment.get(name).map(String::as_str);
        assert_eq!(get("PATH"), Some("/opt/bin"));
        assert_eq!(get("LANG"), Some("de_DE.UTF-8"));
        assert_eq!(get("HOME"), Some("/root"));
        assert_eq!(get("MINE"), Some("1:/mine"));
        assert_eq!(get("OTHER"), Some("/other"));
        assert_eq!(configure.lease, Some(v1::Lease { idle_ms: 1_800_000, hard_ms: 0 }));
        assert_eq!(configure.window as usize, WINDOW);
        assert!(configure.find_owners);
    }
}
