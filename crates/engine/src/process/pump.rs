//! Attends to one process from its start to its recorded end.
//!
//! Takes output from the agent, logs it, hands it on, and only then acknowledges it: what the agent may forget is on
//! the host. Makes sure of an end: where the agent does not report one in time, the sandbox is destroyed.

use std::sync::Arc;
use std::time::Duration;

use belljar_backend::Counters;
use belljar_policy::ProcessId;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Exited};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::attendance::Attendance;
use super::exit::{classify, is_too_short_for_limits};
use super::place::{Place, Taken};
use super::turns::Turn;
use super::{Exit, ProcessControl, ProcessEvent, Reason};
use crate::agent::{AgentError, Stream, WINDOW};
use crate::destroy::reap;
use crate::engine::Inner;
use crate::fault::point;
use crate::live::Live;
use crate::log::Channel;
use crate::store::{ExitRecord, State};

/// The agent kills at the timeout; this long after it the host no longer believes that it will.
pub(super) const HOST_GRACE: Duration = Duration::from_secs(5);

/// Processes that end sooner never have `running` written to their record: nobody could have seen it.
const RECORD_RUNNING_AFTER: Duration = Duration::from_millis(20);

/// Output that was written before the end comes right behind it. If it does not come in this time, it never will.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(10);

/// How often a full disk is tried again.
const ROOM_POLL: Duration = Duration::from_millis(250);

/// Acknowledge at the latest when this much is waiting for it.
const ACKNOWLEDGE_FROM: u64 = WINDOW as u64 / 4;

/// What an agent may keep of the output of a process that it could forget.
const KEPT_UNTIL_LATER: u64 = 16 << 10;

/// How often a lost connection is made anew for the same process before it counts as lost.
const MAX_REATTACH: usize = 3;

pub(super) struct Pump {
    pub(super) inner: Arc<Inner>,
    pub(super) live: Arc<Live>,
    pub(super) process: ProcessId,
    pub(super) stream: Arc<Stream>,
    pub(super) control: ProcessControl,
    pub(super) place: Place,
    pub(super) attendance: Attendance,
    /// `None` once nobody listens.
    pub(super) events: Option<mpsc::Sender<ProcessEvent>>,
    pub(super) baseline: Counters,
    pub(super) begun: Instant,
    /// When the host no longer believes that the agent will end it.
    pub(super) deadline: Option<Instant>,
    /// Not yet written to the record.
    pub(super) unrecorded_pid: Option<u32>,
    /// The next command begins when it is over.
    pub(super) turn: Turn,
    /// Nobody has its output open any more.
    pub(super) closed: bool,
}

/// How attending ended.
enum Outcome {
    Ended(Exited),
    /// The sandbox went away, or the agent no longer knows the process.
    Lost,
    /// The agent let the timeout pass.
    Overdue,
    /// Somebody else attends now.
    TakenOver,
}

impl Pump {
    pub(super) async fn run(mut self) {
        let outcome = self.attend().await;
        self.turn.end();
        let duration = self.duration();
        let exit = match outcome {
            Outcome::TakenOver => return,
            Outcome::Ended(exited) => {
                let counted = self.counted(&exited, duration).await;
                classify(&exited, counted, duration)
            }
            Outcome::Lost => {
                self.inner.check_later(&self.live.id);
                Exit::unseen(self.reason_of_loss().await, duration)
            }
            Outcome::Overdue => {
                let exit = Exit::unseen(Reason::TimedOut, duration);
                // Before the sandbox goes: processes that end with it are lost, and this one was not.
                self.record(&exit).await;
                self.destroy_sandbox().await;
                exit
            }
        };
        self.finish(exit).await;
    }

