//! A child process built from a list of steps.
//!
//! Everything between `clone` and `exec` is planned before the clone: a [`Plan`] holds every path, option and
//! descriptor, and `run` executes it with system calls alone. It allocates nothing, takes no lock and touches no
//! state of the parent, in whose memory it runs as a [guest](crate::guest). The steps are the only vocabulary; what they
//! are combined to is the caller's business.
//!
//! A step that fails ends the child after it has written `{step, errno}` to the report pipe; a successful `exec`
//! closes the pipe. The parent keeps the plan, so it can say which step that was and what it was about.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::guest::{self, Guest, call};
use crate::uapi;

/// Where a mount object made by one step is kept for later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u8);

/// How many slots a plan may use.
pub const SLOTS: usize = 16;

/// What a mount is made from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A path in the child's mount namespace.
    Path(CString),
    /// A path that must still be the file with this device and inode number: the descriptor it was checked by
    /// belongs to another mount namespace and cannot be cloned from here.
    Checked { path: CString, device: u64, inode: u64 },
}

/// An option of a new file system.
#[derive(Clone, Debug)]
pub enum FsOption {
    Flag(CString),
    Text(CString, CString),
}

/// One system call, or a few that belong together.
#[derive(Clone, Debug)]
pub enum Step {
    /// Waits for one byte from the parent; end of file means the parent is gone and so is the child.
    Await,
    /// Makes every mount private, so that nothing done here is seen outside.
    MakePrivate,
    /// Clones a mount into a slot, detached.
    OpenTree {
        from: Source,
        recursive: bool,
        to: Slot,
    },
    /// Puts a descriptor of a detached mount, made by the parent, into a slot.
    Adopt {
        descriptor: RawFd,
        to: Slot,
    },
    /// Sets attributes of the mount in a slot; with a user namespace, also its id mapping.
    Attributes {
        slot: Slot,
        recursive: bool,
        set: u64,
        idmap: Option<RawFd>,
    },
    /// Sets attributes of the mount at a path of the host and of every mount below it.
    AttributesBelow {
        path: CString,
        set: u64,
    },
    /// Makes a file system and mounts it, detached, into a slot.
    NewFilesystem {
        kind: CString,
        options: Vec<FsOption>,
        attributes: u64,
        to: Slot,
    },
    /// Attaches the mount in a slot at a path of the host.
    AttachAt {
        slot: Slot,
        path: CString,
    },
    /// Attaches the mount in a slot at a path beneath a directory; no link is followed on the way.
    AttachBeneath {
        slot: Slot,
        root: Slot,
        path: CString,
    },
    /// Attaches the mount in a slot at an entry of a directory. The name has one component, and is followed nowhere.
    AttachIn {
        slot: Slot,
        directory: Slot,
        name: CString,
    },
    /// Clones an entry of a directory into a slot. The name has one component, and is followed nowhere.
    CloneFrom {
        directory: Slot,
        name: CString,
        to: Slot,
    },
    /// Opens a directory, relative to the working directory, into a slot.
    OpenDirectory {
        path: CString,
        to: Slot,
    },
    MakeDirectory {
        path: CString,
        mode: u32,
    },
    /// Makes an empty file.
    MakeFile {
        path: CString,
    },
    Rename {
        from: CString,
        to: CString,
    },
    /// Acts on files as this user and group from here on, keeping every capability that is permitted.
    FilesystemIds {
        uid: u32,
        gid: u32,
    },
    /// Changes the working directory.
    Enter {
        path: CString,
    },
    /// Makes the directory in a slot the root and lets go of the old one.
    PivotRoot {
        slot: Slot,
    },
    /// Makes the mounted directory in a slot the root by moving it on top of the old one, which stays below it where no path
    /// leads to.
    CoverRoot {
        slot: Slot,
    },
    /// Detaches whatever is mounted at a path.
    Detach {
        path: CString,
    },
    Hostname {
        name: CString,
    },
    Unshare {
        flags: i32,
    },
    JoinNamespace {
        descriptor: RawFd,
        kind: i32,
    },
    /// Brings the loopback interface up.
    LoopbackUp,
    Affinity {
        mask: u64,
    },
    /// Becomes this user and group, with no supplementary groups.
    Become {
        uid: u32,
        gid: u32,
    },
    /// Keeps exactly these capabilities, across `exec` too.
    Capabilities {
        keep: u64,
    },
    NoNewPrivileges,
    NewSession,
    /// Copies a descriptor to a number that survives `exec`.
    Place {
        descriptor: RawFd,
        number: RawFd,
    },
    /// Runs the program behind a descriptor.
    Exec {
        descriptor: RawFd,
        arguments: Strings,
        environment: Strings,
    },
}

