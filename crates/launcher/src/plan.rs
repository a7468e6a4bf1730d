//! The steps that turn a fresh process into the agent of a sandbox.
//!
//! Reads top to bottom as the child does it: assemble a root beside the host's, change into it, give up everything,
//! become the agent. Guarantees: nothing of the host is visible unless the request names it; every mount is nosuid
//! and nodev except the few device files; what is not writable by design is read-only.

use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use belljar_sys::child::{FsOption, Plan, Slot, Source, Step, Strings};
use belljar_sys::uapi::{
    MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY,
};
use rustix::io::Errno;

use crate::bare;
use crate::disk::DIRECTORIES;
use crate::failure::{Result, Stage};
use crate::ids::{self, AGENT};
use crate::runtime::Enclosed;
use crate::wire::{Failure, MountKind, Start, Tree};

/// The directory that becomes the root.
pub(crate) const ROOT: Slot = Slot(0);
/// The sandbox's `/proc`.
const PROC: Slot = Slot(1);
/// The mount that is being made.
pub(crate) const MOUNT: Slot = Slot(2);

pub(crate) const PLAIN: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
pub(crate) const READ_ONLY: u64 = PLAIN | MOUNT_ATTR_RDONLY;

/// Where the agent finds its descriptors.
pub(crate) const LISTEN: RawFd = 3;
pub(crate) const CGROUP: RawFd = 4;

/// Device files that programs expect; each is the host's own, which no sandbox can do harm with.
pub(crate) const DEVICES: &[&CStr] = &[c"null", c"zero", c"full", c"random", c"urandom", c"tty"];

/// Entries of `/proc` that say too much about the host, or act on it. Kernels differ in what they have of it.
const MASKED_FILES: &[&CStr] = &[
    c"kcore",    // the host's memory
    c"kmsg",     // the kernel log
    c"kallsyms", // kernel addresses
    c"keys",     // other users' keys
    c"key-users",
    c"latency_stats",
    c"timer_list", // addresses, other processes
    c"timer_stats",
    c"sched_debug",
    c"interrupts",    // keystroke timing
    c"sysrq-trigger", // reboots the host
    c"config.gz",     // which exploits fit
    c"modules",
    c"vmallocinfo",
    c"slabinfo",
    c"pagetypeinfo",
];
const MASKED_DIRECTORIES: &[&CStr] = &[c"acpi", c"asound", c"scsi", c"dynamic_debug", c"driver"];
const READ_ONLY_PATHS: &[&CStr] = &[c"bus", c"fs", c"irq", c"sys"];

/// Capabilities (by number) that the agent keeps inside the sandbox's user namespace: to start processes as other
/// users, to signal them, and to pass on to a workload that was asked to be root. None has power over the host.
pub(crate) const AGENT_CAPABILITIES: u64 = 1 << 0 // CHOWN
    | 1 << 1 // DAC_OVERRIDE
    | 1 << 3 // FOWNER
    | 1 << 4 // FSETID
    | 1 << 5 // KILL
    | 1 << 6 // SETGID
    | 1 << 7 // SETUID
    | 1 << 8 // SETPCAP
    | 1 << 10 // NET_BIND_SERVICE
    | 1 << 18 // SYS_CHROOT
    | 1 << 31; // SETFCAP

/// Where mounts are put together: the root, something empty, the disk.
pub(crate) const PLACES: [&str; 3] = ["root", "empty", "disk"];

/// Where a child begins.
pub(crate) enum Ground<'a> {
    /// In this namespace, which has the places.
    Bare(&'a OwnedFd),
    /// In a copy of the host's namespace, with a file system for the places at this path.
    Host(PathBuf),
}

/// What the launcher prepared for the child: descriptors that stay open until the child has its copy.
pub(crate) struct Prepared<'a> {
    pub(crate) ground: Ground<'a>,
    pub(crate) descriptors: &'a [OwnedFd],
    /// Present with privilege: the sandbox's own range and namespace.
    pub(crate) range: Option<(u32, &'a OwnedFd)>,
    /// Id mappings of mounts, by index; absent where the file system has none.
    pub(crate) mount_maps: &'a [Option<OwnedFd>],
    pub(crate) disk: Option<&'a OwnedFd>,
    pub(crate) listener: &'a OwnedFd,
    pub(crate) cgroup: Option<&'a OwnedFd>,
    pub(crate) agent: &'a OwnedFd,
    pub(crate) null: &'a OwnedFd,
    pub(crate) root_mapped: bool,
    pub(crate) masks: &'a Masks,
    pub(crate) runtime: Option<&'a Enclosed>,
}