    async fn attend(&mut self) -> Outcome {
        let mut deadline = self.deadline;
        let mut acknowledged = self.place.received();
        let mut exited: Option<(Exited, Instant)> = None;
        let mut reattached = 0;
        loop {
            if let Some((exited, _)) = &exited {
                let received = self.place.received();
                if received.stdout >= exited.stdout_end && received.stderr >= exited.stderr_end {
                    return Outcome::Ended(exited.clone());
                }
            }
            if deadline.is_some_and(|deadline| self.is_overdue(deadline)) {
                if !self.is_paused().await {
                    return Outcome::Overdue;
                }
                // A paused agent ends it, if that is still due, when it goes on.
                deadline = Some(Instant::now() + HOST_GRACE);
            }
            if self.turn.ends_at().is_some_and(|at| at <= Instant::now()) {
                self.turn.end();
            }
            let frame = match self.stream.try_next() {
                Some(frame) => frame,
                None => {
                    // Nothing waits, so this is the moment to tell the agent how far we are.
                    self.acknowledge(&mut acknowledged, 1);
                    let record_at = self.begun + RECORD_RUNNING_AFTER;
                    let settled = exited.as_ref().map(|(_, at)| *at + OUTPUT_AFTER_END);
                    tokio::select! {
                        frame = self.stream.next() => frame,
                        () = until(Some(record_at)), if self.unrecorded_pid.is_some() => {
                            self.record_running().await;
                            continue;
                        }
                        () = until(self.turn.ends_at()) => continue,
                        () = until(deadline), if exited.is_none() => continue,
                        () = until(settled), if settled.is_some() => {
                            let Some((exited, _)) = exited else { continue };
                            return Outcome::Ended(exited);
                        }
                    }
                }
            };
            match frame {
                Ok(Body::Output(output)) => {
                    if self.output(output, deadline).await.is_err() {
                        return Outcome::Overdue;
                    }
                    self.acknowledge(&mut acknowledged, ACKNOWLEDGE_FROM);
                }
                // The first word on a stream that was attached.
                Ok(Body::Started(started)) => self.control.input_goes_on(started.stdin_offset),
                Ok(Body::Exited(end)) => {
                    self.turn.end();
                    exited = Some((end, Instant::now()));
                }
                Ok(Body::Closed(_)) => {
                    self.closed = true;
                    return exited.map_or(Outcome::Lost, |(exited, _)| Outcome::Ended(exited));
                }
                Ok(Body::Failure(failure)) if failure.code == "taken-over" => {
                    return Outcome::TakenOver;
                }
                Ok(Body::Failure(_)) => return Outcome::Lost,
                Ok(_) => {}
                Err(_) => {
                    if let Some((exited, _)) = exited {
                        return Outcome::Ended(exited);
                    }
                    reattached += 1;
                    if reattached > MAX_REATTACH || self.reattach().await.is_err() {
                        return Outcome::Lost;
                    }
                }
            }
        }
    }

    /// Logs a piece of output and hands it on. Error: the deadline passed while the reader was slow.
    async fn output(
        &mut self,
        output: v1::Output,
        mut deadline: Option<Instant>,
    ) -> Result<(), ()> {
        let channel = match v1::Channel::try_from(output.channel) {
            Ok(v1::Channel::Stdout) => Channel::Stdout,
            Ok(v1::Channel::Stderr) => Channel::Stderr,
            Ok(v1::Channel::Stdin) | Err(_) => return Ok(()),
        };
        let Some(Taken { record, logged }) = self.take(channel, output, &mut deadline).await?
        else {
            return Ok(());
        };
        if logged.is_some() {
            self.attendance.logged(record.clone(), logged);
        }
        let Some(events) = self.events.clone() else { return Ok(()) };
        // Copied only where followers share it.
        let event = ProcessEvent::Output { channel, data: record.data.into() };
        let record_at = self.begun + RECORD_RUNNING_AFTER;
        let permit = match events.try_reserve() {
            Ok(permit) => permit,
            Err(mpsc::error::TrySendError::Closed(())) => {
                self.events = None;
                return Ok(());
            }
            Err(mpsc::error::TrySendError::Full(())) => loop {
                self.turn.end();
                tokio::select! {
                    permit = events.reserve() => match permit {
                        Ok(permit) => break permit,
                        Err(_) => {
                            self.events = None;
                            return Ok(());
                        }
                    },
                    () = until(Some(record_at)), if self.unrecorded_pid.is_some() => {
                        self.record_running().await;
                    }
                    () = until(deadline), if !self.stream.has_exited() => {
                        if deadline.is_some_and(|deadline| self.is_overdue(deadline)) {
                            if !self.is_paused().await {
                                return Err(());
                            }
                            deadline = Some(Instant::now() + HOST_GRACE);
                        }
                    }
                }
            },
        };
        permit.send(event);
        Ok(())
    }