/// Strings laid out as `exec` wants them.
#[derive(Debug)]
pub struct Strings {
    owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

/// A planned child.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
}

/// Namespaces and placement of a new child.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneOptions {
    /// `CLONE_NEW*` flags.
    pub namespaces: u64,
    /// A cgroup v2 directory to start in.
    pub cgroup: Option<RawFd>,
    /// The child becomes a child of the caller's own parent.
    pub sibling: bool,
}

/// A child on its way through its plan. Until it has got to its end it uses the plan, which therefore goes with it.
///
/// Dropping a child that has not become its program yet kills it.
#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    pub pidfd: OwnedFd,
    /// Write one byte to let [`Step::Await`] go on.
    pub go: OwnedFd,
    /// Reads `{step, errno}` on failure and end of file on success.
    report: OwnedFd,
    guest: Guest<Given>,
    /// Whether others of this user could look into this process before the child changed who it is; that changes it for
    /// all who share the memory.
    dumpable: rustix::process::DumpableBehavior,
    left: bool,
}

/// What the child works with.
#[derive(Debug)]
struct Given {
    plan: Plan,
    go: RawFd,
    go_write: RawFd,
    report: RawFd,
}

/// Which step failed and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub step: usize,
    pub errno: i32,
}

/// Descriptors that the child uses itself start here, out of the way of [`Step::Place`].
const PRIVATE_DESCRIPTORS: RawFd = 100;

impl Plan {
    /// Clones the calling process, without its memory, and runs the plan there.
    pub fn spawn(self, options: &CloneOptions) -> io::Result<Child> {
        let (report_read, report_write) = pipe()?;
        let (go_read, go_write) = pipe()?;
        let report_write = lift(report_write)?;
        let go_read = lift(go_read)?;
        let mut pidfd: RawFd = -1;
        let mut arguments = uapi::CloneArgs {
            flags: options.namespaces | libc::CLONE_PIDFD as u64 | uapi::CLONE_CLEAR_SIGHAND,
            pidfd: ptr::from_mut(&mut pidfd) as u64,
            exit_signal: libc::SIGCHLD as u64,
            ..uapi::CloneArgs::default()
        };
        if options.sibling {
            arguments.flags |= libc::CLONE_PARENT as u64;
            arguments.exit_signal = 0; // the caller's own is taken
        }
        if let Some(cgroup) = options.cgroup {
            arguments.flags |= uapi::CLONE_INTO_CGROUP;
            arguments.cgroup = cgroup as u64;
        }
        let given = Given {
            plan: self,
            go: go_read.as_raw_fd(),
            go_write: go_write.as_raw_fd(),
            report: report_write.as_raw_fd(),
        };
        let dumpable = rustix::process::dumpable_behavior()?;
        let (pid, guest) = guest::spawn(arguments, given, run)?;
        Ok(Child {
            pid,
            // SAFETY: the kernel has just stored a new descriptor there, owned by nobody else.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
            go: go_write,
            report: report_read,
            guest,
            dumpable,
            left: false,
        })
    }
}

impl Child {
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.guest.given().plan
    }

    /// Waits until the child runs its program (`None`) or has failed to.
    pub fn report(&mut self) -> io::Result<Option<Failed>> {
        let mut bytes = [0u8; 8];
        let report = match rustix::io::read(&self.report, &mut bytes)? {
            0 => None,
            8 => Some(Failed {
                step: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize,
                errno: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            }),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        // Either has happened, or is about to: after its report the child ends.
        self.see_off();
        Ok(report)
    }

    fn see_off(&mut self) {
        self.guest.wait();
        self.left = true;
        guest::see_off(self.dumpable);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.left && crate::process::kill(&self.pidfd).is_ok() {
            self.see_off();
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

fn lift(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, PRIVATE_DESCRIPTORS)?)
}

/// Moves a descriptor that plans will execute or place out of the way of the numbers they place to.
pub fn keep_clear(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    lift(descriptor)
}

/// The child. Never returns.
///
/// Preconditions: called right after `clone3` in the new process, as a guest in the parent's memory. No allocation, no
/// lock, no panic from here on: only system calls, plain arithmetic and indexing that is bounded by `SLOTS`.
fn run(given: &Given) -> ! {
    let Given { plan, go, go_write, report } = given;
    let mut slots = [-1 as RawFd; SLOTS];
    // Our copy of the writing end would keep `Await` from ever seeing the parent's death.
    close(*go_write);
    // What is made has the mode that was asked for, whatever mask the parent happened to have.
    let _ = call(libc::SYS_umask, [0; 5]);
    for (index, step) in plan.steps.iter().enumerate() {
        if let Err(errno) = execute(step, &mut slots, *go) {
            let mut bytes = [0u8; 8];
            bytes[..4].copy_from_slice(&(index as u32).to_le_bytes());
            bytes[4..].copy_from_slice(&errno.to_le_bytes());
            let _ = call(libc::SYS_write, [*report as usize, bytes.as_ptr() as usize, 8, 0, 0]);
            break;
        }
    }
    loop {
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0, 0]);
    }
}

