//! What the host configured, checked once and kept in the form in which it is used.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use belljar_protocol::v1::{Configure, LandlockRule, TreeKill, User, landlock_rule};
use belljar_sys::landlock::{self, Access, Ruleset};
use belljar_sys::workload::{Confinement, Credentials, Filter, Limit};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{Problem, Result, invalid};

#[derive(Debug)]
pub(crate) struct Setup {
    /// Shared with a program that is still being started.
    pub(crate) confinement: Rc<Confinement>,
    pub(crate) user: User,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) working_directory: Vec<u8>,
    /// Bytes kept or let through unacknowledged, per channel.
    pub(crate) window: usize,
    pub(crate) tree_kill: TreeKill,
    pub(crate) programs: Vec<String>,
    pub(crate) workspace_layer: Option<OwnedFd>,
    layered: Option<Layered>,
    /// The end of everything that is to be read as empty, and of everything that is to be lost.
    pub(crate) null: OwnedFd,
    root_capabilities: u64,
    pub(crate) single_user: bool,
    /// Who no program may be: a host would be taken for it.
    host: Option<u32>,
    /// The filters that are to stand before the agent itself, until they do.
    shared_filters: Vec<Filter>,
}

/// What must be looked up again when the host gives the workspace a new layer: rules and descriptors go by file, and
/// the files at these paths are then others.
#[derive(Debug)]
struct Layered {
    layer: Vec<u8>,
    rules: Vec<LandlockRule>,
    /// What was at each rule's path when the rules were made. Held open, so that no successor gets its numbers.
    seen: Vec<Option<OwnedFd>>,
}

/// What the host is told about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walls {
    /// 0: this kernel has no Landlock.
    pub(crate) landlock_version: u32,
    /// Rules whose path does not exist, which therefore allow nothing.
    pub(crate) landlock_missing: Vec<Vec<u8>>,
}

/// The window where the host gave none, and the most it can have.
const DEFAULT_WINDOW: u32 = 256 * 1024;
const LARGEST_WINDOW: u32 = 16 * 1024 * 1024;

/// Memory for what is configured is bounded by the size of a frame; the number of filters by what the kernel takes.
const MOST_FILTERS: usize = 16;