    /// Logs a piece of output. Where the disk is full it waits for room: nobody else has the bytes, and unacknowledged they
    /// stay with the agent, which holds the process up as a full pipe would. Somebody who listens is handed them at once
    /// instead, and the log has a gap. Error: the deadline passed meanwhile.
    async fn take(
        &mut self,
        channel: Channel,
        output: v1::Output,
        deadline: &mut Option<Instant>,
    ) -> Result<Option<Taken>, ()> {
        let (mut offset, mut data) = (output.offset, output.data);
        loop {
            let even_unlogged = self.events.is_some() || !self.stream.connection().is_open();
            match self.place.take(channel, offset, data, even_unlogged) {
                Ok(taken) => return Ok(taken),
                Err(back) => (offset, data) = (back.offset, back.data),
            }
            self.turn.end();
            tokio::time::sleep(ROOM_POLL).await;
            if self.unrecorded_pid.is_some() {
                self.record_running().await;
            }
            if deadline.is_some_and(|deadline| self.is_overdue(deadline)) {
                if !self.is_paused().await {
                    return Err(());
                }
                *deadline = Some(Instant::now() + HOST_GRACE);
            }
        }
    }

    /// Tells the agent what has been taken care of, where that is at least `least` bytes of a channel.
    fn acknowledge(&self, acknowledged: &mut crate::log::Offsets, least: u64) {
        let received = self.place.received();
        for channel in Channel::ALL {
            let end = received.get(channel);
            if end - acknowledged.get(channel) >= least {
                let number = match channel {
                    Channel::Stdout => v1::Channel::Stdout,
                    Channel::Stderr => v1::Channel::Stderr,
                };
                // A connection that has ended shows when the next frame is read.
                let _ = self.stream.acknowledge(number as i32, end);
                acknowledged.set(channel, end);
            }
        }
    }

    /// The end may have arrived and wait behind output that nobody reads: then nothing is overdue.
    fn is_overdue(&self, deadline: Instant) -> bool {
        Instant::now() >= deadline && !self.stream.has_exited()
    }

    async fn is_paused(&self) -> bool {
        matches!(self.inner.store.state_of(&self.live.id).await, Ok(Some(State::Paused)))
    }

    /// As precise as it is recorded.
    fn duration(&self) -> Duration {
        let us = self.begun.elapsed().as_micros();
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }

    async fn reattach(&mut self) -> crate::Result<()> {
        self.turn.end();
        let connection = self.live.connection(&self.inner).await?;
        let received = self.place.received();
        let stream = connection.request(Body::Attach(v1::Attach {
            process: self.process.as_str().to_owned(),
            stdout_offset: received.stdout,
            stderr_offset: received.stderr,
        }))?;
        self.stream = Arc::new(stream);
        self.control.replace_stream(Arc::clone(&self.stream));
        Ok(())
    }

    async fn record_running(&mut self) {
        let Some(pid) = self.unrecorded_pid.take() else { return };
        if let Err(error) = self.inner.store.process_started(&self.process, pid).await {
            tracing::warn!(%error, process = %self.process, "the start was not recorded");
        }
    }