fn execute(step: &Step, slots: &mut [RawFd; SLOTS], go: RawFd) -> Result<(), i32> {
    match step {
        Step::Await => {
            let mut byte = [0u8; 1];
            match call(libc::SYS_read, [go as usize, byte.as_mut_ptr() as usize, 1, 0, 0])? {
                1 => Ok(()),
                _ => Err(libc::ECANCELED),
            }
        }
        Step::MakePrivate => done(call(
            libc::SYS_mount,
            [0, c"/".as_ptr() as usize, 0, (libc::MS_REC | libc::MS_PRIVATE) as usize, 0],
        )),
        Step::OpenTree { from, recursive, to } => {
            let tree = match from {
                Source::Path(path) => clone_tree(libc::AT_FDCWD, path, *recursive, 0)?,
                Source::Checked { path, device, inode } => {
                    let file = openat2(libc::AT_FDCWD, path, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
                    check_identity(file, *device, *inode)?;
                    let tree = clone_tree(file, c"", *recursive, libc::AT_EMPTY_PATH)?;
                    close(file);
                    tree
                }
            };
            put(slots, *to, tree);
            Ok(())
        }
        Step::Adopt { descriptor, to } => {
            let copy = call(
                libc::SYS_fcntl,
                [
                    *descriptor as usize,
                    libc::F_DUPFD_CLOEXEC as usize,
                    PRIVATE_DESCRIPTORS as usize,
                    0,
                    0,
                ],
            )?;
            put(slots, *to, copy as RawFd);
            Ok(())
        }
        Step::Attributes { slot, recursive, set, idmap } => {
            let mut attributes =
                uapi::MountAttributes { set: *set, ..uapi::MountAttributes::default() };
            if let Some(namespace) = idmap {
                attributes.set |= uapi::MOUNT_ATTR_IDMAP;
                attributes.namespace = *namespace as u64;
            }
            let flags = libc::AT_EMPTY_PATH | if *recursive { uapi::AT_RECURSIVE } else { 0 };
            done(call(
                libc::SYS_mount_setattr,
                [
                    get(slots, *slot) as usize,
                    c"".as_ptr() as usize,
                    flags as usize,
                    ptr::from_ref(&attributes) as usize,
                    size_of::<uapi::MountAttributes>(),
                ],
            ))
        }
        Step::AttributesBelow { path, set } => {
            let attributes =
                uapi::MountAttributes { set: *set, ..uapi::MountAttributes::default() };
            done(call(
                libc::SYS_mount_setattr,
                [
                    libc::AT_FDCWD as usize,
                    path.as_ptr() as usize,
                    uapi::AT_RECURSIVE as usize,
                    ptr::from_ref(&attributes) as usize,
                    size_of::<uapi::MountAttributes>(),
                ],
            ))
        }
        Step::NewFilesystem { kind, options, attributes, to } => {
            let context =
                call(libc::SYS_fsopen, [kind.as_ptr() as usize, uapi::FSOPEN_CLOEXEC, 0, 0, 0])?;
            for option in options {
                let (command, key, value) = match option {
                    FsOption::Flag(key) => (uapi::FSCONFIG_SET_FLAG, key.as_ptr(), ptr::null()),
                    FsOption::Text(key, value) => {
                        (uapi::FSCONFIG_SET_STRING, key.as_ptr(), value.as_ptr())
                    }
                };
                call(libc::SYS_fsconfig, [context, command, key as usize, value as usize, 0])?;
            }
            call(libc::SYS_fsconfig, [context, uapi::FSCONFIG_CMD_CREATE, 0, 0, 0])?;
            let mount = call(
                libc::SYS_fsmount,
                [context, uapi::FSMOUNT_CLOEXEC, *attributes as usize, 0, 0],
            )?;
            close(context as RawFd);
            put(slots, *to, mount as RawFd);
            Ok(())
        }
        Step::AttachAt { slot, path } => attach(get(slots, *slot), libc::AT_FDCWD, path, 0),
        Step::AttachBeneath { slot, root, path } => {
            let target = openat2(get(slots, *root), path, libc::O_PATH, uapi::BENEATH)?;
            let flags = uapi::MOVE_MOUNT_T_EMPTY_PATH as usize;
            let attached = attach(get(slots, *slot), target, c"", flags);
            close(target);
            attached
        }
        Step::AttachIn { slot, directory, name } => {
            attach(get(slots, *slot), get(slots, *directory), name, 0)
        }
        Step::CloneFrom { directory, name, to } => {
            let tree = clone_tree(get(slots, *directory), name, false, libc::AT_SYMLINK_NOFOLLOW)?;
            put(slots, *to, tree);
            Ok(())
        }
        Step::OpenDirectory { path, to } => {
            let directory =
                openat2(libc::AT_FDCWD, path, libc::O_PATH | libc::O_DIRECTORY, uapi::BENEATH)?;
            put(slots, *to, directory);
            Ok(())
        }
        Step::MakeDirectory { path, mode } => done(call(
            libc::SYS_mkdirat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, *mode as usize, 0, 0],
        )),
        Step::MakeFile { path } => done(call(
            libc::SYS_mknodat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (libc::S_IFREG | 0o600) as usize,
                0,
                0,
            ],
        )),
        Step::Rename { from, to } => done(call(
            libc::SYS_renameat2,
            [
                libc::AT_FDCWD as usize,
                from.as_ptr() as usize,
                libc::AT_FDCWD as usize,
                to.as_ptr() as usize,
                0,
            ],
        )),
        Step::FilesystemIds { uid, gid } => {
            // Neither call reports failure; both return the id that was in force before.
            call(libc::SYS_setfsgid, [*gid as usize, 0, 0, 0, 0])?;
            call(libc::SYS_setfsuid, [*uid as usize, 0, 0, 0, 0])?;
            raise_permitted()
        }
        Step::Enter { path } => done(call(libc::SYS_chdir, [path.as_ptr() as usize, 0, 0, 0, 0])),
        Step::PivotRoot { slot } => {
            call(libc::SYS_fchdir, [get(slots, *slot) as usize, 0, 0, 0, 0])?;
            // The same directory for both: the old root ends up on top of the new one, where it can be let go of.
            let here = c".".as_ptr() as usize;
            call(libc::SYS_pivot_root, [here, here, 0, 0, 0])?;
            call(libc::SYS_umount2, [here, libc::MNT_DETACH as usize, 0, 0, 0])?;
            done(call(libc::SYS_chdir, [c"/".as_ptr() as usize, 0, 0, 0, 0]))
        }
        Step::CoverRoot { slot } => {
            let mount = get(slots, *slot);
            call(libc::SYS_fchdir, [mount as usize, 0, 0, 0, 0])?;
            attach(mount, libc::AT_FDCWD, c"/", 0)?;
            done(call(libc::SYS_chroot, [c".".as_ptr() as usize, 0, 0, 0, 0]))
        }
        Step::Detach { path } => done(call(
            libc::SYS_umount2,
            [path.as_ptr() as usize, libc::MNT_DETACH as usize, 0, 0, 0],
        )),
        Step::Hostname { name } => done(call(
            libc::SYS_sethostname,
            [name.as_ptr() as usize, name.as_bytes().len(), 0, 0, 0],
        )),
        Step::Unshare { flags } => done(call(libc::SYS_unshare, [*flags as usize, 0, 0, 0, 0])),
        Step::JoinNamespace { descriptor, kind } => {
            done(call(libc::SYS_setns, [*descriptor as usize, *kind as usize, 0, 0, 0]))
        }
        Step::LoopbackUp => loopback_up(),
        Step::Affinity { mask } => done(call(
            libc::SYS_sched_setaffinity,
            [0, size_of::<u64>(), ptr::from_ref(mask) as usize, 0, 0],
        )),
        Step::Become { uid, gid } => {
            call(libc::SYS_setgroups, [0, 0, 0, 0, 0])?;
            let (uid, gid) = (*uid as usize, *gid as usize);
            call(libc::SYS_setresgid, [gid, gid, gid, 0, 0])?;
            done(call(libc::SYS_setresuid, [uid, uid, uid, 0, 0]))
        }
        Step::Capabilities { keep } => keep_capabilities(*keep),
        Step::NoNewPrivileges => {
            done(call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]))
        }
        Step::NewSession => done(call(libc::SYS_setsid, [0; 5])),
        Step::Place { descriptor, number } => {
            done(call(libc::SYS_dup3, [*descriptor as usize, *number as usize, 0, 0, 0]))
        }
        Step::Exec { descriptor, arguments, environment } => done(call(
            libc::SYS_execveat,
            [
                *descriptor as usize,
                c"".as_ptr() as usize,
                arguments.pointers.as_ptr() as usize,
                environment.pointers.as_ptr() as usize,
                libc::AT_EMPTY_PATH as usize,
            ],
        )),
    }
}

