//! How a process ended, and why.

use std::time::Duration;

use belljar_backend::Counters;
use belljar_codes::Code;
use belljar_protocol::v1;

use crate::log::Offsets;
use crate::store::{ExitRecord, ProcessStatus};

const SIGKILL: i32 = 9;

/// A sandbox disk with less than this left cannot take another write of any size worth making.
const DISK_FULL_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// Why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Exited,
    Signalled,
    TimedOut,
    Oom,
    Cancelled,
    /// The sandbox went away under it.
    Lost,
}

impl Reason {
    pub(crate) const ALL: [Self; 6] =
        [Self::Exited, Self::Signalled, Self::TimedOut, Self::Oom, Self::Cancelled, Self::Lost];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::TimedOut => "timed_out",
            Self::Oom => "oom",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
    pub peak_rss_bytes: u64,
    /// From and to disks, as far as the kernel counts it.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub status: ExitStatus,
    pub reason: Reason,
    pub timed_out: bool,
    /// Limits that were reached while it ran: `Oom`, `TimedOut`, `PidsExhausted`, `DiskFull`, `OutputTruncated`.
    pub limits_hit: Vec<Code>,
    pub duration: Duration,
    pub usage: Usage,
}

impl Exit {
    /// The exit code as a shell would report it: 124 for a timeout, 128+n for signal n, 137 for out of memory, 125 when
    /// the sandbox was lost.
    #[must_use]
    pub fn code(&self) -> i32 {
        match (self.reason, self.status) {
            (Reason::TimedOut, _) => 124,
            (Reason::Oom, _) => 128 + SIGKILL,
            (Reason::Lost, _) => 125,
            (_, ExitStatus::Code(code)) => code,
            (_, ExitStatus::Signal(signal)) => 128 + signal,
        }
    }

    #[must_use]
    pub fn success(&self) -> bool {
        self.reason == Reason::Exited && self.status == ExitStatus::Code(0)
    }

    /// The end of a process whose end nobody saw.
    pub(crate) fn unseen(reason: Reason, duration: Duration) -> Self {
        let limits_hit = match reason {
            Reason::TimedOut => vec![Code::TimedOut],
            Reason::Oom => vec![Code::Oom],
            _ => Vec::new(),
        };
        Self {
            status: ExitStatus::Signal(SIGKILL),
            reason,
            timed_out: reason == Reason::TimedOut,
            limits_hit,
            duration,
            usage: Usage::default(),
        }
    }

    pub(crate) fn stored_status(&self) -> ProcessStatus {
        match self.reason {
            Reason::Lost => ProcessStatus::Lost,
            Reason::Cancelled => ProcessStatus::Cancelled,
            _ if self.success() => ProcessStatus::Succeeded,
            _ => ProcessStatus::Failed,
        }
    }

    pub(crate) fn to_record(&self) -> ExitRecord {
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        ExitRecord {
            code: match self.status {
                ExitStatus::Code(code) => Some(code),
                ExitStatus::Signal(_) => None,
            },
            signal: match self.status {
                ExitStatus::Code(_) => None,
                ExitStatus::Signal(signal) => Some(signal),
            },
            reason: self.reason.as_str().to_owned(),
            limits_hit: self.limits_hit.iter().map(|code| code.as_str().to_owned()).collect(),
            duration_us: us(self.duration),
            user_us: us(self.usage.user),
            system_us: us(self.usage.system),
            peak_rss_bytes: self.usage.peak_rss_bytes,
            read_bytes: self.usage.read_bytes,
            written_bytes: self.usage.written_bytes,
            log_end: None,
        }
    }

