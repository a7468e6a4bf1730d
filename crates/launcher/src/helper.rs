//! Helpers: copies of the launcher that wait for one sandbox each to start.
//!
//! A helper has a [`Cell`] ready before it is needed: it sits in version 1 cgroups (only a process itself can move
//! there cheaply) and in a network namespace, has a range of user ids, and an empty disk of the shape that was wanted
//! last. It then does the whole start for one request, beside other
//! helpers, and ends. A few wait in reserve. They die with the launcher.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use belljar_sys::cgroup::Limits;
use belljar_sys::process::{self, Forked};
use belljar_sys::user_namespace::{self, Mapping};
use belljar_sys::{message, namespace};

use crate::disk::Shape;
use crate::failure::{Result, Stage};
use crate::ids::{self, RANGE};
use crate::serve::Launcher;
use crate::start::limits;
use crate::wire::{Answer, Failure, Start};

/// How many helpers wait. Each costs a small process; two starts may come at once.
const RESERVE: usize = 2;

/// A helper, waiting or at work.
pub(crate) struct Helper {
    pub(crate) socket: OwnedFd,
    pidfd: OwnedFd,
    cell: String,
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
}

/// The reserve.
#[derive(Default)]
pub(crate) struct Helpers {
    waiting: Vec<Helper>,
    made: u64,
    given_up: bool,
    /// The disk and the limits that were wanted last.
    shape: Option<Shape>,
    limits: Option<Limits>,
    /// Helpers that have done their work and are to be taken leave of when there is time.
    spent: Vec<Helper>,
}

impl Helpers {
    /// Whether another helper would be useful.
    pub(crate) fn wanting(&self) -> bool {
        self.waiting.len() < RESERVE && !self.given_up
    }

