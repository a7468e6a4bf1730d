//! Following a process: its output from any kept offset on, then live, then its end.
//!
//! A follower costs the process nothing: it reads what is logged, at its own speed. One that keeps up is woken by the
//! attendant and shares the latest records with all others; one that falls behind, or whose process is attended to by
//! another program, reads the log. Either way its memory is constant. Bytes that were rotated away before it came to
//! them show as a later offset.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::ProcessId;
use bytes::Buf;
use tokio::sync::watch;

use super::attach::attend;
use super::attendance::{Attended, Next, Standing};
use super::capture::Capture;
use super::exit::{Exit, Reason};
use super::{Completed, ProcessInfo, info};
use crate::engine::Inner;
use crate::log::{Channel, LogReader, Offsets, Position, Record};
use crate::{Error, Result};

/// How often the log of a process that another program attends to is looked at.
pub(super) const POLL: Duration = Duration::from_millis(250);

/// What a follower learns.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "handed on, never collected")]
pub enum Followed {
    Output(Record),
    /// The process has ended and all of its output that is kept has been told.
    Ended(ProcessInfo),
}

/// One reader of a process, from anywhere, at any speed.
pub struct Follower {
    inner: Arc<Inner>,
    process: ProcessId,
    directory: PathBuf,
    /// What comes next, per channel.
    wanted: Offsets,
    /// Where the log goes on after what has been told.
    place: Option<Position>,
    source: Source,
    watching: Option<Watching>,
}

enum Source {
    Log(Option<LogReader>),
    /// The records that the attendant shares, by number.
    Shared(u64),
    /// The end is recorded; what the log still has comes first.
    Last(LogReader, Box<ProcessInfo>),
    Over,
}

/// The attendant, where it is in this program.
struct Watching {
    attended: Arc<Attended>,
    written: watch::Receiver<u64>,
    standing: watch::Receiver<Standing>,
    /// All records before this number were in the log when it was read to its end.
    mark: u64,
}

/// What to do after one step.
#[expect(clippy::large_enum_variant, reason = "handed on, never collected")]
enum Step {
    Tell(Followed),
    Again,
    Wait,
}

impl Follower {
    pub(crate) fn new(inner: &Arc<Inner>, process: &ProcessId, from: Offsets) -> Self {
        Self {
            directory: inner.directory.process(process),
            inner: Arc::clone(inner),
            process: process.clone(),
            wanted: from,
            place: None,
            source: Source::Log(None),
            watching: None,
        }
    }

    #[must_use]
    pub fn process(&self) -> &ProcessId {
        &self.process
    }

    /// The offsets that come next: where another follower would go on.
    #[must_use]
    pub fn position(&self) -> Offsets {
        self.wanted
    }

    /// The next piece of output, or the end; `None` after the end. Giving up waiting loses nothing.
    pub async fn next(&mut self) -> Result<Option<Followed>> {
        loop {
            // Reading never waits by itself, and other tasks want their turn.
            tokio::task::coop::consume_budget().await;
            let step = match &self.source {
                Source::Over => return Ok(None),
                Source::Log(_) => self.read().await?,
                Source::Shared(number) => self.share(*number).await?,
                Source::Last(..) => self.read_last()?,
            };
            match step {
                Step::Tell(Followed::Output(record)) => {
                    self.wanted.set(record.channel, record.offset + record.data.len() as u64);
                    return Ok(Some(Followed::Output(record)));
                }
                Step::Tell(ended) => {
                    (self.source, self.watching) = (Source::Over, None);
                    return Ok(Some(ended));
                }
                Step::Again => {}
                Step::Wait => self.wait().await,
            }
        }
    }

    /// Reads to the end and keeps output up to `memory_cap` bytes per channel. What the log no longer has counts as
    /// dropped.
    pub async fn collect(mut self, memory_cap: usize) -> Result<(ProcessInfo, Completed)> {
        let (mut stdout, mut stderr) = (Capture::new(memory_cap), Capture::new(memory_cap));
        loop {
            let before = self.wanted;
            match self.next().await? {
                Some(Followed::Output(record)) => {
                    let capture = match record.channel {
                        Channel::Stdout => &mut stdout,
                        Channel::Stderr => &mut stderr,
                    };
                    capture.miss(record.offset.saturating_sub(before.get(record.channel)));
                    capture.push(&record.data);
                }
                Some(Followed::Ended(info)) => {
                    stdout.miss(info.log.stdout.saturating_sub(before.stdout));
                    stderr.miss(info.log.stderr.saturating_sub(before.stderr));
                    let exit = info.exit.clone();
                    let exit = exit.unwrap_or_else(|| Exit::unseen(Reason::Lost, Duration::ZERO));
                    let (stdout, stderr) = (stdout.finish(true), stderr.finish(true));
                    return Ok((info, Completed::new(exit, stdout, stderr)));
                }
                None => return Err(Error::process_not_found(&self.process)),
            }
        }
    }