impl Setup {
    pub(crate) fn new(
        configure: Configure,
        own_files: Limit,
        host: Option<u32>,
    ) -> Result<(Self, Walls)> {
        let mut walls = Walls::default();
        let landlock = match configure.landlock.as_slice() {
            [] => None,
            rules => ruleset(rules, &mut walls)?,
        };
        let own_filters = filters(&configure.seccomp)?;
        let shared_filters = filters(&configure.shared_seccomp)?;
        let mut limits = vec![own_files];
        for limit in &configure.resource_limits {
            let limit = Limit { resource: limit.resource, soft: limit.soft, hard: limit.hard };
            let limit = limit
                .within_own()
                .map_err(|error| Problem::system("invalid-argument", "resource-limit", &error))?;
            limits.retain(|known| known.resource != limit.resource);
            limits.push(limit);
        }
        let (workspace_layer, layered) = match configure.workspace_layer.as_slice() {
            [] => (None, None),
            path => {
                let layer = open_layer(path)?;
                let seen = files(&configure.landlock);
                (
                    Some(layer),
                    Some(Layered { layer: path.to_vec(), rules: configure.landlock.clone(), seen }),
                )
            }
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = rustix::fs::open("/dev/null", flags, Mode::empty())
            .map_err(|errno| Problem::file("open", b"/dev/null", errno))?;
        let window = match configure.window {
            0 => DEFAULT_WINDOW,
            window => window.min(LARGEST_WINDOW),
        };
        let tree_kill = configure.tree_kill();
        let setup = Self {
            confinement: Rc::new(Confinement {
                limits,
                landlock,
                filters: own_filters,
                bounding: configure.root_capabilities,
            }),
            user: configure.user.unwrap_or_default(),
            environment: configure.environment,
            working_directory: configure.working_directory,
            window: window as usize,
            tree_kill,
            programs: configure.programs,
            workspace_layer,
            layered,
            null,
            root_capabilities: configure.root_capabilities,
            single_user: configure.single_user,
            host,
            shared_filters,
        };
        setup.credentials(&setup.user)?;
        Ok((setup, walls))
    }

    /// Puts the agent behind the filters that it shares with everything it starts: what the kernel has checked and
    /// translated once is inherited.
    pub(crate) fn close_in(&mut self) -> Result<()> {
        for filter in std::mem::take(&mut self.shared_filters) {
            filter
                .install()
                .map_err(|error| Problem::system("seccomp-failed", "seccomp", &error))?;
        }
        Ok(())
    }

    /// Makes rules and descriptors anew if the workspace's layer was replaced since.
    pub(crate) fn follow_layer(&mut self) -> Result<()> {
        let Some(layered) = &mut self.layered else { return Ok(()) };
        let now = files(&layered.rules);
        if now.iter().zip(&layered.seen).all(|(now, then)| same(now.as_ref(), then.as_ref())) {
            return Ok(());
        }
        self.confinement = Rc::new(Confinement {
            limits: self.confinement.limits.clone(),
            landlock: ruleset(&layered.rules, &mut Walls::default())?,
            filters: self.confinement.filters.clone(),
            bounding: self.confinement.bounding,
        });
        self.workspace_layer = Some(open_layer(&layered.layer)?);
        layered.seen = now;
        Ok(())
    }

    /// Who a program runs as, `None` where nobody can be anyone else; and the capabilities it keeps.
    pub(crate) fn credentials(&self, user: &User) -> Result<(Option<Credentials>, u64)> {
        if self.host == Some(user.uid) {
            return Err(Problem::new("user-invalid", "this user is kept for hosts"));
        }
        let capabilities = if user.uid == 0 { self.root_capabilities } else { 0 };
        if self.single_user {
            if user.uid != self.user.uid {
                return Err(Problem::new("user-invalid", "this sandbox has only one user"));
            }
            return Ok((None, capabilities));
        }
        // The kernel takes this number as "leave as it is", which would be the agent's own.
        if [user.uid, user.gid]
            .into_iter()
            .chain(user.groups.iter().copied())
            .any(|id| id == u32::MAX)
        {
            return Err(Problem::new("user-invalid", "the user number is out of range"));
        }
        let credentials = Credentials { uid: user.uid, gid: user.gid, groups: user.groups.clone() };
        Ok((Some(credentials), capabilities))
    }

    /// Whether a program may be started by this name.
    pub(crate) fn allows_program(&self, name: &[u8]) -> bool {
        self.programs.is_empty()
            || name.contains(&b'/')
            || self.programs.iter().any(|program| program.as_bytes() == name)
    }
}

fn filters(programs: &[Vec<u8>]) -> Result<Vec<Filter>> {
    if programs.len() > MOST_FILTERS {
        return Err(invalid("too many seccomp filters"));
    }
    programs
        .iter()
        .map(|bytes| Filter::from_bytes(bytes).ok_or_else(|| invalid("not a seccomp filter")))
        .collect()
}

fn ruleset(rules: &[LandlockRule], walls: &mut Walls) -> Result<Option<OwnedFd>> {
    let failed = |error| Problem::system("landlock-failed", "landlock", &error);
    walls.landlock_version = landlock::version();
    let Some(ruleset) = Ruleset::new().map_err(failed)? else { return Ok(None) };
    for rule in rules {
        let access = match rule.access() {
            landlock_rule::Access::ReadExecute => Access::ReadExecute,
            landlock_rule::Access::ReadWrite => Access::ReadWrite,
            landlock_rule::Access::Devices => Access::Devices,
        };
        match open_path(&rule.path) {
            Ok(path) => ruleset.allow(&path, access).map_err(failed)?,
            Err(Errno::NOENT) => walls.landlock_missing.push(rule.path.clone()),
            Err(errno) => return Err(Problem::file("landlock", &rule.path, errno)),
        }
    }
    Ok(Some(ruleset.into_descriptor()))
}

fn open_layer(path: &[u8]) -> Result<OwnedFd> {
    open_path(path).map_err(|errno| Problem::file("workspace-layer", path, errno))
}

fn files(rules: &[LandlockRule]) -> Vec<Option<OwnedFd>> {
    rules.iter().map(|rule| open_path(&rule.path).ok()).collect()
}

fn same(one: Option<&OwnedFd>, other: Option<&OwnedFd>) -> bool {
    let identity = |file: Option<&OwnedFd>| {
        file.and_then(|file| rustix::fs::fstat(file).ok()).map(|stat| (stat.st_dev, stat.st_ino))
    };
    identity(one) == identity(other)
}

fn open_path(path: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// What no program that is started from here can ever have, whoever it runs as.
pub(crate) fn narrow_bounding_set(kept: u64) {
    for capability in (0..64).map(|number| 1 << number).filter(|bit| kept & bit == 0) {
        let capability = rustix::thread::CapabilitySet::from_bits_retain(capability);
        // Most are gone already, and looking is cheaper than taking away.
        if rustix::thread::capability_is_in_bounding_set(capability) == Ok(false) {
            continue;
        }
        // Without the privilege to do this there is none to be gained by `exec` either: no-new-privileges is set and
        // the permitted set is emptied. Past the last capability the kernel says that there is none.
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(configure: Configure) -> Result<(Setup, Walls)> {
        let files = Limit::current(7).unwrap();
        Setup::new(configure, files, None)
    }

    fn user(uid: u32) -> User {
        User { uid, gid: uid, ..User::default() }
    }

    #[test]
    fn refuses_what_cannot_be_meant() {
        for configure in [
            Configure { seccomp: vec![vec![0; 7]], ..Configure::default() },
            Configure { seccomp: vec![vec![0; 8]; 17], ..Configure::default() },
            Configure { shared_seccomp: vec![vec![0; 7]], ..Configure::default() },
            Configure { user: Some(user(u32::MAX)), ..Configure::default() },
            Configure { workspace_layer: b"/nonexistent".to_vec(), ..Configure::default() },
            Configure {
                resource_limits: vec![belljar_protocol::v1::ResourceLimit {
                    resource: 99,
                    soft: 1,
                    hard: 1,
                }],
                ..Configure::default()
            },
        ] {
            assert!(setup(configure).is_err());
        }
    }

    #[test]
    fn only_root_keeps_capabilities() {
        let configure = Configure { root_capabilities: 5, ..Configure::default() };
        let (setup, _) = setup(configure).unwrap();
        assert_eq!(setup.credentials(&user(0)).unwrap().1, 5);
        assert_eq!(setup.credentials(&user(7)).unwrap().1, 0);
    }

    #[test]
    fn a_single_user_stays_itself() {
        let configure =
            Configure { single_user: true, user: Some(user(7)), ..Configure::default() };
        let (setup, _) = setup(configure).unwrap();
        assert_eq!(setup.credentials(&user(7)).unwrap().0, None);
        assert!(setup.credentials(&user(8)).is_err());
    }

    #[test]
    fn nobody_is_taken_for_a_host() {
        let configure = Configure { user: Some(user(7)), ..Configure::default() };
        let files = Limit::current(7).unwrap();
        let (setup, _) = Setup::new(configure.clone(), files, Some(0)).unwrap();
        assert!(setup.credentials(&user(7)).is_ok());
        assert!(setup.credentials(&user(0)).is_err());
        assert!(Setup::new(configure, files, Some(7)).is_err());
    }

    #[test]
    fn a_program_list_speaks_of_names_only() {
        let configure = Configure { programs: vec!["cat".into()], ..Configure::default() };
        let (setup, _) = setup(configure).unwrap();
        for (name, allowed) in [("cat", true), ("dog", false), ("/bin/dog", true), ("", false)] {
            assert_eq!(setup.allows_program(name.as_bytes()), allowed, "{name}");
        }
    }

    #[test]
    fn a_rule_for_a_missing_path_is_reported() {
        let rule = LandlockRule { path: b"/nonexistent".to_vec(), access: 0 };
        let (_, walls) = setup(Configure { landlock: vec![rule], ..Configure::default() }).unwrap();
        if walls.landlock_version > 0 {
            assert_eq!(walls.landlock_missing, [b"/nonexistent"]);
        }
    }
}
