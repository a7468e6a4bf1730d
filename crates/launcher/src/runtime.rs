//! Starting an OCI runtime in the place of the agent.
//!
//! Everything up to the assembled root is as without one; then the launcher's child, in its own mount, PID, IPC and
//! host-name namespaces and in the sandbox's cgroups and network, becomes the runtime instead, which encloses the agent
//! once more by what it has. So limits, the disk, pausing, the gateway and the end of it all are the launcher's: when the
//! first process is killed, the kernel kills the runtime and everything in it, and nothing of it is in any file.
//!
//! The runtime sees the host's files, but read-only what steers its kernel (`/sys`, with the cgroups): it is to limit
//! nothing, and what it made there would outlive it. Its own state is in the sandbox's memory.

use std::ffi::CString;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use belljar_sys::child::{self, Step, Strings};
use belljar_sys::process::ProcessIdentity;
use belljar_sys::uapi::{MOUNT_ATTR_NOEXEC, MOUNT_ATTR_RDONLY};
use belljar_sys::{memory_file, mount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::bundle::{Described, describe};
use crate::failure::{Result, Stage};
use crate::ids::AGENT;
use crate::plan::{Builder, CGROUP, LISTEN, MOUNT, PLAIN, invalid, text};
use crate::serve::Launcher;
use crate::wire::{Failure, Runtime, RuntimeKind, Start};

/// Where a sandbox is staged that a runtime encloses: a directory that every host has and everybody may pass through, as
/// the runtime looks for the root as a user of the sandbox. Only this sandbox's namespace sees what is there.
pub(crate) const STAGE: &str = "/run";
/// The disk there, relative to the root.
pub(crate) const STAGED_DISK: &str = "run/disk";

/// Descriptors of the keeper, and of the agent in a runtime.
const READY: RawFd = 5;
const PROGRAM: RawFd = 6;
const HANDED: RawFd = 40;

/// How long a runtime may take until its agent runs, before it is given up. A probe of a runtime that hangs waits that long.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// What a runtime may say about why it failed.
const LAST_WORDS: usize = 4096;

/// What was prepared for a runtime.
pub(crate) struct Enclosed {
    pub(crate) kind: RuntimeKind,
    program: OwnedFd,
    /// The bundle, as a mount.
    bundle: OwnedFd,
    words: OwnedFd,
    ready: OwnedFd,
    /// The runtime's end; closed here once it has its copy.
    ready_writer: Option<OwnedFd>,
}

impl Launcher {
    pub(crate) fn enclose(
        &self,
        start: &Start,
        runtime: &Runtime,
        descriptors: &[OwnedFd],
        directory: &OwnedFd,
        range: Option<u32>,
    ) -> Result<Enclosed> {
        let range =
            range.ok_or_else(|| Failure::new("runtime-privilege", Errno::PERM.raw_os_error()))?;
        let program =
            descriptors.get(runtime.program.descriptor).ok_or_else(|| invalid("descriptor"))?;
        let program = program.try_clone().and_then(child::keep_clear).stage("runtime-program")?;
        check_program(&program)?;
        let root = Path::new(STAGE).join("root");
        let described = Described {
            kind: runtime.kind,
            root: &root,
            range,
            masks: self.masks.paths(),
            arguments: agent_arguments(runtime.kind, self.cgroups.unified.is_some()),
        };
        let spec = describe(start, described).map_err(|_| invalid("runtime-bundle"))?;
        let spec = serde_json::to_vec(&spec).map_err(|_| invalid("runtime-bundle"))?;
        let bundle = write_bundle(directory, &spec, runtime.kind).stage("runtime-bundle")?;
        let bundle = mount::clone_from(bundle.as_fd()).and_then(child::keep_clear);
        let (ready, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).stage("runtime-pipe")?;
        Ok(Enclosed {
            kind: runtime.kind,
            program,
            bundle: bundle.stage("runtime-bundle")?,
            words: memory_file::bounded(c"belljar-runtime", LAST_WORDS as u64)
                .and_then(child::keep_clear)
                .stage("runtime-words")?,
            ready,
            ready_writer: Some(child::keep_clear(writer).stage("runtime-pipe")?),
        })
    }
}

impl Enclosed {
    /// Waits until the agent says that it runs; the end of the pipe without a word is the end of the runtime.
    pub(crate) fn wait_until_ready(mut self) -> Result<()> {
        self.ready_writer = None;
        let failed = |words: &OwnedFd, errno: Errno| Failure {
            path: Some(last_words(words)),
            ..Failure::new("runtime", errno.raw_os_error())
        };
        match poll(&mut [PollFd::new(&self.ready, PollFlags::IN)], Some(&PATIENCE)) {
            Ok(0) => return Err(failed(&self.words, Errno::TIMEDOUT)),
            Ok(_) => {}
            Err(errno) => return Err(failed(&self.words, errno)),
        }
        match rustix::io::read(&self.ready, &mut [0u8; 1]) {
            Ok(1..) => Ok(()),
            _ => Err(failed(&self.words, Errno::CHILD)),
        }
    }
}

impl Builder<'_> {
    /// The last steps: what the runtime sees of the host, and the runtime itself.
    pub(crate) fn become_runtime(&mut self, start: &Start, enclosed: &Enclosed) -> Result<()> {
        self.make_directory("bundle", 0o755)?;
        self.push(Step::Adopt { descriptor: enclosed.bundle.as_raw_fd(), to: MOUNT });
        self.push(Step::AttachAt { slot: MOUNT, path: c"bundle".to_owned() });
        self.make_directory("state", 0o700)?;
        self.push(Step::FilesystemIds { uid: 0, gid: 0 });
        self.filesystem(c"proc", &[], PLAIN | MOUNT_ATTR_NOEXEC)?;
        self.push(Step::AttachAt { slot: MOUNT, path: c"/proc".to_owned() });
        self.push(Step::AttributesBelow { path: c"/sys".to_owned(), set: MOUNT_ATTR_RDONLY });
        if let Some(mask) = start.affinity {
            self.push(Step::Affinity { mask });
        }
        self.push(Step::NewSession);
        let prepared = self.prepared;
        for (descriptor, number) in [(prepared.null, 0), (&enclosed.words, 1), (&enclosed.words, 2)]
        {
            self.push(Step::Place { descriptor: descriptor.as_raw_fd(), number });
        }
        self.push(Step::Await); // until the launcher has written down which process this is
        self.push(Step::Place { descriptor: prepared.listener.as_raw_fd(), number: LISTEN });
        let cgroup = prepared.cgroup.unwrap_or(prepared.null);
        self.push(Step::Place { descriptor: cgroup.as_raw_fd(), number: CGROUP });
        let writer = enclosed.ready_writer.as_ref().expect("held until the child has been made");
        self.push(Step::Place { descriptor: writer.as_raw_fd(), number: READY });
        let (program, arguments) = if enclosed.kind.has_own_kernel() {
            self.push(Step::Place { descriptor: enclosed.program.as_raw_fd(), number: PROGRAM });
            (prepared.agent, keeper_arguments(enclosed.kind, start))
        } else {
            (&enclosed.program, arguments(enclosed.kind, start))
        };
        self.push(Step::Exec {
            descriptor: program.as_raw_fd(),
            arguments: strings(arguments)?,
            environment: strings(vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()])?,
        });
        Ok(())
    }
}

