//! The page between `clone` and `exec`.
//!
//! Preconditions: a new process with one thread, every signal that the parent waits for still blocked. No
//! allocation, no lock, no panic: only system calls on what was planned before. The order is the point:
//! things that need privilege, then the user, then what looks at files as that user, then the walls from the outside
//! in, and the filters last because they may forbid what the steps before them need.

use std::os::fd::{AsRawFd, RawFd};

use super::{Confinement, Credentials, Ends, Failed, Filter, Limit, Planned, Program, Stage};
use crate::guest::call;
use crate::uapi;

type Result<T, E = Failed> = std::result::Result<T, E>;

pub(super) fn run(planned: &Planned, confinement: &Confinement, ends: Ends) -> ! {
    let failed = match prepare(planned, confinement, ends) {
        Ok(()) => exec(&planned.program),
        Err(failed) => failed,
    };
    let bytes = failed.to_bytes();
    let _ =
        call(libc::SYS_write, [ends.status as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0]);
    loop {
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0, 0]);
    }
}

fn prepare(planned: &Planned, confinement: &Confinement, ends: Ends) -> Result<()> {
    // A session of its own: the group is signalled as one, and no terminal of the parent is inherited.
    step(Stage::Session, libc::SYS_setsid, [0; 5])?;
    for (number, descriptor) in ends.streams.into_iter().enumerate() {
        // The parent holds its own 0, 1 and 2 open, so a source never is one of the numbers written here.
        step(Stage::Streams, libc::SYS_dup3, [descriptor as usize, number, 0, 0, 0])?;
    }
    if ends.is_terminal {
        step(Stage::Terminal, libc::SYS_ioctl, [0, libc::TIOCSCTTY as usize, 0, 0, 0])?;
    }
    limit(confinement)?;
    become_user(confinement, planned.credentials.as_ref(), planned.capabilities)?;
    // As the user, who must be allowed to enter it; `/proc/N/fd/M` and its kin would lead out of what paths can say.
    let directory = open_directory(planned.working_directory.as_ptr() as usize)?;
    step(Stage::WorkingDirectory, libc::SYS_fchdir, [directory as usize, 0, 0, 0, 0])?;
    wall_in(confinement)?;
    // Everything is close-on-exec when it is made; this makes it certain.
    let all = [3, i32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize, 0, 0];
    step(Stage::Descriptors, libc::SYS_close_range, all)?;
    unblock_signals()?;
    filter(confinement)
}

/// Returns only if no candidate could be run: what `execvp` would have said.
fn exec(program: &Program) -> Failed {
    let mut errno = libc::ENOENT;
    for candidate in &program.candidates {
        // Most places do not have it, which is found out for less than the attempt would take.
        let look =
            [libc::AT_FDCWD as usize, candidate.as_ptr() as usize, libc::F_OK as usize, 0, 0];
        if let Err(libc::ENOENT | libc::ENOTDIR) = call(libc::SYS_faccessat, look) {
            continue;
        }
        let arguments = [
            candidate.as_ptr() as usize,
            program.arguments.raw.as_ptr() as usize,
            program.environment.raw.as_ptr() as usize,
            0,
            0,
        ];
        match call(libc::SYS_execve, arguments).err() {
            Some(libc::EACCES) => errno = libc::EACCES,
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(other) => return Failed { stage: Stage::Exec, errno: other },
            None => break,
        }
    }
    Failed { stage: Stage::Exec, errno }
}

pub(super) fn limit(confinement: &Confinement) -> Result<()> {
    for &one in &confinement.limits {
        limit_one(one)?;
    }
    Ok(())
}

pub(super) fn limit_one(Limit { resource, soft, hard }: Limit) -> Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    let pointer = &raw const limit as usize;
    step(Stage::Limits, libc::SYS_prlimit64, [0, resource as usize, pointer, 0, 0])
}