    /// Reads the log; at its end, goes over to what the attendant shares.
    async fn read(&mut self) -> Result<Step> {
        if self.watching.is_none() {
            let attended = self.inner.attended.get(&self.process);
            self.watching = attended.map(Watching::new);
        }
        // A read of at most one record, from a file that was just written: quicker than handing it to another thread.
        if let Some(record) = self.read_log()? {
            return Ok(Step::Tell(Followed::Output(record)));
        }
        let Some(watching) = &mut self.watching else { return self.look().await };
        if watching.attended.keeps(watching.mark) {
            self.source = Source::Shared(watching.mark);
        } else {
            watching.mark = watching.attended.next();
        }
        Ok(Step::Again)
    }

    fn read_log(&mut self) -> Result<Option<Record>> {
        let failed = |source| Error::state("read", &self.directory, source);
        let Source::Log(reader) = &mut self.source else { return Ok(None) };
        let reader = match reader {
            Some(reader) => reader,
            none => none.insert(
                LogReader::resume(&self.directory, self.wanted, self.place).map_err(failed)?,
            ),
        };
        let record = reader.next_record().map_err(failed)?;
        self.place = reader.place().or(self.place);
        Ok(record)
    }

    /// Nobody in this program attends: looks whether the process has ended, or can be attended to.
    async fn look(&mut self) -> Result<Step> {
        let record = self.inner.store.process(&self.process).await?;
        let record = record.ok_or_else(|| Error::process_not_found(&self.process))?;
        if record.finished_at.is_some() {
            let info = info(&self.inner, record);
            let reader = LogReader::resume(&self.directory, self.wanted, self.place)
                .map_err(|source| Error::state("read", &self.directory, source))?;
            self.source = Source::Last(reader, Box::new(info));
            return Ok(Step::Again);
        }
        match attend(&self.inner, &record).await {
            Ok(Some(_)) => Ok(Step::Again),
            Ok(None) => Ok(Step::Wait),
            // Whoever follows only reads; what keeps it from being attended to shows in the sandbox.
            Err(error) => {
                tracing::debug!(%error, process = %self.process, "nobody attends to a process");
                Ok(Step::Wait)
            }
        }
    }

    async fn share(&mut self, number: u64) -> Result<Step> {
        let Some(watching) = &mut self.watching else { return Ok(self.back_to_the_log()) };
        // Both before looking at the records: what happens after this wakes.
        let standing = *watching.standing.borrow_and_update();
        watching.written.mark_unchanged();
        match watching.attended.record(number) {
            Next::Record(kept) => {
                self.source = Source::Shared(number + 1);
                self.place = kept.end.or(self.place);
                let told = unknown(kept.record, self.wanted);
                Ok(told.map_or(Step::Again, |record| Step::Tell(Followed::Output(record))))
            }
            Next::Lapsed => Ok(self.back_to_the_log()),
            Next::NotYet => match standing {
                Standing::Attended => Ok(Step::Wait),
                Standing::Left => {
                    self.watching = None;
                    Ok(self.back_to_the_log())
                }
                Standing::Ended => {
                    let record = self.inner.store.process(&self.process).await?;
                    let record = record.ok_or_else(|| Error::process_not_found(&self.process))?;
                    Ok(Step::Tell(Followed::Ended(info(&self.inner, record))))
                }
            },
        }
    }

    fn back_to_the_log(&mut self) -> Step {
        self.source = Source::Log(None);
        if let Some(watching) = &mut self.watching {
            watching.mark = watching.attended.next();
        }
        Step::Again
    }

    fn read_last(&mut self) -> Result<Step> {
        let Source::Last(reader, info) = &mut self.source else { return Ok(Step::Again) };
        let record =
            reader.next_record().map_err(|source| Error::state("read", &self.directory, source))?;
        Ok(Step::Tell(match record {
            Some(record) => Followed::Output(record),
            None => Followed::Ended((**info).clone()),
        }))
    }

    async fn wait(&mut self) {
        match &mut self.watching {
            // An error would mean that the attendant is gone, which the next look tells.
            Some(watching) => tokio::select! {
                _ = watching.written.changed() => {}
                _ = watching.standing.changed() => {}
            },
            None => tokio::time::sleep(POLL).await,
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (process, wanted) = (&self.process, &self.wanted);
        f.debug_struct("Follower")
            .field("process", process)
            .field("wanted", wanted)
            .finish_non_exhaustive()
    }
}

impl Watching {
    fn new(attended: Arc<Attended>) -> Self {
        // First the receiver: from then on records are kept.
        let written = attended.written();
        Self { mark: attended.next(), standing: attended.standing(), written, attended }
    }
}

/// What of a record has not been told yet.
fn unknown(mut record: Record, wanted: Offsets) -> Option<Record> {
    let known = wanted.get(record.channel).saturating_sub(record.offset);
    let known = usize::try_from(known).ok().filter(|known| *known < record.data.len())?;
    record.data.advance(known);
    record.offset += known as u64;
    Some(record)
}