/// What the agent inside is told.
fn agent_arguments(kind: RuntimeKind, cgroup: bool) -> Vec<String> {
    if kind.has_own_kernel() {
        // Numbers inside: the first two after the standard ones.
        return vec!["connections=3".to_owned(), "ready=4".to_owned(), format!("become={AGENT}")];
    }
    let mut arguments = vec![format!("listen={LISTEN}"), format!("ready={READY}")];
    if cgroup {
        arguments.push(format!("cgroup={CGROUP}"));
    }
    arguments
}

fn arguments(kind: RuntimeKind, start: &Start) -> Vec<String> {
    let (state, bundle) = (format!("{STAGE}/state"), format!("{STAGE}/bundle"));
    let words: Vec<String> = match kind {
        // "rootless" is its word for taking cgroups as they come.
        RuntimeKind::Runc => vec!["runc".into(), "--rootless=true".into(), "--root".into(), state],
        RuntimeKind::Crun => {
            vec!["crun".into(), "--cgroup-manager=disabled".into(), "--root".into(), state]
        }
        RuntimeKind::Runsc(platform) => vec![
            "runsc".into(),
            format!("--root={state}"),
            format!("--platform={}", platform.as_str()),
            format!("--network={}", if start.doors { "host" } else { "none" }),
            "--ignore-cgroups".into(),
            "--overlay2=none".into(),
            "--host-uds=none".into(),
            "--net-raw=false".into(),
        ],
    };
    let mut all = words;
    all.push("run".to_owned());
    match kind {
        RuntimeKind::Runc | RuntimeKind::Crun => {
            all.extend(["--preserve-fds".to_owned(), (READY - LISTEN + 1).to_string()]);
        }
        RuntimeKind::Runsc(_) => {
            all.extend([format!("--pass-fd={HANDED}:3"), format!("--pass-fd={READY}:4")]);
        }
    }
    all.extend(["--bundle".to_owned(), bundle, start.id.clone()]);
    all
}