/// A plan and what must stay open until it has been spawned.
pub(crate) struct Built {
    pub(crate) plan: Plan,
    _trees: Vec<OwnedFd>,
}

pub(crate) fn build(start: &Start, prepared: &Prepared<'_>) -> Result<Built> {
    let mut builder = Builder { steps: Vec::with_capacity(160), trees: Vec::new(), prepared };
    builder.stage(start)?;
    builder.disk(start)?;
    builder.root(start)?;
    match prepared.runtime {
        None => {
            builder.devices(start)?;
            builder.service(start)?;
            builder.proc()?;
            builder.writable_directories(start)?;
            builder.mounts(start)?;
            builder.enter(start)?;
            builder.become_agent(start)?;
        }
        Some(runtime) => {
            // A kernel of its own has devices of its own.
            if !runtime.kind.has_own_kernel() {
                builder.devices(start)?;
                builder.service(start)?;
            }
            builder.writable_directories(start)?;
            builder.mounts(start)?;
            builder.become_runtime(start, runtime)?;
        }
    }
    Ok(Built { plan: Plan { steps: builder.steps }, _trees: builder.trees })
}

pub(crate) struct Builder<'a> {
    pub(crate) steps: Vec<Step>,
    trees: Vec<OwnedFd>,
    pub(crate) prepared: &'a Prepared<'a>,
}