/// Brings the loopback interface of the calling process's network namespace up.
pub(crate) fn loopback_up() -> Result<(), i32> {
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize;
    let socket = call(libc::SYS_socket, [libc::AF_INET as usize, kind, 0, 0, 0])?;
    let request = uapi::InterfaceFlags::loopback_up();
    let result = call(
        libc::SYS_ioctl,
        [socket, libc::SIOCSIFFLAGS as usize, ptr::from_ref(&request) as usize, 0, 0],
    );
    close(socket as RawFd);
    done(result)
}

/// Changing from user 0 to another clears the file capabilities from the effective set; this puts them back.
fn raise_permitted() -> Result<(), i32> {
    let header = uapi::CapabilityHeader::default();
    let mut data = [uapi::CapabilityData::default(); 2];
    let header_pointer = ptr::from_ref(&header) as usize;
    call(libc::SYS_capget, [header_pointer, data.as_mut_ptr() as usize, 0, 0, 0])?;
    for half in &mut data {
        half.effective = half.permitted;
    }
    done(call(libc::SYS_capset, [header_pointer, data.as_ptr() as usize, 0, 0, 0]))
}

fn keep_capabilities(keep: u64) -> Result<(), i32> {
    // The bounding set can only be changed while CAP_SETPCAP is still there, so it goes first.
    for capability in 0..64u64 {
        if keep & (1 << capability) == 0 {
            let drop = libc::PR_CAPBSET_DROP as usize;
            match call(libc::SYS_prctl, [drop, capability as usize, 0, 0, 0]) {
                Ok(_) => {}
                Err(libc::EINVAL) => break, // past the last capability of this kernel
                Err(errno) => return Err(errno),
            }
        }
    }
    let header = uapi::CapabilityHeader::default();
    let data = uapi::CapabilityData::split(keep);
    call(libc::SYS_capset, [ptr::from_ref(&header) as usize, data.as_ptr() as usize, 0, 0, 0])?;
    let ambient = libc::PR_CAP_AMBIENT as usize;
    call(libc::SYS_prctl, [ambient, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize, 0, 0, 0])?;
    for capability in 0..64u64 {
        if keep & (1 << capability) != 0 {
            let raise = libc::PR_CAP_AMBIENT_RAISE as usize;
            call(libc::SYS_prctl, [ambient, raise, capability as usize, 0, 0])?;
        }
    }
    Ok(())
}