/// A runtime with its own kernel cannot take a socket that listens: a keeper outside hands connections in.
fn keeper_arguments(kind: RuntimeKind, start: &Start) -> Vec<String> {
    let mut all = vec![
        "belljar-agent".to_owned(),
        "keep".to_owned(),
        format!("listen={LISTEN}"),
        format!("ready={READY}"),
        format!("program={PROGRAM}"),
        format!("handed={HANDED}"),
        "--".to_owned(),
    ];
    all.extend(arguments(kind, start));
    all
}

/// The program gets the launcher's own privilege. Whoever asks must not be able to choose what that runs.
fn check_program(program: &OwnedFd) -> Result<()> {
    let stat = rustix::fs::fstat(program).stage("runtime-program")?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    if kind.is_file() && stat.st_uid == 0 && stat.st_mode & 0o022 == 0 {
        return Ok(());
    }
    Err(Failure::new("runtime-program", Errno::PERM.raw_os_error()))
}

/// Writes `bundle/config.json` into a sandbox's directory, which goes with the sandbox.
fn write_bundle(directory: &OwnedFd, spec: &[u8], kind: RuntimeKind) -> std::io::Result<OwnedFd> {
    rustix::fs::mkdirat(directory, BUNDLE, Mode::from_raw_mode(0o700))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let bundle = rustix::fs::openat(directory, BUNDLE, flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&bundle, "config.json", flags, Mode::from_raw_mode(0o600))?;
    std::io::Write::write_all(&mut std::fs::File::from(file), spec)?;
    if kind.has_own_kernel() {
        rustix::fs::openat(directory, OWN_KERNEL, flags, Mode::from_raw_mode(0o600))?;
    }
    Ok(bundle)
}

const BUNDLE: &str = "bundle";
const OWN_KERNEL: &str = "own-kernel";

/// Whether a runtime encloses this sandbox.
pub(crate) fn encloses(sandbox: &OwnedFd) -> bool {
    has(sandbox, BUNDLE)
}

/// Whether that runtime has a kernel of its own.
pub(crate) fn has_own_kernel(sandbox: &OwnedFd) -> bool {
    has(sandbox, OWN_KERNEL)
}

fn has(sandbox: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(sandbox, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// The agent below a runtime's process: its child, in a mount namespace of its own.
pub(crate) fn agent_of(runtime: i32) -> Option<ProcessIdentity> {
    let mounts = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let outside = mounts(runtime)?;
    let agent = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| parent(pid) == Some(runtime))
        .find(|&child| mounts(child).is_some_and(|inside| inside != outside))?;
    ProcessIdentity::of(agent).ok()
}

fn parent(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn last_words(words: &OwnedFd) -> Vec<u8> {
    let Ok(copy) = words.try_clone() else { return Vec::new() };
    let mut file = std::fs::File::from(copy);
    let mut bytes = Vec::new();
    if file.rewind().is_ok() {
        let _ = file.take(LAST_WORDS as u64).read_to_end(&mut bytes);
    }
    bytes.retain(|&byte| byte != 0);
    bytes
}

fn strings(words: Vec<String>) -> Result<Strings> {
    let words: Vec<CString> =
        words.iter().map(|word| text(word.as_bytes())).collect::<Result<_>>()?;
    Ok(Strings::new(words))
}