    async fn counted(
        &mut self,
        exited: &Exited,
        duration: Duration,
    ) -> Option<(Counters, Counters)> {
        // Of whom it has left behind nobody knows how much they have done.
        if is_too_short_for_limits(exited, duration) && self.is_closed() {
            return None;
        }
        Some((self.baseline, self.live.counters().await?))
    }

    /// The kernel may have killed the agent together with the workload.
    async fn reason_of_loss(&self) -> Reason {
        match self.live.counters().await {
            Some(after) if after.oom_kills > self.baseline.oom_kills => Reason::Oom,
            _ => Reason::Lost,
        }
    }

    /// Destroys the sandbox. Something that even the kernel cannot kill now does not keep the caller from its answer: the
    /// work goes on, and whoever comes next finishes it.
    async fn destroy_sandbox(&self) {
        let reason = format!("its agent did not end process `{}` in time", self.process);
        let (inner, id) = (Arc::clone(&self.inner), self.live.id.clone());
        let destroyed = tokio::spawn(async move {
            if let Err(error) = reap(&inner, &id, &reason).await {
                tracing::warn!(%error, sandbox = %id, "an overdue sandbox was not destroyed");
            }
        });
        let _ = tokio::time::timeout(HOST_GRACE, destroyed).await;
    }

    /// Records the end, unless it is recorded already. Where that fails, because the disk is full for example, it is tried
    /// until it succeeds; only where somebody listens does the answer not wait for that. False: it is not on record.
    async fn record(&self, exit: &Exit) -> bool {
        let received = self.place.received();
        let record =
            ExitRecord { log_end: Some((received.stdout, received.stderr)), ..exit.to_record() };
        let status = exit.stored_status();
        let mut complained = false;
        loop {
            match self.inner.store.process_ended(&self.process, status, Some(&record)).await {
                Ok(()) => return true,
                Err(error) if !complained => {
                    tracing::warn!(%error, process = %self.process, "the end cannot be recorded");
                    complained = true;
                }
                Err(_) => {}
            }
            if self.events.as_ref().is_some_and(|events| !events.is_closed()) {
                return false;
            }
            tokio::time::sleep(ROOM_POLL).await;
        }
    }

    async fn finish(mut self, exit: Exit) {
        point("exec.ended");
        let recorded = self.record(&exit).await;
        let left_nothing = self.has_left_nothing();
        if recorded {
            self.attendance.ended();
        } else {
            drop(self.attendance); // whoever comes next finds out from the agent
        }
        point("exec.ended.done");
        self.inner.count_end();
        let received = self.place.received();
        self.inner.written.add(&self.live.tenant, received.sum());
        if recorded {
            let process = self.process.as_str().to_owned();
            // The answer would wake us for nothing.
            let forget = Body::Forget(v1::Forget { process, silent: true });
            let connection = self.stream.connection();
            // An agent that is gone has nothing to forget.
            let _ = match left_nothing {
                true => connection.tell_later(forget),
                false => connection.tell(forget),
            };
        }
        // Whoever waits to write learns that there is nobody to read.
        self.stream.finish(&AgentError::Gone);
        self.control.input_goes_on(0);
        if let Some(events) = self.events.take() {
            let _ = events.send(ProcessEvent::Exited(exit)).await;
        }
    }

    /// Whether the agent has said that nobody has its output open any more, once it has said that it ended: then the two come
    /// together.
    fn is_closed(&mut self) -> bool {
        self.closed |= matches!(self.stream.try_next(), Some(Ok(Body::Closed(_))));
        self.closed
    }

    /// Whether the agent can forget the process whenever it likes. Whoever still has its output open would be held up by what
    /// the agent keeps of it for us, and much output is much of the sandbox's memory.
    fn has_left_nothing(&mut self) -> bool {
        let received = self.place.received();
        self.is_closed() && received.sum() <= KEPT_UNTIL_LATER
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
