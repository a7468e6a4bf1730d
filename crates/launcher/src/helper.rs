//! Helpers: copies of the launcher that start sandboxes, one at a time, beside each other.
//!
//! A helper has a [`Cell`] ready before it is needed: it sits in version 1 cgroups (only a process itself can move
//! there cheaply) and in a network namespace, has a range of user ids, and limits and an empty disk of the shape that
//! was wanted last. It does the whole start for one request, leaves the cell to the sandbox, and makes the next one.
//! Helpers die with the launcher.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use belljar_sys::cgroup::Limits;
use belljar_sys::process::{self, Forked, ProcessIdentity};
use belljar_sys::user_namespace::{self, Mapping};
use belljar_sys::{message, namespace};

use crate::disk::Shape;
use crate::doors::Doors;
use crate::failure::{Result, Stage};
use crate::gateway;
use crate::ids::{self, RANGE};
use crate::serve::Launcher;
use crate::start::first_limits;
use crate::wire::{Answer, Failure, Start};

/// How many helpers there are. Two starts may come at once, and a third helper is getting ready meanwhile.
const RESERVE: usize = 3;

/// How nice a process is that works ahead or behind of what somebody waits for.
pub(crate) const BACKGROUND: i32 = 10;

/// A helper, waiting or at work.
pub(crate) struct Helper {
    pub(crate) socket: OwnedFd,
    pidfd: OwnedFd,
    /// What the names of its cells begin with.
    cells: String,
}

/// What a helper has prepared.
pub(crate) struct Cell {
    /// The name of its version 1 groups.
    pub(crate) name: String,
    /// With privilege: ids and the user namespace that maps them.
    pub(crate) range: Option<(u32, OwnedFd)>,
    pub(crate) disk: Option<(Shape, OwnedFd)>,
    /// The limits that are set already.
    pub(crate) limits: Option<Limits>,
    /// The doors of its network, if the last sandbox had some.
    pub(crate) doors: Option<Doors>,
}

/// The doors of a sandbox that was started, and whether all of its cell had been ready.
pub(crate) type Launched = (Doors, bool);

/// All helpers.
#[derive(Default)]
pub(crate) struct Helpers {
    /// Those with nothing to do, the one that has rested longest first.
    waiting: VecDeque<Helper>,
    /// How many there are, those at work included.
    alive: usize,
    made: u64,
    given_up: bool,
    /// In a helper: the disk and the limits that were wanted last.
    shape: Option<Shape>,
    limits: Option<Limits>,
    /// In a helper: whether a network was wanted last.
    doors: bool,
}

impl Helpers {
    /// Whether another helper would be useful.
    pub(crate) fn wanting(&self) -> bool {
        self.alive < RESERVE && !self.given_up
    }

    /// Making one failed; nothing is kept in reserve from here on.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
    }
}

impl Launcher {
    /// Adds a helper to the reserve.
    pub(crate) fn prepare_helper(&mut self) -> Result<()> {
        let helper = self.make_helper()?;
        self.helpers.waiting.push_back(helper);
        Ok(())
    }

    /// Gives a request to a helper, from the reserve if there is one.
    pub(crate) fn dispatch(&mut self, start: &Start, descriptors: &[OwnedFd]) -> Result<Helper> {
        let request = postcard::to_stdvec(start).map_err(|_| malformed())?;
        let helper = match self.helpers.waiting.pop_front() {
            Some(helper) => helper,
            None => self.make_helper()?,
        };
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        match message::send(&helper.socket, &request, &borrowed) {
            Ok(()) => Ok(helper),
            Err(error) => {
                self.dismiss(helper);
                Err(error).stage("helper")
            }
        }
    }

    /// The helper's answer, once its socket is readable.
    pub(crate) fn collect(&mut self, helper: Helper) -> Result<Launched> {
        let mut buffer = vec![0; message::MAX_MESSAGE];
        let received = message::receive(&helper.socket, &mut buffer).stage("helper");
        let answer = received
            .map(|(length, sockets)| (postcard::from_bytes::<Answer>(&buffer[..length]), sockets));
        if let Ok((Ok(Answer::Started { doors, was_ready }), sockets)) = answer {
            self.helpers.waiting.push_back(helper);
            return Ok(((doors, sockets), was_ready));
        }
        self.dismiss(helper);
        match answer? {
            (Ok(Answer::Failed(failure)), _) => Err(failure),
            _ => Err(Failure::new("helper", rustix::io::Errno::PROTO.raw_os_error())),
        }
    }

    /// Ends a helper and removes the cell it sat in, if it still does.
    pub(crate) fn dismiss(&mut self, helper: Helper) {
        let _ = process::kill(&helper.pidfd);
        process::wait(helper.pidfd.as_fd());
        self.helpers.alive -= 1;
        self.remove_cells(|cell| cell.starts_with(&helper.cells));
    }

    pub(crate) fn dismiss_all(&mut self) {
        for helper in std::mem::take(&mut self.helpers.waiting) {
            self.dismiss(helper);
        }
    }

    /// Removes the cells of launchers that were killed.
    pub(crate) fn sweep_cells(&self) {
        self.remove_cells(|cell| {
            cell_launcher(cell).is_some_and(|launcher| launcher.open().is_none())
        });
    }

