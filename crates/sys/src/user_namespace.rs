//! User namespaces that exist to be joined or to describe an id mapping.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use crate::child::{CloneOptions, Plan, Step};

/// `count` ids from `inside` on stand for those from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Makes a user namespace with these mappings. It lives as long as the descriptor, or something in it.
pub fn create(users: &[Mapping], groups: &[Mapping]) -> io::Result<OwnedFd> {
    let plan = Plan { steps: vec![Step::Await] };
    let options =
        CloneOptions { namespaces: libc::CLONE_NEWUSER as u64, ..CloneOptions::default() };
    let holder = plan.spawn(&options)?;
    let made =
        write_maps(holder.pid, users, groups, Setgroups::Allowed).and_then(|()| open(holder.pid));
    // Dropping it would end the holder too; waiting for it here leaves no zombie.
    let ended = crate::process::kill(&holder.pidfd);
    crate::process::wait(std::os::fd::AsFd::as_fd(&holder.pidfd));
    ended.and(made)
}

/// Whether `setgroups` stays possible in a namespace. An ordinary user must give it up to map a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setgroups {
    Allowed,
    Denied,
}

/// Writes the id maps of the user namespace that a process is in.
pub fn write_maps(
    pid: i32,
    users: &[Mapping],
    groups: &[Mapping],
    setgroups: Setgroups,
) -> io::Result<()> {
    if setgroups == Setgroups::Denied {
        std::fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    std::fs::write(format!("/proc/{pid}/uid_map"), lines(users))?;
    std::fs::write(format!("/proc/{pid}/gid_map"), lines(groups))
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    let path = CString::new(format!("/proc/{pid}/ns/user")).expect("a number contains no NUL");
    Ok(rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?)
}

fn lines(mappings: &[Mapping]) -> String {
    let line = |one: &Mapping| format!("{} {} {}\n", one.inside, one.outside, one.count);
    mappings.iter().map(line).collect()
}