    pub(crate) fn from_record(record: &ExitRecord) -> Self {
        let reason = Reason::ALL.into_iter().find(|reason| reason.as_str() == record.reason);
        let reason = reason.unwrap_or(Reason::Lost);
        let code = |word: &String| Code::ALL.iter().copied().find(|code| code.as_str() == word);
        Self {
            status: match (record.code, record.signal) {
                (Some(code), _) => ExitStatus::Code(code),
                (None, signal) => ExitStatus::Signal(signal.unwrap_or(SIGKILL)),
            },
            reason,
            timed_out: reason == Reason::TimedOut,
            limits_hit: record.limits_hit.iter().filter_map(code).collect(),
            duration: Duration::from_micros(record.duration_us),
            usage: Usage {
                user: Duration::from_micros(record.user_us),
                system: Duration::from_micros(record.system_us),
                peak_rss_bytes: record.peak_rss_bytes,
                read_bytes: record.read_bytes,
                written_bytes: record.written_bytes,
            },
        }
    }
}

impl ExitRecord {
    pub(crate) fn log_end(&self) -> Option<Offsets> {
        self.log_end.map(|(stdout, stderr)| Offsets { stdout, stderr })
    }
}

/// How much work a command that ended well may have done without having had the time to fill its memory, its disk or its
/// process table. What counts is its work: where many run at once most of a command's time is waiting for a processor.
const LITTLE_WORK: Duration = Duration::from_millis(2);

/// The same for whoever it started and did not wait for, whose work is not known, if they have closed its output.
const LITTLE_TIME: Duration = Duration::from_millis(20);

/// Whether the kernel's counters need not be read.
pub(super) fn is_too_short_for_limits(exited: &v1::Exited, duration: Duration) -> bool {
    let worked = Duration::from_micros(exited.user_us.saturating_add(exited.system_us));
    let well = exited.status == Some(v1::exited::Status::Code(0));
    well && worked < LITTLE_WORK && duration < LITTLE_TIME
}

/// Decides why a process ended from what the agent saw and what the kernel counted on the host's side meanwhile.
///
/// `counted` is before and after; without it only the agent speaks.
pub(crate) fn classify(
    exited: &v1::Exited,
    counted: Option<(Counters, Counters)>,
    duration: Duration,
) -> Exit {
    let status = match exited.status {
        Some(v1::exited::Status::Code(code)) => ExitStatus::Code(code),
        Some(v1::exited::Status::Signal(signal)) => ExitStatus::Signal(signal),
        // An agent that does not say counts as killed: never as success.
        None => ExitStatus::Signal(SIGKILL),
    };
    let oom_counted = counted.is_some_and(|(before, after)| after.oom_kills > before.oom_kills);
    // Shells report a killed child as 137.
    let killed = matches!(status, ExitStatus::Signal(SIGKILL) | ExitStatus::Code(137));
    let reason = if exited.timed_out {
        Reason::TimedOut
    } else if exited.memory_exceeded || (oom_counted && killed) {
        Reason::Oom
    } else if exited.cancelled {
        Reason::Cancelled
    } else {
        match status {
            ExitStatus::Code(_) => Reason::Exited,
            ExitStatus::Signal(_) => Reason::Signalled,
        }
    };

    let mut limits_hit = Vec::new();
    if reason == Reason::Oom || oom_counted {
        limits_hit.push(Code::Oom);
    }
    if exited.timed_out {
        limits_hit.push(Code::TimedOut);
    }
    let pids_counted =
        counted.is_some_and(|(before, after)| after.pids_refused > before.pids_refused);
    if exited.pids_exhausted || pids_counted {
        limits_hit.push(Code::PidsExhausted);
    }
    if let Some((_, after)) = counted {
        let no_bytes = after.disk_free_bytes.is_some_and(|free| free < DISK_FULL_BYTES);
        if no_bytes || after.disk_free_inodes == Some(0) {
            limits_hit.push(Code::DiskFull);
        }
    }
    Exit {
        status,
        reason,
        timed_out: exited.timed_out,
        limits_hit,
        duration,
        usage: Usage {
            user: Duration::from_micros(exited.user_us),
            system: Duration::from_micros(exited.system_us),
            peak_rss_bytes: exited.peak_rss_bytes,
            read_bytes: exited.read_bytes,
            written_bytes: exited.written_bytes,
        },
    }
}

#[cfg(test)]
mod tests {
    use v1::exited::Status;

    use super::*;

