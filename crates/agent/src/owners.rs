//! Whose connections are: which process in the sandbox holds a socket with given ends.
//!
//! The kernel's table of sockets gives the number of the socket, and `/proc/PID/fd` who has that number open; all
//! processes are looked through once for a whole question. A process shows its descriptors to its own user only, so the
//! agent looks as that user. What is found is a hint: a process chooses its name, and may have passed the socket on.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use belljar_protocol::v1::{self, FindOwners, Owner, frame::Body};
use belljar_sys::identity::FileIdentity;
use belljar_sys::netlink::sockets::Transport;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, readlinkat_raw, statat};
use rustix::process::{getegid, geteuid};

use crate::agent::Agent;
use crate::failure::{Result, invalid};
use crate::procfs;
use crate::tools::process_of;

/// Connections in one question.
const MOST_CONNECTIONS: usize = 64;

/// Descriptors that are looked at for one question, which takes some twenty milliseconds at most; nothing else is done
/// meanwhile.
const MOST_DESCRIPTORS: u32 = 16 * 1024;

/// The kernel keeps fifteen bytes of a name.
const LONGEST_PROGRAM: usize = 15;

/// A socket that somebody is looked for.
struct Wanted {
    inode: u32,
    /// Its place in the question.
    at: usize,
}

impl Agent {
    pub(crate) fn find_owners(&mut self, question: &FindOwners) -> Result<Body> {
        let ends = &question.connections;
        if ends.len() > MOST_CONNECTIONS {
            return Err(invalid("at most 64 connections are asked about at once"));
        }
        let mut owners = vec![Owner::default(); ends.len()];
        let mut wanted = Vec::new();
        for (at, ends) in ends.iter().enumerate() {
            if let Some(inode) = self.inode(ends) {
                wanted.push(Wanted { inode, at });
            }
        }
        search(&mut wanted, |at, pid| {
            let process = process_of(pid, &self.children);
            let process = process.and_then(|key| self.processes.get(key));
            owners[at] = Owner {
                pid: pid.cast_unsigned(),
                program: procfs::short_name(pid, LONGEST_PROGRAM).unwrap_or_default(),
                process: process.map(|process| process.name.clone()).unwrap_or_default(),
            };
        });
        Ok(Body::Owners(v1::Owners { owners }))
    }

    fn inode(&mut self, ends: &v1::Ends) -> Option<u32> {
        let table = self.sockets.as_mut()?;
        let transport = match ends.transport() {
            v1::Transport::Tcp => Transport::Tcp,
            v1::Transport::Udp => Transport::Udp,
        };
        let local = end(&ends.local_address, ends.local_port)?;
        let remote = end(&ends.remote_address, ends.remote_port)?;
        if local.is_ipv4() != remote.is_ipv4() {
            return None;
        }
        table.inode(transport, local, remote).ok()?
    }
}

fn end(address: &[u8], port: u32) -> Option<SocketAddr> {
    let ip = match address.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(address).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
}

/// Goes through all processes until everything wanted is found.
fn search(wanted: &mut Vec<Wanted>, mut found: impl FnMut(usize, i32)) {
    if wanted.is_empty() {
        return;
    }
    let Some(directory) = procfs::proc_directory() else { return };
    let own = (geteuid().as_raw(), getegid().as_raw());
    // Who the agent looks as; there is rarely more than one user.
    let mut looks_as = own;
    let mut identity = None;
    let mut left = MOST_DESCRIPTORS;
    for pid in procfs::descendants().iter().map(|entry| entry.pid) {
        let Ok(stat) = statat(&directory, pid.to_string(), AtFlags::empty()) else { continue };
        let user = (stat.st_uid, stat.st_gid);
        if user != looks_as {
            drop(identity.take());
            identity = (user != own).then(|| FileIdentity::assume(user.0, user.1));
            looks_as = user;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(descriptors) = openat(&directory, format!("{pid}/fd"), flags, Mode::empty()) else {
            continue;
        };
        look_through(&descriptors, wanted, &mut left, |at| found(at, pid));
        if left == 0 || wanted.is_empty() {
            return;
        }
    }
}

/// Takes what a process has open off the list.
fn look_through(
    descriptors: &OwnedFd,
    wanted: &mut Vec<Wanted>,
    left: &mut u32,
    mut found: impl FnMut(usize),
) {
    let mut space = [MaybeUninit::uninit(); 2048];
    let mut listing = RawDir::new(descriptors, &mut space);
    while let Some(Ok(entry)) = listing.next() {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        let mut link = [MaybeUninit::uninit(); 32];
        let Ok((link, _)) = readlinkat_raw(descriptors, entry.file_name(), &mut link) else {
            continue;
        };
        let Some(inode) = inode_in(link) else { continue };
        wanted.retain(|one| {
            if one.inode == inode {
                found(one.at);
            }
            one.inode != inode
        });
        if wanted.is_empty() {
            return;
        }
    }
}

/// `socket:[12345]`.
fn inode_in(link: &[u8]) -> Option<u32> {
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_number_of_a_socket() {
        assert_eq!(inode_in(b"socket:[12345]"), Some(12345));
        for other in [&b"/dev/null"[..], b"pipe:[1]", b"socket:[", b"socket:[]", b"socket:[1 ]"] {
            assert_eq!(inode_in(other), None);
        }
    }

    #[test]
    fn an_end_has_an_address_of_four_or_sixteen_bytes() {
        assert_eq!(end(&[127, 0, 0, 1], 80), Some(([127, 0, 0, 1], 80).into()));
        assert!(end(&[0; 16], 65_535).is_some());
        for (address, port) in [(&[0; 5][..], 1), (&[], 1), (&[0; 4], 65_536)] {
            assert_eq!(end(address, port), None);
        }
    }
}
