//! What happens before the agent serves: taking descriptors, shielding itself, signals, orphans.

use std::io;
use std::os::fd::OwnedFd;

use belljar_sys::inherited;
use belljar_sys::signals::{self, SignalDescriptor};
use belljar_sys::workload::Limit;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{DumpableBehavior, Gid, Signal, Uid, getpid};

use crate::arguments::{Arrivals, Descriptors};
use crate::relay;

/// What the launcher handed over.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// Where hosts come from, and whether they come connected.
    pub(crate) arrivals: OwnedFd,
    pub(crate) handed: bool,
    /// Who is a host, where a program inside could be the same.
    pub(crate) host: Option<u32>,
    /// Whether that is looked at when somebody comes: where others can reach the socket too.
    pub(crate) ask_who: bool,
    pub(crate) cgroup: Option<OwnedFd>,
    pub(crate) ready: Option<OwnedFd>,
}

/// Takes the descriptors from the command line; nothing inherited reaches a program that is started later.
pub(crate) fn take_descriptors(descriptors: &Descriptors) -> io::Result<Inherited> {
    let (arrivals, handed, host) = match descriptors.arrivals {
        Arrivals::Listen(number) => (inherited::take(number)?, false, None),
        Arrivals::Handed(number) => (inherited::take(number)?, true, None),
        Arrivals::Own { host } => (listener(false)?, false, Some(host)),
        // Whoever may pass through the door, as the agent may until it becomes another.
        Arrivals::Door => (listener(true)?, false, Some(rustix::process::geteuid().as_raw())),
    };
    let ask_who = matches!(descriptors.arrivals, Arrivals::Own { .. });
    let cgroup = descriptors.cgroup.map(inherited::take).transpose()?;
    let ready = descriptors.ready.map(inherited::take).transpose()?;
    inherited::close_on_exec_from(3)?;
    rustix::io::ioctl_fionbio(&arrivals, true)?;
    Ok(Inherited { arrivals, handed, host, ask_who, cgroup, ready })
}

/// A socket of the agent's own, which nobody can remove or take the place of while the agent lives: its name belongs to the
/// network that the agent is in, or it is behind the door.
fn listener(door: bool) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&listener, &relay::address(door)?)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Hosts that may wait to be let in.
const BACKLOG: i32 = 64;

/// Becomes a user that the wall could not start the agent as, and keeps what it may do.
pub(crate) fn become_user(identity: Option<u32>) -> io::Result<()> {
    let Some(identity) = identity else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(identity), Gid::from_raw(identity));
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective = sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}

/// Puts the agent out of the workload's reach even where both have the same user.
pub(crate) fn shield() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")?;
    Ok(())
}

/// Makes room for eight descriptors per process; returns the limit as it was, which the workload gets.
pub(crate) fn raise_descriptor_limit() -> io::Result<Limit> {
    let own = Limit::current(FILES)?;
    let wanted = DESCRIPTORS.min(own.hard).max(own.soft);
    Limit { soft: wanted, ..own }.apply()?;
    Ok(own)
}

/// `RLIMIT_NOFILE`.
const FILES: u32 = 7;

/// Enough for as many processes as the agent keeps.
const DESCRIPTORS: u64 = 8192;

/// Everything is blocked; the end of a child, and outside of a sandbox a request to leave, are read from a descriptor.
pub(crate) fn own_signals() -> io::Result<SignalDescriptor> {
    // Rust's runtime and whoever started the agent may have ignored some, which programs would inherit.
    signals::reset_dispositions();
    if is_init() {
        // The kernel keeps signals from inside away from PID 1, but not those that it reads itself. Whoever is outside
        // has KILL.
        return SignalDescriptor::block_all(&[Signal::CHILD]);
    }
    SignalDescriptor::block_all(&[Signal::CHILD, Signal::TERM])
}

/// Orphans come to PID 1 by themselves; anywhere else they must be asked for.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    if !is_init() {
        rustix::process::set_child_subreaper(Some(getpid()))?;
    }
    Ok(())
}

/// Whether this is PID 1, with a machine of its own.
pub(crate) fn is_init() -> bool {
    getpid().as_raw_nonzero().get() == 1
}