impl Builder<'_> {
    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn stage(&mut self, start: &Start) -> Result<()> {
        let staging = match &self.prepared.ground {
            Ground::Bare(namespace) => {
                let descriptor = namespace.as_raw_fd();
                self.push(Step::JoinNamespace { descriptor, kind: CLONE_NEWNS });
                self.push(Step::Unshare { flags: CLONE_NEWNS });
                self.act_as(0, 0);
                if self.is_plain(start)? {
                    return Ok(()); // and the working directory is the namespace's root
                }
                text(bare::STAGE.as_bytes())?
            }
            Ground::Host(staging) => {
                if self.prepared.range.is_none() {
                    self.push(Step::Await); // until ids are mapped there is nothing that may be done
                }
                self.act_as(0, 0);
                self.push(Step::MakePrivate);
                text(staging.as_os_str().as_encoded_bytes())?
            }
        };
        self.filesystem(c"tmpfs", &[("size", "1m"), ("mode", "0755")], PLAIN)?;
        self.push(Step::AttachAt { slot: MOUNT, path: staging.clone() });
        self.push(Step::Enter { path: staging });
        for name in PLACES {
            self.make_directory(name, 0o755)?;
        }
        Ok(())
    }

    /// Whether no more places are needed than there are.
    fn is_plain(&self, start: &Start) -> Result<bool> {
        let layered = start.mounts.iter().any(|mount| mount.kind == MountKind::Layer);
        Ok(!layered && self.has_plain_root(start)?)
    }

    /// Whether the first layer is the root as it is.
    fn has_plain_root(&self, start: &Start) -> Result<bool> {
        let fits = start.root.len() == 1 && !start.writable_root;
        Ok(fits && self.missing_targets(start)?.is_empty())
    }

    fn disk(&mut self, start: &Start) -> Result<()> {
        if let Some(disk) = self.prepared.disk {
            self.push(Step::Adopt { descriptor: disk.as_raw_fd(), to: MOUNT });
            self.push(Step::AttachAt { slot: MOUNT, path: c"disk".to_owned() });
            return Ok(());
        }
        let size = start.disk.bytes.to_string();
        let inodes = start.disk.inodes.to_string();
        let options = [("size", size.as_str()), ("nr_inodes", &inodes), ("mode", "0755")];
        self.filesystem(c"tmpfs", &options, PLAIN)?;
        self.push(Step::AttachAt { slot: MOUNT, path: c"disk".to_owned() });
        for (name, owner, mode) in DIRECTORIES {
            let (uid, gid) = owner.map_or((start.uid, start.gid), |id| (id, id));
            self.act_as(uid, gid);
            self.make_directory(&format!("disk/{name}"), *mode)?;
        }
        self.act_as(0, 0);
        Ok(())
    }

    /// The root itself: the first layer as it is, or an overlay where there are several, where it is writable, or
    /// where a mount needs a place that no layer has.
    fn root(&mut self, start: &Start) -> Result<()> {
        if self.has_plain_root(start)? {
            self.tree(&start.root[0])?;
            self.attributes(READ_ONLY, true);
            self.push(Step::AttachAt { slot: MOUNT, path: c"root".to_owned() });
        } else {
            let mut lowers = Vec::new();
            let targets = self.missing_targets(start)?;
            self.make_directory("targets", 0o755)?;
            for path in &targets {
                self.make_directory(&format!("targets/{path}"), 0o755)?;
            }
            if !targets.is_empty() {
                lowers.push("targets".to_owned());
            }
            for (index, layer) in start.root.iter().enumerate() {
                let name = format!("layer{index}");
                self.make_directory(&name, 0o755)?;
                self.tree(layer)?;
                self.attributes(READ_ONLY, true);
                self.push(Step::AttachAt { slot: MOUNT, path: text(name.as_bytes())? });
                lowers.push(name);
            }
            if lowers.len() == 1 && !start.writable_root {
                lowers.push("empty".to_owned()); // an overlay that cannot be written needs two layers
            }
            let attributes = if start.writable_root { PLAIN } else { READ_ONLY };
            let layer = start.writable_root.then_some("disk/layers/root");
            self.overlay(&lowers.join(":"), layer, attributes)?;
            self.push(Step::AttachAt { slot: MOUNT, path: c"root".to_owned() });
        }
        self.push(Step::OpenDirectory { path: c"root".to_owned(), to: ROOT });
        for bind in &start.binds {
            self.tree(&bind.source)?;
            self.attributes(READ_ONLY, true);
            if bind.layered && start.writable_root {
                self.make_directory("usr", 0o755)?;
                self.push(Step::AttachAt { slot: MOUNT, path: c"usr".to_owned() });
                self.overlay("usr", Some("disk/layers/usr"), PLAIN)?;
            }
            self.attach(&bind.target)?;
        }
        Ok(())
    }

    /// Mount points that must be made, with their parents: those outside the directories that every root has.
    fn missing_targets(&self, start: &Start) -> Result<Vec<String>> {
        let mut missing: Vec<String> = Vec::new();
        for mount in &start.mounts {
            let target = target(&mount.target)?;
            if on_disk(&target).is_some() {
                continue;
            }
            let mut path = PathBuf::new();
            for component in target.components() {
                path.push(component);
                let path = path.to_str().ok_or_else(|| invalid("mount-target"))?.to_owned();
                if !missing.contains(&path) {
                    missing.push(path);
                }
            }
        }
        Ok(missing)
    }

    fn devices(&mut self, start: &Start) -> Result<()> {
        for device in DEVICES {
            let name = device.to_str().expect("a device name is plain text");
            let path = text(format!("/dev/{name}").as_bytes())?;
            self.push(Step::OpenTree { from: Source::Path(path), recursive: false, to: MOUNT });
            self.attributes(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false);
            self.attach(format!("dev/{name}").as_bytes())?;
        }
        let group = self.prepared.range.map(|(range, _)| ids::outside(range, 5).to_string());
        let mut options = vec![("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
        if let Some(group) = &group {
            options.push(("gid", group));
        }
        self.filesystem(c"devpts", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)?;
        self.attach(b"dev/pts")?;
        let size = start.shared_memory_bytes.to_string();
        self.filesystem(c"tmpfs", &[("size", &size), ("mode", "1777")], PLAIN | MOUNT_ATTR_NOEXEC)?;
        self.attach(b"dev/shm")
    }

    /// The place at which the agent serves sockets to the inside.
    fn service(&mut self, start: &Start) -> Result<()> {
        if start.service {
            let options = [("size", "64k"), ("nr_inodes", "16"), ("mode", "0755")];
            self.filesystem(c"tmpfs", &options, PLAIN | MOUNT_ATTR_NOEXEC)?;
            self.attach(b"run/belljar/service")?;
        }
        Ok(())
    }

    fn proc(&mut self) -> Result<()> {
        self.push(Step::NewFilesystem {
            kind: c"proc".to_owned(),
            options: Vec::new(),
            attributes: PLAIN | MOUNT_ATTR_NOEXEC,
            to: PROC,
        });
        self.push(Step::AttachBeneath { slot: PROC, root: ROOT, path: c"proc".to_owned() });
        let prepared = self.prepared;
        for name in &prepared.masks.read_only {
            self.push(Step::CloneFrom { directory: PROC, name: (*name).to_owned(), to: MOUNT });
            self.attributes(READ_ONLY | MOUNT_ATTR_NOEXEC, false);
            self.attach_in_proc(name);
        }
        for name in &prepared.masks.files {
            let from = Source::Path(c"/dev/null".to_owned());
            self.push(Step::OpenTree { from, recursive: false, to: MOUNT });
            self.attach_in_proc(name);
        }
        for name in &prepared.masks.directories {
            self.clone_stage(c"empty");
            self.attributes(READ_ONLY | MOUNT_ATTR_NOEXEC, false);
            self.attach_in_proc(name);
        }
        Ok(())
    }

    fn writable_directories(&mut self, start: &Start) -> Result<()> {
        let covered = start.mounts.iter().any(|mount| mount.target == b"workspace");
        for (source, target) in [
            ("workspace", "workspace"),
            ("output", "output"),
            ("home", "home/user"),
            ("tmp", "tmp"),
        ] {
            if source == "workspace" && covered {
                continue;
            }
            let source = text(format!("disk/{source}").as_bytes())?;
            self.clone_stage(&source);
            self.attributes(PLAIN, false);
            self.attach(target.as_bytes())?;
        }
        Ok(())
    }

    fn mounts(&mut self, start: &Start) -> Result<()> {
        for (index, mount) in start.mounts.iter().enumerate() {
            let target = target(&mount.target)?;
            if let Some(path) = on_disk(&target)
                && let Some(parent) = path.to_str()
                && path.components().count() > 2
            {
                self.directories_on_disk(parent, start)?;
            }
            self.tree(&mount.source)?;
            let map = self.prepared.mount_maps.get(index).and_then(Option::as_ref);
            let set = if mount.kind == MountKind::ReadWrite { PLAIN } else { READ_ONLY };
            self.push(Step::Attributes {
                slot: MOUNT,
                recursive: map.is_none(),
                set,
                idmap: map.map(AsRawFd::as_raw_fd),
            });
            if mount.kind == MountKind::Layer {
                self.make_directory("workspace", 0o755)?;
                self.push(Step::AttachAt { slot: MOUNT, path: c"workspace".to_owned() });
                self.clone_stage(c"workspace");
                self.attach(b"run/belljar/private/lower")?;
                self.overlay("workspace", Some("disk/layers/workspace-0"), PLAIN)?;
            }
            self.attach(&mount.target)?;
        }
        if start.mounts.iter().any(|mount| mount.kind == MountKind::Layer) {
            self.clone_stage(c"disk/layers");
            self.attributes(PLAIN | MOUNT_ATTR_NOEXEC, false);
            self.attach(b"run/belljar/private/layers")?;
        }
        self.masks(start)
    }

    /// What is hidden below mounts. A place that is not there any more, or is of another kind, ends the start.
    fn masks(&mut self, start: &Start) -> Result<()> {
        for mask in &start.masks {
            target(&mask.target)?;
            self.tree(&mask.source)?;
            self.attributes(READ_ONLY | MOUNT_ATTR_NOEXEC, true);
            self.attach(&mask.target)?;
        }
        Ok(())
    }

    /// Makes a target below one of the writable directories, owned by the workload.
    fn directories_on_disk(&mut self, path: &str, start: &Start) -> Result<()> {
        let mut sofar = String::from("disk");
        for (depth, part) in path.split('/').skip(1).enumerate() {
            sofar = format!("{sofar}/{part}");
            if depth == 0 {
                continue;
            }
            let made = self.steps.iter().any(
                |step| matches!(step, Step::MakeDirectory { path, .. } if path.to_bytes() == sofar.as_bytes()),
            );
            if made {
                continue;
            }
            self.act_as(start.uid, start.gid);
            self.make_directory(&sofar, 0o755)?;
            self.act_as(0, 0);
        }
        Ok(())
    }

    fn enter(&mut self, start: &Start) -> Result<()> {
        self.push(match self.prepared.ground {
            Ground::Bare(_) => Step::CoverRoot { slot: ROOT },
            Ground::Host(_) => Step::PivotRoot { slot: ROOT },
        });
        self.push(Step::Unshare { flags: CLONE_NEWCGROUP });
        self.push(Step::Hostname { name: text(start.hostname.as_bytes())? });
        if self.prepared.range.is_none() {
            self.push(Step::LoopbackUp); // otherwise the namespace came with it
        }
        Ok(())
    }

    fn become_agent(&mut self, start: &Start) -> Result<()> {
        if let Some(mask) = start.affinity {
            self.push(Step::Affinity { mask });
        }
        if let Some((_, namespace)) = self.prepared.range {
            self.push(Step::JoinNamespace {
                descriptor: namespace.as_raw_fd(),
                kind: CLONE_NEWUSER,
            });
            self.push(Step::Become { uid: AGENT, gid: AGENT });
        }
        self.push(Step::Capabilities { keep: AGENT_CAPABILITIES });
        self.push(Step::NoNewPrivileges);
        self.push(Step::NewSession);
        for number in 0..3 {
            self.push(Step::Place { descriptor: self.prepared.null.as_raw_fd(), number });
        }
        self.push(Step::Await); // until the launcher has written down which process this is
        let mut arguments =
            vec![c"belljar-agent".to_owned(), text(format!("listen={LISTEN}").as_bytes())?];
        self.push(Step::Place { descriptor: self.prepared.listener.as_raw_fd(), number: LISTEN });
        if let Some(cgroup) = self.prepared.cgroup {
            self.push(Step::Place { descriptor: cgroup.as_raw_fd(), number: CGROUP });
            arguments.push(text(format!("cgroup={CGROUP}").as_bytes())?);
        }
        self.push(Step::Exec {
            descriptor: self.prepared.agent.as_raw_fd(),
            arguments: Strings::new(arguments),
            environment: Strings::new(Vec::new()),
        });
        Ok(())
    }

    // --- pieces ---

    /// Makes files as this user of the sandbox from here on. Without a range there is only one user to be.
    pub(crate) fn act_as(&mut self, uid: u32, gid: u32) {
        if let Some((range, _)) = self.prepared.range {
            self.push(Step::FilesystemIds {
                uid: ids::outside(range, uid),
                gid: ids::outside(range, gid),
            });
        }
    }

    /// Puts a clone of a host directory into `MOUNT`.
    fn tree(&mut self, tree: &Tree) -> Result<()> {
        let descriptor =
            self.prepared.descriptors.get(tree.descriptor).ok_or_else(|| invalid("descriptor"))?;
        if self.prepared.range.is_some() {
            let clone = belljar_sys::mount::clone_from(descriptor.as_fd()).stage("clone-mount")?;
            self.push(Step::Adopt { descriptor: clone.as_raw_fd(), to: MOUNT });
            self.trees.push(clone);
        } else {
            // Without privilege only the child, in its own namespaces, may clone; it goes by the path and checks
            // that it still leads to the same file. Below may be mounts that are locked to their parent.
            let (device, inode) = belljar_sys::mount::file_identity(descriptor).stage("stat")?;
            let path = text(&tree.path)?;
            let from = Source::Checked { path, device, inode };
            self.push(Step::OpenTree { from, recursive: true, to: MOUNT });
        }
        Ok(())
    }

    fn attributes(&mut self, set: u64, template: bool) {
        let idmap = self.prepared.range.map(|(_, namespace)| namespace.as_raw_fd());
        self.push(Step::Attributes {
            slot: MOUNT,
            recursive: self.prepared.range.is_none(),
            set,
            idmap: idmap.filter(|_| template && self.prepared.root_mapped),
        });
    }

    fn attach(&mut self, path: &[u8]) -> Result<()> {
        let path = text(path)?;
        self.push(Step::AttachBeneath { slot: MOUNT, root: ROOT, path });
        Ok(())
    }

    /// Puts a clone of something in the stage, where the child is and nobody else has ever been, into `MOUNT`.
    fn clone_stage(&mut self, path: &CStr) {
        let from = Source::Path(path.to_owned());
        self.push(Step::OpenTree { from, recursive: false, to: MOUNT });
    }

    fn attach_in_proc(&mut self, name: &CStr) {
        self.push(Step::AttachIn { slot: MOUNT, directory: PROC, name: name.to_owned() });
    }

    pub(crate) fn make_directory(&mut self, path: &str, mode: u32) -> Result<()> {
        let path = text(path.as_bytes())?;
        self.push(Step::MakeDirectory { path, mode });
        Ok(())
    }

    fn overlay(&mut self, lower: &str, layer: Option<&str>, attributes: u64) -> Result<()> {
        let paths = layer.map(|layer| (format!("{layer}/upper"), format!("{layer}/work")));
        let mut options = vec![("lowerdir", lower)];
        if let Some((upper, work)) = &paths {
            options.push(("upperdir", upper));
            options.push(("workdir", work));
        }
        // Attributes of the overlay in `user.*`, so that the agent can read them without power over the host.
        options.push(("userxattr", ""));
        self.filesystem(c"overlay", &options, attributes)
    }

    /// Options with an empty value are flags.
    pub(crate) fn filesystem(
        &mut self,
        kind: &CStr,
        options: &[(&str, &str)],
        attributes: u64,
    ) -> Result<()> {
        let options = options
            .iter()
            .map(|(key, value)| {
                let key = text(key.as_bytes())?;
                Ok(if value.is_empty() {
                    FsOption::Flag(key)
                } else {
                    FsOption::Text(key, text(value.as_bytes())?)
                })
            })
            .collect::<Result<_>>()?;
        self.push(Step::NewFilesystem { kind: kind.to_owned(), options, attributes, to: MOUNT });
        Ok(())
    }
}

/// What this kernel's `/proc` has of the entries that are masked or read-only.
pub(crate) struct Masks {
    read_only: Vec<&'static CStr>,
    files: Vec<&'static CStr>,
    directories: Vec<&'static CStr>,
}

impl Masks {
    /// Paths that are to be hidden, and those that are to be read-only.
    pub(crate) fn paths(&self) -> (Vec<String>, Vec<String>) {
        let paths = |names: &[&CStr]| -> Vec<String> {
            names.iter().filter_map(|name| Some(format!("/proc/{}", name.to_str().ok()?))).collect()
        };
        let mut hidden = paths(&self.files);
        hidden.extend(paths(&self.directories));
        (hidden, paths(&self.read_only))
    }

    /// Looks at the host's `/proc`, which has the same entries as any other on the same kernel. A mount that finds no
    /// place to go costs more than all others together.
    pub(crate) fn of_this_kernel() -> Self {
        let only = |names: &[&'static CStr], which: fn(&Path) -> bool| {
            let there = |name: &&CStr| {
                name.to_str().is_ok_and(|name| which(&Path::new("/proc").join(name)))
            };
            names.iter().copied().filter(there).collect()
        };
        Self {
            read_only: only(READ_ONLY_PATHS, Path::exists),
            files: only(MASKED_FILES, reachable),
            directories: only(MASKED_DIRECTORIES, Path::exists),
        }
    }
}

/// Whether somebody who is not root could open it. No id inside stands for root, so the rest needs no mask.
fn reachable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o007 != 0)
}