    /// Whether there is somebody to take leave of.
    pub(crate) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
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
        self.helpers.waiting.push(helper);
        Ok(())
    }

    /// Gives a request to a helper, from the reserve if there is one.
    pub(crate) fn dispatch(&mut self, start: &Start, descriptors: &[OwnedFd]) -> Result<Helper> {
        let request = postcard::to_stdvec(start).map_err(|_| malformed())?;
        let shape = Shape::of(start);
        if self.helpers.shape != shape {
            self.helpers.shape = shape;
            if let Some(shape) = shape {
                // Read here, so that every helper from now on is born with it.
                self.disks.empty(&self.place.path.join("disks"), shape)?;
            }
        }
        self.helpers.limits = Some(limits(start));
        self.learn_id_mapping(start, descriptors)?;
        let helper = match self.helpers.waiting.pop() {
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
    pub(crate) fn collect(&mut self, helper: Helper) -> Result<()> {
        let mut buffer = vec![0; message::MAX_MESSAGE];
        let received = message::receive(&helper.socket, &mut buffer).stage("helper");
        let answer = received.map(|(length, _)| postcard::from_bytes::<Answer>(&buffer[..length]));
        if let Ok(Ok(Answer::Started)) = answer {
            // Whoever asked need not wait for its end; its cell is the sandbox's now.
            self.helpers.spent.push(helper);
            return Ok(());
        }
        self.dismiss(helper);
        match answer? {
            Ok(Answer::Failed(failure)) => Err(failure),
            _ => Err(Failure::new("helper", rustix::io::Errno::PROTO.raw_os_error())),
        }
    }

    /// Takes leave of helpers that have done their work.
    pub(crate) fn dismiss_spent(&mut self) {
        for helper in std::mem::take(&mut self.helpers.spent) {
            process::wait(helper.pidfd.as_fd());
        }
    }

    /// Ends a helper and removes what it sat in, if it still does.
    pub(crate) fn dismiss(&self, helper: Helper) {
        let _ = process::kill(&helper.pidfd);
        process::wait(helper.pidfd.as_fd());
        self.remove_cell(&helper.cell);
    }

    fn remove_cell(&self, cell: &str) {
        // A helper that is killed while it prepares leaves a child that ends a moment later.
        let _ = self.remove_group(cell);
        let ranges: Vec<u32> = self
            .place
            .ranges()
            .into_iter()
            .filter(|(_, owner)| owner == cell)
            .map(|(range, _)| range)
            .collect();
        if ranges.is_empty() {
            return;
        }
        let in_use = self.place.ranges_in_use();
        for range in ranges.into_iter().filter(|range| !in_use.contains(range)) {
            ids::give_back(self.place.ids.as_fd(), range);
        }
    }

    pub(crate) fn dismiss_all(&mut self) {
        self.dismiss_spent();
        for helper in std::mem::take(&mut self.helpers.waiting) {
            self.dismiss(helper);
        }
    }

    /// Removes the cells of launchers that were killed.
    pub(crate) fn sweep_cells(&self) {
        let owners = self.place.ranges().into_iter().map(|(_, owner)| owner);
        for cell in self.cgroups.groups(&self.place.group).into_iter().chain(owners) {
            if cell_launcher(&cell).is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                self.remove_cell(&cell);
            }
        }
    }

    fn make_helper(&mut self) -> Result<Helper> {
        self.helpers.made += 1;
        // A hyphen is in no sandbox's id, so a cell is never taken for one.
        let cell = format!("cell-{}-{}", std::process::id(), self.helpers.made);
        let (ours, theirs) = message::pair().stage("helper")?;
        match process::fork().stage("helper")? {
            Forked::Parent { pidfd, .. } => Ok(Helper { socket: ours, pidfd, cell }),
            Forked::Child => {
                drop(ours);
                self.help(&theirs, &cell);
                std::process::exit(0);
            }
        }
    }

    /// The helper's life.
    fn help(&mut self, socket: &OwnedFd, cell: &str) {
        let prepared = self.prepare_cell(cell);
        let mut buffer = vec![0; message::MAX_MESSAGE];
        let Ok((length @ 1.., descriptors)) = message::receive(socket, &mut buffer) else { return };
        let answer = prepared.and_then(|cell| {
            let start: Start = postcard::from_bytes(&buffer[..length]).map_err(|_| malformed())?;
            self.start(&start, &descriptors, cell)
        });
        let answer = match answer {
            Ok(()) => Answer::Started,
            Err(failure) => Answer::Failed(failure),
        };
        let bytes = postcard::to_stdvec(&answer).unwrap_or_default();
        let _ = message::send(socket, &bytes, &[]);
    }

    fn prepare_cell(&mut self, name: &str) -> Result<Cell> {
        let group = self.cgroups.group(&self.place.group, name);
        group.create_version_1().stage("cgroup")?;
        group.enter_version_1().stage("cgroup-enter")?;
        let mut cell = Cell { name: name.to_owned(), range: None, disk: None, limits: None };
        if let Some(limits) = self.helpers.limits.filter(|_| self.cgroups.limits_by_version_1()) {
            group.limit(&limits).stage("cgroup")?;
            cell.limits = Some(limits);
        }
        if self.facts.privileged {
            namespace::new_network().stage("network-namespace")?;
            let range = ids::take(self.place.ids.as_fd(), name).stage("id-range")?;
            let mapping = Mapping { inside: 0, outside: ids::outside(range, 0), count: RANGE };
            let users = user_namespace::create(mapping, mapping).stage("user-namespace")?;
            if let Some(shape) = self.helpers.shape {
                let disk = self.disks.make(&self.place.path, shape, &users)?;
                cell.disk = Some((shape, disk));
            }
            cell.range = Some((range, users));
        }
        Ok(cell)
    }
}

/// The process number of the launcher that a cell belongs to; `None` for names that are not a cell's.
pub(crate) fn cell_launcher(name: &str) -> Option<&str> {
    name.strip_prefix("cell-")?.split('-').next()
}

fn malformed() -> Failure {
    Failure::new("request", rustix::io::Errno::PROTO.raw_os_error())
}