    fn check(exited: v1::Exited, after: Counters, reason: Reason, limits: &[Code], code: i32) {
        let exit = classify(&exited, Some((Counters::default(), after)), Duration::ZERO);
        assert_eq!((exit.reason, &exit.limits_hit[..], exit.code()), (reason, limits, code));
        let again = Exit::from_record(&exit.to_record());
        assert_eq!(again, exit);
    }

    fn exited(status: Status) -> v1::Exited {
        v1::Exited { status: Some(status), ..v1::Exited::default() }
    }

    #[test]
    fn counters_are_read_unless_there_was_no_time_to_hit_a_limit() {
        let check = |code: i32, user_us: u64, system_us: u64, ms: u64, expected: bool| {
            let status = Some(Status::Code(code));
            let exited = v1::Exited { status, user_us, system_us, ..v1::Exited::default() };
            let duration = Duration::from_millis(ms);
            assert_eq!(is_too_short_for_limits(&exited, duration), expected, "{exited:?} {ms}");
        };
        check(0, 300, 300, 1, true);
        check(0, 300, 300, 19, true);
        check(0, 300, 300, 20, false);
        check(0, 1200, 900, 3, false);
        check(0, u64::MAX, u64::MAX, 3, false);
        check(1, 300, 300, 1, false);
    }

    #[test]
    fn reasons() {
        let none = Counters::default();
        let oom = Counters { oom_kills: 1, ..none };
        let pids = Counters { pids_refused: 3, ..none };
        let disk = Counters { disk_free_bytes: Some(0), ..none };
        let inodes = Counters { disk_free_inodes: Some(0), ..none };
        let room = Counters { disk_free_bytes: Some(1 << 30), disk_free_inodes: Some(9), ..none };

        check(exited(Status::Code(0)), none, Reason::Exited, &[], 0);
        check(exited(Status::Code(7)), room, Reason::Exited, &[], 7);
        check(exited(Status::Signal(11)), none, Reason::Signalled, &[], 139);
        check(exited(Status::Signal(9)), oom, Reason::Oom, &[Code::Oom], 137);
        check(exited(Status::Code(137)), oom, Reason::Oom, &[Code::Oom], 137);
        // A child died of memory, the command went on: worth knowing, but not how the command ended.
        check(exited(Status::Code(1)), oom, Reason::Exited, &[Code::Oom], 1);
        check(exited(Status::Code(1)), pids, Reason::Exited, &[Code::PidsExhausted], 1);
        let seen = v1::Exited { pids_exhausted: true, ..exited(Status::Code(2)) };
        check(seen, none, Reason::Exited, &[Code::PidsExhausted], 2);
        check(exited(Status::Code(1)), disk, Reason::Exited, &[Code::DiskFull], 1);
        check(exited(Status::Code(1)), inodes, Reason::Exited, &[Code::DiskFull], 1);
        check(v1::Exited::default(), none, Reason::Signalled, &[], 137);

        let timed_out = v1::Exited { timed_out: true, ..exited(Status::Signal(9)) };
        check(timed_out.clone(), none, Reason::TimedOut, &[Code::TimedOut], 124);
        check(timed_out, oom, Reason::TimedOut, &[Code::Oom, Code::TimedOut], 124);
        let cancelled = v1::Exited { cancelled: true, ..exited(Status::Signal(15)) };
        check(cancelled, none, Reason::Cancelled, &[], 143);
        let watched = v1::Exited { memory_exceeded: true, ..exited(Status::Signal(9)) };
        check(watched, none, Reason::Oom, &[Code::Oom], 137);
    }

    #[test]
    fn only_a_clean_end_is_success() {
        let cancelled = v1::Exited { cancelled: true, ..exited(Status::Code(0)) };
        assert!(!classify(&cancelled, None, Duration::ZERO).success());
        assert!(classify(&exited(Status::Code(0)), None, Duration::ZERO).success());
        assert_eq!(Exit::unseen(Reason::Lost, Duration::ZERO).code(), 125);
        assert_eq!(Exit::unseen(Reason::TimedOut, Duration::ZERO).code(), 124);
    }
}