/// Namespace flags, as the kernel numbers them.
pub(crate) const CLONE_NEWUSER: i32 = 0x1000_0000;
pub(crate) const CLONE_NEWCGROUP: i32 = 0x0200_0000;
pub(crate) const CLONE_NEWNS: i32 = 0x0002_0000;
pub(crate) const CLONE_NEWNET: u64 = 0x4000_0000;
/// UTS, IPC and PID namespaces.
pub(crate) const NAMESPACES: u64 = 0x0400_0000 | 0x0800_0000 | 0x2000_0000;

pub(crate) fn text(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| invalid("nul-in-text"))
}

pub(crate) fn invalid(stage: &str) -> Failure {
    Failure::new(stage, Errno::INVAL.raw_os_error())
}

/// A mount target: relative, plain components only.
fn target(bytes: &[u8]) -> Result<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let plain = path.components().all(|component| matches!(component, Component::Normal(_)));
    if plain && path.components().next().is_some() {
        Ok(path)
    } else {
        Err(invalid("mount-target"))
    }
}

/// The place on the disk that backs a target below one of the writable directories.
fn on_disk(target: &Path) -> Option<PathBuf> {
    for (prefix, directory) in
        [("workspace", "workspace"), ("output", "output"), ("home/user", "home"), ("tmp", "tmp")]
    {
        if let Ok(rest) = target.strip_prefix(prefix) {
            return Some(Path::new("disk").join(directory).join(rest));
        }
    }
    None
}