    /// Removes what belongs to cells and was not passed on to a sandbox.
    fn remove_cells(&self, which: impl Fn(&str) -> bool) {
        for cell in self.cgroups.groups(&self.place.group).into_iter().filter(|cell| which(cell)) {
            // A helper that is killed while it prepares leaves a child that ends a moment later.
            let _ = self.remove_group(&cell);
        }
        self.cgroups.remove_parent(&self.place.group);
        self.place.remove_owners(&which);
        let mut ranges = self.place.ranges();
        ranges.retain(|(_, owner)| which(owner));
        if ranges.is_empty() {
            return;
        }
        let in_use = self.place.ranges_in_use();
        for (range, _) in ranges.into_iter().filter(|(range, _)| !in_use.contains(range)) {
            ids::give_back(self.place.ids.as_fd(), range);
        }
    }

    fn make_helper(&mut self) -> Result<Helper> {
        self.helpers.made += 1;
        // A hyphen is in no sandbox's id, so a cell is never taken for one.
        let ProcessIdentity { pid, start_time } =
            ProcessIdentity::of(std::process::id() as i32).stage("helper")?;
        let cells = format!("cell-{pid}-{start_time}-{}-", self.helpers.made);
        let (ours, theirs) = message::pair().stage("helper")?;
        match process::fork().stage("helper")? {
            Forked::Parent { pidfd, .. } => {
                self.helpers.alive += 1;
                Ok(Helper { socket: ours, pidfd, cells })
            }
            Forked::Child => {
                drop(ours);
                self.help(&theirs, &cells);
                std::process::exit(0);
            }
        }
    }

    /// The helper's life: until the launcher is gone or a start has failed, which is no state to go on from.
    fn help(&mut self, socket: &OwnedFd, cells: &str) {
        let mut buffer = vec![0; message::MAX_MESSAGE];
        let owner = self.place.owner(cells);
        for number in 1u64.. {
            self.yield_to_others(true);
            let prepared = match &owner {
                Ok(owner) => self.prepare_cell(&format!("{cells}{number}"), owner),
                Err(failure) => Err(failure.clone()),
            };
            let Ok((length @ 1.., descriptors)) = message::receive(socket, &mut buffer) else {
                return;
            };
            self.yield_to_others(false);
            let answer = prepared.and_then(|cell| {
                let start: Start =
                    postcard::from_bytes(&buffer[..length]).map_err(|_| malformed())?;
                self.helpers.shape = Shape::of(&start);
                self.helpers.limits = Some(first_limits(&start));
                self.helpers.doors = start.doors;
                self.start(&start, &descriptors, cell)
            });
            let failed = answer.is_err();
            let (answer, sockets) = match answer {
                Ok(((doors, sockets), was_ready)) => {
                    (Answer::Started { doors, was_ready }, sockets)
                }
                Err(failure) => (Answer::Failed(failure), Vec::new()),
            };
            let bytes = postcard::to_stdvec(&answer).unwrap_or_default();
            let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            if message::send(socket, &bytes, &sockets).is_err() || failed {
                return;
            }
        }
    }

    /// Preparing ahead must not slow down what somebody waits for. Only with privilege can the way back be taken.
    fn yield_to_others(&self, yielding: bool) {
        if self.facts.privileged {
            let _ =
                rustix::process::setpriority_process(None, if yielding { BACKGROUND } else { 0 });
        }
    }

    fn prepare_cell(&mut self, name: &str, owner: &Path) -> Result<Cell> {
        let group = self.cgroups.group(&self.place.group, name);
        group.create_version_1().stage("cgroup")?;
        group.enter_version_1().stage("cgroup-enter")?;
        let mut cell =
            Cell { name: name.to_owned(), range: None, disk: None, limits: None, doors: None };
        if let Some(limits) = self.helpers.limits.filter(|_| self.cgroups.limits_by_version_1()) {
            group.limit(&limits).stage("cgroup")?;
            cell.limits = Some(limits);
        }
        if self.facts.privileged {
            namespace::new_network().stage("network-namespace")?;
            if self.helpers.doors {
                cell.doors = Some(doors_here()?);
            }
            let range = ids::take(self.place.ids.as_fd(), owner, name).stage("id-range")?;
            let mapping = Mapping { inside: 0, outside: ids::outside(range, 0), count: RANGE };
            let users = user_namespace::create(&[mapping], &[mapping]).stage("user-namespace")?;
            if let Some(shape) = self.helpers.shape {
                let disk = self.disks.make(&self.place.path, shape, &users)?;
                cell.disk = Some((shape, disk));
            }
            cell.range = Some((range, users));
        }
        Ok(cell)
    }
}

/// Makes the gateway of the network that this process is in, and stays.
pub(crate) fn doors_here() -> Result<Doors> {
    let here = namespace::network().stage("gateway-namespace")?;
    let doors = gateway::build(&[])?;
    namespace::join_network(here.as_fd()).stage("join-namespace")?;
    Ok(doors)
}

/// The launcher that a cell belongs to; `None` for names that are not a cell's.
///
/// Not only its number: that may be another process's by now, or wait for a parent that does not look.
pub(crate) fn cell_launcher(name: &str) -> Option<ProcessIdentity> {
    let mut words = name.strip_prefix("cell-")?.split('-').map(str::parse);
    let pid = words.next()?.ok()?;
    Some(ProcessIdentity { pid: i32::try_from(pid).ok()?, start_time: words.next()?.ok()? })
}

fn malformed() -> Failure {
    Failure::new("request", rustix::io::Errno::PROTO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_names_its_launcher() {
        let known = Some(ProcessIdentity { pid: 42, start_time: 777 });
        assert_eq!(cell_launcher("cell-42-777-1-9"), known);
        for other in ["cell-42", "cell-x-777-1-9", "cell--", "k3n5z0", ""] {
            assert_eq!(cell_launcher(other), None, "{other}");
        }
    }
}
