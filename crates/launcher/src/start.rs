//! Starting a sandbox: everything the launcher itself makes, in the order in which it is undone backwards.

use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::child::{self, Child, CloneOptions};
use belljar_sys::process::ProcessIdentity;
use belljar_sys::user_namespace::{self, Mapping, Setgroups};
use belljar_sys::{cgroup, mount};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::disk::Shape;
use crate::doors::Doors;
use crate::failure::{Result, Stage};
use crate::fault::point;
use crate::gateway;
use crate::helper::{Cell, Launched, doors_here};
use crate::ids::{self, AGENT};
use crate::place::{AGENT_SOCKET, Identity};
use crate::plan::{self, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUSER, Ground, NAMESPACES, Prepared};
use crate::runtime;
use crate::serve::Launcher;
use crate::wire::{Failure, Start};

/// Whom nothing on the host belongs to.
const NOBODY: u32 = 65534;

/// How many connections to an agent may wait to be accepted.
const BACKLOG: i32 = 64;

impl Launcher {
    /// Runs in a helper that sits in its cell's cgroups and network namespace; the sandbox's first process inherits
    /// both. On error the launcher stops the sandbox, which removes whatever had
    /// been made.
    pub(crate) fn start(
        &mut self,
        start: &Start,
        descriptors: &[OwnedFd],
        cell: Cell,
    ) -> Result<Launched> {
        let directory = self.place.open_sandbox(&start.id).stage("sandbox-directory")?;
        let listener = listen_in(&directory).and_then(child::keep_clear).stage("agent-socket")?;
        let range = cell.range;
        let identity = Identity {
            uid: start.uid,
            gid: start.gid,
            range: range.as_ref().map(|(range, _)| *range),
        };
        point("helper.range");

        let group = self.cgroups.group(&self.place.group, &start.id);
        group.adopt(&cell.name).stage("cgroup")?;
        let limits = first_limits(start);
        let limited = cell.limits == Some(limits) || !self.cgroups.limits_by_version_1();
        let was_ready = limited
            && cell.disk.as_ref().map(|(shape, _)| *shape) == Shape::of(start)
            && (range.is_none() || cell.doors.is_some() == start.doors);
        if cell.limits != Some(limits) {
            group.limit(&limits).stage("cgroup")?;
        }
        if let Some((range, _)) = &range {
            let agent = ids::outside(*range, AGENT);
            group.delegate(agent, agent).stage("cgroup-delegate")?;
        }
        point("helper.cgroup");
        let unified = group
            .open_unified()
            .and_then(|unified| unified.map(child::keep_clear).transpose())
            .stage("cgroup")?;

        let disk = match (&range, Shape::of(start)) {
            (Some((_, namespace)), Some(shape)) => Some(match cell.disk {
                Some((prepared, disk)) if prepared == shape => disk,
                _ => self.disks.make(&self.place.path, shape, namespace)?,
            }),
            _ => None,
        };
        point("helper.disk");
        let mount_maps =
            self.mount_maps(start, descriptors, range.as_ref().map(|(range, _)| *range))?;
        let root_mapped = range.as_ref().is_some_and(|(_, namespace)| {
            let mut trees = start.root.iter().chain(start.binds.iter().map(|bind| &bind.source));
            trees.all(|tree| {
                descriptors
                    .get(tree.descriptor)
                    .is_some_and(|source| self.maps_ids(source, namespace))
            })
        });

        let doors = match (start.doors, cell.doors, &range) {
            (true, Some(doors), _) => doors,
            (true, None, Some(_)) => doors_here()?,
            // Its network is made with its user namespace, and the doors after it.
            (true, None, None) | (false, None, _) => Doors::default(),
            (false, Some(doors), _) => {
                drop(doors);
                gateway::remove_link()?;
                Doors::default()
            }
        };
        point("helper.doors");

        let enclosed = match &start.runtime {
            Some(runtime) => {
                let range = range.as_ref().map(|(range, _)| *range);
                Some(self.enclose(start, runtime, descriptors, &directory, range)?)
            }
            None => None,
        };
        let ground = match (&enclosed, &self.bare) {
            // A runtime needs what it finds on the host.
            (Some(_), _) => Ground::Host(runtime::STAGE.into()),
            (None, Some(bare)) => Ground::Bare(bare),
            (None, None) => Ground::Host(self.place.staging()),
        };
        let mounts = match ground {
            Ground::Bare(_) => 0, // the child joins one
            Ground::Host(_) => CLONE_NEWNS as u64,
        };
        let built = plan::build(
            start,
            &Prepared {
                ground,
                descriptors,
                range: range.as_ref().map(|(range, namespace)| (*range, namespace)),
                mount_maps: &mount_maps,
                disk: disk.as_ref(),
                listener: &listener,
                cgroup: unified.as_ref(),
                agent: &self.agent,
                null: &self.null,
                root_mapped,
                masks: &self.masks,
                runtime: enclosed.as_ref(),
            },
        )?;
        let options = CloneOptions {
            namespaces: match range {
                // The helper's own network namespace is inherited.
                Some(_) => NAMESPACES | mounts,
                // A namespace is owned by the user namespace it is made in, so all are made together.
                None => NAMESPACES | mounts | CLONE_NEWNET | CLONE_NEWUSER as u64,
            },
            cgroup: unified.as_ref().map(std::os::fd::AsRawFd::as_raw_fd),
            sibling: true,
        };
        let mut child = built.plan.spawn(&options).stage("clone")?;
        point("helper.cloned");
        self.release(identity, &directory, &child)?;
        point("helper.released");
        // The sandbox's process has its place; this one must not keep the cgroups busy.
        self.cgroups.enter_parent_version_1(&self.place.group).stage("cgroup-enter")?;
        if let Some(failed) = child.report().stage("report")? {
            return Err(Failure::of_step(child.plan(), failed));
        }
        if let Some(enclosed) = enclosed {
            enclosed.wait_until_ready()?;
            // The runtime has started without being held up, and whatever comes now is the sandbox's.
            group.limit(&limits_of_cpu(start)).stage("cgroup")?;
        }
        Ok((doors, was_ready))
    }