fn clone_tree(directory: RawFd, path: &CStr, recursive: bool, flags: i32) -> Result<RawFd, i32> {
    let flags = flags as usize
        | uapi::OPEN_TREE_CLONE
        | uapi::OPEN_TREE_CLOEXEC
        | if recursive { uapi::AT_RECURSIVE as usize } else { 0 };
    call(libc::SYS_open_tree, [directory as usize, path.as_ptr() as usize, flags, 0, 0])
        .map(|descriptor| descriptor as RawFd)
}

fn attach(mount: RawFd, directory: RawFd, path: &CStr, flags: usize) -> Result<(), i32> {
    let result = call(
        libc::SYS_move_mount,
        [
            mount as usize,
            c"".as_ptr() as usize,
            directory as usize,
            path.as_ptr() as usize,
            flags | uapi::MOVE_MOUNT_F_EMPTY_PATH as usize,
        ],
    );
    done(result)
}

fn openat2(directory: RawFd, path: &CStr, flags: i32, resolve: u64) -> Result<RawFd, i32> {
    let how = uapi::OpenHow { flags: (flags | libc::O_CLOEXEC) as u64, mode: 0, resolve };
    call(
        libc::SYS_openat2,
        [
            directory as usize,
            path.as_ptr() as usize,
            ptr::from_ref(&how) as usize,
            size_of::<uapi::OpenHow>(),
            0,
        ],
    )
    .map(|descriptor| descriptor as RawFd)
}

