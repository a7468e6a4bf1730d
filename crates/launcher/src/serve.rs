//! The launcher's loop: one request at a time, children and removals in between.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use belljar_sys::cgroup::{Cgroups, Version};
use belljar_sys::{child, identity, inherited, message, mount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::bare;
use crate::disk::{self, Disks};
use crate::doors::{self, Maker};
use crate::failure::{Result, Stage};
use crate::fault::point;
use crate::helper::{Helper, Helpers};
use crate::place::Place;
use crate::plan::Masks;
use crate::stop::Stopping;
use crate::sweeper::Sweeper;
use crate::wire::{Answer, Ask, Facts, Failure, Reply, Request};

/// The state of the launcher once it has been told where it works.
pub(crate) struct Launcher {
    pub(crate) place: Place,
    pub(crate) facts: Facts,
    pub(crate) cgroups: Cgroups,
    pub(crate) disks: Disks,
    pub(crate) helpers: Helpers,
    pub(crate) agent: OwnedFd,
    pub(crate) null: OwnedFd,
    /// Where sandboxes begin, with privilege and where it could be made.
    pub(crate) bare: Option<OwnedFd>,
    pub(crate) sweeper: Sweeper,
    pub(crate) masks: Masks,
    /// Something was set aside that the kernel had not let go of when it was last looked at.
    pub(crate) has_hanging: bool,
    /// Which file systems, by device number, support mounts with an id mapping.
    id_mapping: RefCell<HashMap<u64, bool>>,
}

/// How often it is looked whether the kernel has let go of what was set aside.
const LOOK_AT_HANGING: Duration = Duration::from_millis(500);

/// Runs the launcher on an inherited socket until the other side closes it and everything under way is finished.
pub fn main(socket: i32) -> ExitCode {
    // Out of the terminal's process group: Ctrl-C is for the command, not for us.
    let _ = rustix::process::setsid();
    let Ok(socket) = inherited::take(socket) else { return ExitCode::from(125) };
    let mut server = Server {
        socket,
        launcher: None,
        starting: Vec::new(),
        stopping: Vec::new(),
        making: Vec::new(),
    };
    while server.turn() {}
    ExitCode::SUCCESS
}

struct Server {
    socket: OwnedFd,
    launcher: Option<Launcher>,
    starting: Vec<(u64, String, Helper)>,
    stopping: Vec<(u64, Stopping)>,
    making: Vec<(u64, Maker)>,
}

impl Server {
    /// Waits for whatever comes first and handles it. False: nothing will come any more.
    fn turn(&mut self) -> bool {
        let idle_work = self.launcher.as_ref().is_some_and(|launcher| launcher.helpers.wanting());
        let mut watched = vec![PollFd::new(&self.socket, PollFlags::IN)];
        watched.extend(
            self.starting.iter().map(|(_, _, one)| PollFd::new(&one.socket, PollFlags::IN)),
        );
        watched.extend(self.stopping.iter().map(|(_, one)| PollFd::new(&one.pidfd, PollFlags::IN)));
        watched.extend(self.making.iter().map(|(_, one)| PollFd::new(&one.socket, PollFlags::IN)));
        let now = Instant::now();
        let patience =
            self.stopping.iter().map(|(_, one)| one.deadline.saturating_duration_since(now)).min();
        let hanging = self.launcher.as_ref().is_some_and(|launcher| launcher.has_hanging);
        let patience = patience.into_iter().chain(hanging.then_some(LOOK_AT_HANGING)).min();
        let timeout = if idle_work { Some(Duration::ZERO) } else { patience };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut watched, timeout.as_ref()) {
            Ok(0) => {
                self.give_up_on_hanging();
                if let Some(launcher) = &mut self.launcher
                    && launcher.has_hanging
                {
                    launcher.sweep_hanging();
                }
                self.use_idle_time();
                return true;
            }
            Ok(_) => {}
            Err(Errno::INTR) => return true,
            Err(_) => return false,
        }
        let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
        let (starting, stopping) = (self.starting.len(), self.stopping.len());
        for index in (0..self.making.len()).rev() {
            if ready[1 + starting + stopping + index] {
                let (serial, one) = self.making.swap_remove(index);
                self.finish_doors(serial, one);
            }
        }
        for index in (0..stopping).rev() {
            if ready[1 + starting + index] {
                let (serial, one) = self.stopping.swap_remove(index);
                self.finish_stop(serial, one);
            }
        }
        for index in (0..starting).rev() {
            if ready[1 + index] {
                let (serial, id, one) = self.starting.swap_remove(index);
                self.finish_start(serial, &id, one);
            }
        }
        if ready[0] { self.receive() } else { true }
    }

    /// Answers those who wait for a sandbox that will not end.
    fn give_up_on_hanging(&mut self) {
        let now = Instant::now();
        let (late, patient) = std::mem::take(&mut self.stopping)
            .into_iter()
            .partition(|(_, one)| one.deadline <= now);
        self.stopping = patient;
        for (serial, one) in late as Vec<(u64, Stopping)> {
            let Some(launcher) = &mut self.launcher else { return };
            let answer = launcher.set_aside(&one.id).map_or_else(Answer::Failed, |()| Answer::Done);
            self.answer(serial, answer);
        }
    }

    fn receive(&mut self) -> bool {
        let mut buffer = vec![0; message::MAX_MESSAGE];
        let (length, descriptors) = match message::receive(&self.socket, &mut buffer) {
            Ok((0, _)) | Err(_) => {
                self.drain();
                return false;
            }
            Ok(received) => received,
        };
        let Ok(request) = postcard::from_bytes::<Request>(&buffer[..length]) else {
            self.drain();
            return false; // not from us: nothing sensible can follow
        };
        let serial = request.serial;
        match self.handle(serial, request.ask, descriptors) {
            Ok(Some(answer)) => self.answer(serial, answer),
            Ok(None) => {} // answered when it is done
            Err(failure) => self.answer(serial, Answer::Failed(failure)),
        }
        true
    }

    fn handle(
        &mut self,
        serial: u64,
        ask: Ask,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<Answer>> {
        if let Ask::Hello { state_directory } = ask {
            let path = PathBuf::from(OsString::from_vec(state_directory));
            let launcher = Launcher::open(path, descriptors)?;
            let facts = launcher.facts.clone();
            self.launcher = Some(launcher);
            return Ok(Some(Answer::Facts(facts)));
        }
        let launcher = self
            .launcher
            .as_mut()
            .ok_or_else(|| Failure::new("hello-first", Errno::PROTO.raw_os_error()))?;
        match ask {
            Ask::Hello { .. } => unreachable!("handled above"),
            Ask::Start(start) => {
                // Fails if the id is taken, and then there is nothing of ours to undo.
                launcher.place.create(&start.id)?;
                point("launcher.start.directory");
                match launcher.dispatch(&start, &descriptors) {
                    Ok(helper) => {
                        point("launcher.start.dispatched");
                        self.starting.push((serial, start.id, helper));
                    }
                    Err(failure) => {
                        undo(launcher, &start.id);
                        return Err(failure);
                    }
                }
                Ok(None)
            }
            Ask::Stop { id } => match launcher.kill(&id)? {
                Some(stopping) => {
                    self.stopping.push((serial, stopping));
                    Ok(None)
                }
                None => launcher.remove(&id).map(|()| Some(Answer::Done)),
            },
            Ask::Counters { id } => Ok(Some(Answer::Counters(launcher.counters(&id)?))),
            Ask::Freeze { id, frozen } => launcher.freeze(&id, frozen).map(|()| Some(Answer::Done)),
            Ask::ResetLayer { id } => launcher.reset_layer(&id).map(|()| Some(Answer::Done)),
            Ask::Doors { id, udp_ports } => {
                self.making.push((serial, launcher.make_doors(&id, &udp_ports)?));
                Ok(None)
            }
            Ask::DoorsOf { udp_ports } => {
                let network = only(descriptors)?;
                self.making.push((serial, doors::make_doors_of(&network, &udp_ports)?));
                Ok(None)
            }
            Ask::ConnectOf => {
                let connection = doors::connect_of(&only(descriptors)?)?;
                self.answer_with(serial, Answer::Connected, &[connection]);
                Ok(None)
            }
            Ask::Find => Ok(Some(Answer::Found(launcher.find()))),
        }
    }

    fn finish_start(&mut self, serial: u64, id: &str, helper: Helper) {
        let Some(launcher) = &mut self.launcher else { return };
        match launcher.collect(helper) {
            Ok(((doors, sockets), was_ready)) => {
                self.answer_with(serial, Answer::Started { doors, was_ready }, &sockets);
            }
            Err(failure) => {
                undo(launcher, id);
                self.answer(serial, Answer::Failed(failure));
            }
        }
    }

    fn finish_doors(&self, serial: u64, maker: Maker) {
        match maker.collect() {
            Ok((doors, sockets)) => self.answer_with(serial, Answer::Doors(doors), &sockets),
            Err(failure) => self.answer(serial, Answer::Failed(failure)),
        }
    }

    /// Nobody waits for anything: the time to prepare for the next start.
    fn use_idle_time(&mut self) {
        let Some(launcher) = &mut self.launcher else { return };
        if launcher.prepare_helper().is_err() {
            // Without a reserve every start makes its own helper and reports why it cannot.
            launcher.helpers.give_up();
        }
    }

    fn finish_stop(&mut self, serial: u64, one: Stopping) {
        let Some(launcher) = &mut self.launcher else { return };
        let answer = match launcher.finish(one) {
            Ok(()) => Answer::Done,
            Err(failure) => Answer::Failed(failure),
        };
        self.answer(serial, answer);
    }

    /// Nobody asks any more: finishes what was begun, so that nothing is left behind.
    fn drain(&mut self) {
        let Some(launcher) = &mut self.launcher else { return };
        // Whoever asked for these is gone, and nobody else knows them.
        for (_, id, helper) in std::mem::take(&mut self.starting) {
            launcher.dismiss(helper);
            undo(launcher, &id);
        }
        launcher.dismiss_all();
        for (_, one) in std::mem::take(&mut self.stopping) {
            let _ = launcher.see_off(one);
        }
        launcher.sweep_hanging();
        launcher.cgroups.remove_parent(&launcher.place.group);
        if let Some(Launcher { place, sweeper, .. }) = self.launcher.take() {
            sweeper.finish();
            place.sign_out();
        }
    }

    fn answer(&self, serial: u64, answer: Answer) {
        self.answer_with(serial, answer, &[]);
    }

    fn answer_with(&self, serial: u64, answer: Answer, descriptors: &[OwnedFd]) {
        let reply = postcard::to_stdvec(&Reply { serial, answer }).unwrap_or_default();
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        // An asker that is gone does not wait for the answer.
        let _ = message::send(&self.socket, &reply, &descriptors);
    }
}

fn only(descriptors: Vec<OwnedFd>) -> Result<OwnedFd> {
    let missing = || Failure::new("namespace", Errno::BADF.raw_os_error());
    descriptors.into_iter().next().ok_or_else(missing)
}

/// Removes a sandbox that did not come to be. What cannot be removed now is found by the next recovery.
fn undo(launcher: &mut Launcher, id: &str) {
    let _ = match launcher.kill(id) {
        Ok(Some(stopping)) => launcher.see_off(stopping),
        _ => launcher.remove(id),
    };
}

impl Launcher {
    fn open(path: PathBuf, descriptors: Vec<OwnedFd>) -> Result<Self> {
        let missing = || Failure::new("hello", Errno::BADF.raw_os_error());
        let mut descriptors = descriptors.into_iter();
        let directory = descriptors.next().ok_or_else(missing)?;
        let agent = child::keep_clear(descriptors.next().ok_or_else(missing)?).stage("hello")?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .stage("hello")?;
        let privileged = identity::is_privileged();
        let cgroups = Cgroups::detect(Path::new("/"), privileged);
        let facts = facts(privileged, &cgroups);
        let null = child::keep_clear(null).stage("hello")?;
        let place = Place::open(path, directory, privileged)?;
        place.sign_in().stage("state-directory")?;
        // Where none can be made, sandboxes begin in a copy of the host's and let go of it.
        let bare = privileged.then(|| bare::make(&place.staging()).ok()).flatten();
        let sweeper = Sweeper::start(&place).inspect_err(|_| place.sign_out())?;
        let mut launcher = Self {
            place,
            facts,
            cgroups,
            disks: Disks::default(),
            helpers: Helpers::default(),
            agent,
            null,
            bare,
            sweeper,
            masks: Masks::of_this_kernel(),
            has_hanging: false,
            id_mapping: RefCell::default(),
        };
        launcher.sweep_cells();
        disk::sweep(&launcher.place.path);
        launcher.sweep_hanging();
        launcher.place.sign_out_the_dead();
        Ok(launcher)
    }

    /// Whether the file system behind `source` supports mounts with an id mapping.
    pub(crate) fn maps_ids(&self, source: &OwnedFd, namespace: &OwnedFd) -> bool {
        let Ok((device, _)) = mount::file_identity(source) else { return false };
        *self
            .id_mapping
            .borrow_mut()
            .entry(device)
            .or_insert_with(|| mount::supports_id_mapping(source.as_fd(), namespace.as_fd()))
    }
}

fn facts(privileged: bool, cgroups: &Cgroups) -> Facts {
    let version = |branch: &Option<belljar_sys::cgroup::Branch>| {
        branch.as_ref().map(|branch| match branch.version {
            Version::V1 => "cgroup v1".to_owned(),
            Version::V2 => "cgroup v2".to_owned(),
        })
    };
    Facts {
        privileged,
        memory: version(&cgroups.memory),
        cpu: version(&cgroups.cpu),
        pids: version(&cgroups.pids),
        group_kill: cgroups.unified.is_some(),
        disk_image: privileged && disk::available(),
        cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
    }
}