    /// What only the parent can do for the child, then lets it go on. The child is on record before it does anything
    /// that outlives it.
    fn release(&self, identity: Identity, directory: &OwnedFd, child: &Child) -> Result<()> {
        if !self.facts.privileged {
            let users = Mapping {
                inside: identity.uid,
                outside: rustix::process::getuid().as_raw(),
                count: 1,
            };
            let groups = Mapping {
                inside: identity.gid,
                outside: rustix::process::getgid().as_raw(),
                count: 1,
            };
            user_namespace::write_maps(child.pid, &[users], &[groups], Setgroups::Denied)
                .stage("user-namespace-map")?;
            rustix::io::write(&child.go, b"m").stage("release")?;
        }
        let process = ProcessIdentity::of(child.pid).stage("process-identity")?;
        identity.record(directory, process).stage("process-record")?;
        point("helper.recorded");
        rustix::io::write(&child.go, b"g").stage("release")?;
        Ok(())
    }

    /// For each mount, a mapping by which its owner on the host is the workload inside.
    fn mount_maps(
        &self,
        start: &Start,
        descriptors: &[OwnedFd],
        range: Option<u32>,
    ) -> Result<Vec<Option<OwnedFd>>> {
        let Some(range) = range else { return Ok(start.mounts.iter().map(|_| None).collect()) };
        let mut maps = Vec::with_capacity(start.mounts.len());
        for mount in &start.mounts {
            let source = descriptors.get(mount.source.descriptor).ok_or_else(|| {
                Failure::new("descriptor", rustix::io::Errno::BADF.raw_os_error())
            })?;
            let owner = rustix::fs::fstat(source).stage("stat")?;
            let one = |host: u32, inside: u32| Mapping {
                inside: host,
                outside: ids::outside(range, inside),
                count: 1,
            };
            let map = |host: u32, inside: u32| {
                let mut map = vec![one(host, inside)];
                // Another kernel makes a file as its root and gives it to the workload then.
                if inside != 0 && start.runtime.as_ref().is_some_and(|it| it.kind.has_own_kernel())
                {
                    map.push(one(if host == NOBODY { NOBODY - 1 } else { NOBODY }, 0));
                }
                map
            };
            let users = map(owner.st_uid, start.uid);
            let groups = map(owner.st_gid, start.gid);
            let namespace = user_namespace::create(&users, &groups).stage("user-namespace")?;
            if !mount::supports_id_mapping(source.as_fd(), namespace.as_fd()) {
                return Err(Failure {
                    path: Some(mount.source.path.clone()),
                    ..Failure::new("mount-id-mapping", rustix::io::Errno::NOTSUP.raw_os_error())
                });
            }
            maps.push(Some(namespace));
        }
        Ok(maps)
    }
}

/// What a sandbox's cgroups are to limit from the beginning. Processor time is the sandbox's, not what a runtime needs to
/// start, which takes several threads at once and would have to wait for the next period again and again.
pub(crate) fn first_limits(start: &Start) -> cgroup::Limits {
    cgroup::Limits {
        memory_bytes: start.memory_bytes,
        cpu_millis: start.cpu_millis.filter(|_| start.runtime.is_none()),
        pids: start.pids,
    }
}

fn limits_of_cpu(start: &Start) -> cgroup::Limits {
    cgroup::Limits { memory_bytes: None, cpu_millis: start.cpu_millis, pids: None }
}

/// Makes the agent's socket. It is bound here, on the host, so that no name for it exists inside.
fn listen_in(directory: &OwnedFd) -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Socket addresses are short and state directories may not be, so the address is relative. This process has one
    // thread, and nothing else in it depends on the working directory.
    rustix::process::fchdir(directory)?;
    let bound = bind(&socket, &SocketAddrUnix::new(AGENT_SOCKET)?);
    rustix::process::chdir("/")?;
    bound?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