fn check_identity(file: RawFd, device: u64, inode: u64) -> Result<(), i32> {
    // SAFETY: an all-zero `stat` is a valid value of that plain structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    call(
        libc::SYS_newfstatat,
        [
            file as usize,
            c"".as_ptr() as usize,
            ptr::from_mut(&mut stat) as usize,
            libc::AT_EMPTY_PATH as usize,
            0,
        ],
    )?;
    if stat.st_dev == device && stat.st_ino == inode { Ok(()) } else { Err(libc::ESTALE) }
}

fn close(descriptor: RawFd) {
    let _ = call(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0]);
}

fn put(slots: &mut [RawFd; SLOTS], slot: Slot, descriptor: RawFd) {
    let place = &mut slots[slot.0 as usize % SLOTS];
    if *place >= 0 {
        close(*place);
    }
    *place = descriptor;
}

fn get(slots: &[RawFd; SLOTS], slot: Slot) -> RawFd {
    slots[slot.0 as usize % SLOTS]
}

fn done(result: Result<usize, i32>) -> Result<(), i32> {
    result.map(|_| ())
}

// === impl Strings ===

impl Strings {
    #[must_use]
    pub fn new(owned: Vec<CString>) -> Self {
        let mut pointers: Vec<_> = owned.iter().map(|text| text.as_ptr()).collect();
        pointers.push(ptr::null());
        Self { owned, pointers }
    }
}

impl Clone for Strings {
    fn clone(&self) -> Self {
        Self::new(self.owned.clone())
    }
}

// === impl Step ===

impl Step {
    /// The stage that a failure of this step is reported as, and the path it was about.
    #[must_use]
    pub fn describe(&self) -> (&'static str, Option<&CStr>) {
        match self {
            Self::Await => ("await", None),
            Self::MakePrivate => ("make-private", None),
            Self::OpenTree { from: Source::Path(path) | Source::Checked { path, .. }, .. } => {
                ("open-tree", Some(path))
            }
            Self::Adopt { .. } => ("adopt", None),
            Self::Attributes { idmap: Some(_), .. } => ("map-ids", None),
            Self::Attributes { .. } => ("mount-attributes", None),
            Self::AttributesBelow { path, .. } => ("mount-attributes", Some(path)),
            Self::NewFilesystem { kind, .. } => ("mount", Some(kind)),
            Self::AttachAt { path, .. } | Self::AttachBeneath { path, .. } => {
                ("attach", Some(path))
            }
            Self::AttachIn { name, .. } => ("attach", Some(name)),
            Self::CloneFrom { name, .. } => ("clone", Some(name)),
            Self::OpenDirectory { path, .. } => ("open", Some(path)),
            Self::MakeDirectory { path, .. } => ("mkdir", Some(path)),
            Self::MakeFile { path } => ("make-file", Some(path)),
            Self::Rename { from, .. } => ("rename", Some(from)),
            Self::FilesystemIds { .. } => ("filesystem-ids", None),
            Self::Enter { path } => ("chdir", Some(path)),
            Self::PivotRoot { .. } => ("pivot-root", None),
            Self::CoverRoot { .. } => ("cover-root", None),
            Self::Detach { path } => ("detach", Some(path)),
            Self::Hostname { name } => ("hostname", Some(name)),
            Self::Unshare { .. } => ("unshare", None),
            Self::JoinNamespace { .. } => ("join-namespace", None),
            Self::LoopbackUp => ("loopback-up", None),
            Self::Affinity { .. } => ("affinity", None),
            Self::Become { .. } => ("become", None),
            Self::Capabilities { .. } => ("capabilities", None),
            Self::NoNewPrivileges => ("no-new-privileges", None),
            Self::NewSession => ("new-session", None),
            Self::Place { .. } => ("place", None),
            Self::Exec { .. } => ("exec", None),
        }
    }
}