pub(super) fn become_user(
    confinement: &Confinement,
    credentials: Option<&Credentials>,
    capabilities: u64,
) -> Result<()> {
    // First, because it takes a privilege. Without that privilege nothing could be gained from the set either: the
    // permitted set is emptied below and no-new-privileges is set.
    let mut unwanted = confinement.bounding & !capabilities;
    while unwanted != 0 {
        let capability = unwanted.trailing_zeros() as usize;
        unwanted &= unwanted - 1;
        let drop = libc::PR_CAPBSET_DROP as usize;
        let _ = call(libc::SYS_prctl, [drop, capability, 0, 0, 0]);
    }
    if let Some(Credentials { uid, gid, groups }) = credentials {
        let (uid, gid) = (*uid as usize, *gid as usize);
        let list = [groups.len(), groups.as_ptr() as usize, 0, 0, 0];
        step(Stage::Groups, libc::SYS_setgroups, list)?;
        step(Stage::Group, libc::SYS_setresgid, [gid, gid, gid, 0, 0])?;
        step(Stage::User, libc::SYS_setresuid, [uid, uid, uid, 0, 0])?;
    }
    // Changing from one ordinary user to another keeps capabilities, so they are taken away by name; the ambient set
    // follows because it never exceeds these.
    let mut header = uapi::CapabilityHeader::default();
    let mut current = [uapi::CapabilityData::default(); 2];
    let header = &raw mut header as usize;
    if capabilities != 0 {
        step(Stage::Capabilities, libc::SYS_capget, [header, &raw mut current as usize, 0, 0, 0])?;
    }
    let permitted = u64::from(current[0].permitted) | u64::from(current[1].permitted) << 32;
    let kept = uapi::CapabilityData::split(permitted & capabilities);
    step(Stage::Capabilities, libc::SYS_capset, [header, &raw const kept as usize, 0, 0, 0])
}

pub(super) fn wall_in(confinement: &Confinement) -> Result<()> {
    // Needed for Landlock and seccomp without privilege, and what makes set-user-id programs powerless.
    let set = [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0];
    step(Stage::NoNewPrivileges, libc::SYS_prctl, set)?;
    if let Some(ruleset) = &confinement.landlock {
        let ruleset = [ruleset.as_raw_fd() as usize, 0, 0, 0, 0];
        step(Stage::Landlock, libc::SYS_landlock_restrict_self, ruleset)?;
    }
    Ok(())
}

pub(super) fn filter(confinement: &Confinement) -> Result<()> {
    confinement.filters.iter().try_for_each(install)
}

pub(super) fn install(filter: &Filter) -> Result<()> {
    let program =
        libc::sock_fprog { len: filter.0.len() as u16, filter: filter.0.as_ptr().cast_mut() };
    let set = [libc::SECCOMP_SET_MODE_FILTER as usize, 0, &raw const program as usize, 0, 0];
    step(Stage::Seccomp, libc::SYS_seccomp, set)
}

fn open_directory(path: usize) -> Result<RawFd> {
    let how = uapi::OpenHow {
        flags: (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve: uapi::RESOLVE_NO_MAGICLINKS,
    };
    let arguments =
        [libc::AT_FDCWD as usize, path, &raw const how as usize, size_of::<uapi::OpenHow>(), 0];
    // A kernel that does not know the call (gVisor's) has no such links that lead out of the sandbox.
    let plain = [libc::AT_FDCWD as usize, path, how.flags as usize, 0, 0];
    let opened = match call(libc::SYS_openat2, arguments) {
        Err(libc::ENOSYS) => call(libc::SYS_openat, plain),
        other => other,
    };
    match opened {
        Ok(descriptor) => Ok(descriptor as RawFd),
        Err(errno) => Err(Failed { stage: Stage::WorkingDirectory, errno }),
    }
}

fn unblock_signals() -> Result<()> {
    let none = 0u64;
    let set = [libc::SIG_SETMASK as usize, &raw const none as usize, 0, size_of_val(&none), 0];
    step(Stage::Signals, libc::SYS_rt_sigprocmask, set)
}

fn step(stage: Stage, number: libc::c_long, arguments: [usize; 5]) -> Result<()> {
    match call(number, arguments) {
        Ok(_) => Ok(()),
        Err(errno) => Err(Failed { stage, errno }),
    }
}
