//! What a probe found: forbidden attempts, allowed twins, and facts.
//!
//! The probe writes it as one line of JSON and the tests read it back, so both directions are here. Outcomes are
//! classes of kernel answers; whether an outcome is good is decided by [`Report::violations`] or by the test.

use std::fmt;
use std::io;

use serde_json::{Map, Value, json};

use crate::errno;
use crate::raw::Ended;

/// How one action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It worked.
    Allowed,
    /// The kernel refused it: not permitted, not implemented, read-only, no such protocol family.
    Denied,
    /// What it needs does not exist here.
    Absent,
    /// The attempting process was killed for it.
    Killed,
    /// Nobody answers at that address.
    Unreachable,
    /// The kernel went as far as looking at the arguments, so nothing stood in the way of the call itself.
    Reached,
    /// It did not end within its deadline.
    Hung,
    /// The probe could not even try.
    NotTried,
}

impl Outcome {
    pub const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Denied,
        Self::Absent,
        Self::Killed,
        Self::Unreachable,
        Self::Reached,
        Self::Hung,
        Self::NotTried,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Absent => "absent",
            Self::Killed => "killed",
            Self::Unreachable => "unreachable",
            Self::Reached => "reached",
            Self::Hung => "hung",
            Self::NotTried => "not-tried",
        }
    }

    /// Whether a wall stood where a forbidden action was tried.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Denied | Self::Absent | Self::Killed | Self::Unreachable)
    }

    fn of_errno(number: i32) -> Self {
        match number {
            libc::EPERM
            | libc::EACCES
            | libc::ENOSYS
            | libc::EROFS
            | libc::EAFNOSUPPORT
            | libc::EPROTONOSUPPORT
            | libc::ESOCKTNOSUPPORT => Self::Denied,
            libc::ENOENT | libc::ENXIO | libc::ENODEV | libc::ENOTDIR | libc::ESRCH => Self::Absent,
            libc::ECONNREFUSED
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EADDRNOTAVAIL
            | libc::ETIMEDOUT => Self::Unreachable,
            _ => Self::Reached,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// One action and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub action: String,
    pub outcome: Outcome,
    /// The kernel's error number, where it gave one.
    pub number: Option<i32>,
    /// The signal that killed the attempting process, where one did.
    pub signal: Option<i32>,
}

/// The whole of what one probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub probe: String,
    pub attempts: Vec<Attempt>,
    pub twin: Vec<Attempt>,
    pub facts: Map<String, Value>,
}

impl Report {
    #[must_use]
    pub fn new(probe: &str) -> Self {
        let (attempts, twin, facts) = Default::default();
        Self { probe: probe.to_owned(), attempts, twin, facts }
    }

    /// Records a forbidden action.
    pub fn attempt(&mut self, action: impl Into<String>, ended: impl Into<Ended>) {
        self.attempts.push(Attempt::new(action.into(), ended.into()));
    }

    /// Records a harmless action of the same kind.
    pub fn twin(&mut self, action: impl Into<String>, ended: impl Into<Ended>) {
        self.twin.push(Attempt::new(action.into(), ended.into()));
    }

    pub fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Every attempt that met no wall, every twin that did, and an empty side: a probe without a working twin proved
    /// nothing.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.attempts.is_empty() {
            found.push(format!("{}: nothing was attempted", self.probe));
        }
        if self.twin.is_empty() {
            found.push(format!("{}: there is no twin", self.probe));
        }
        let open = self.attempts.iter().filter(|attempt| !attempt.outcome.is_refusal());
        found.extend(open.map(|attempt| format!("{}: no wall: {attempt}", self.probe)));
        let broken = self.twin.iter().filter(|twin| twin.outcome != Outcome::Allowed);
        found.extend(broken.map(|twin| format!("{}: twin broken: {twin}", self.probe)));
        found
    }

    /// The attempt or twin with this action.
    #[must_use]
    pub fn find(&self, action: &str) -> Option<&Attempt> {
        self.attempts.iter().chain(&self.twin).find(|attempt| attempt.action == action)
    }

    /// A fact that is a whole number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.facts.get(name)?.as_u64()
    }

    /// Reads the last line of `text` that is a report; a probe may print before it.
    ///
    /// # Errors
    /// When no line is one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = text
            .lines()
            .rev()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|value| value.get("probe").is_some())
            .ok_or_else(|| format!("no report in {text:?}"))?;
        let attempts = |side: &str| -> Result<Vec<Attempt>, String> {
            let list = value[side].as_array().ok_or_else(|| format!("no `{side}` in {value}"))?;
            list.iter()
                .map(|item| {
                    Attempt::from_json(item).ok_or_else(|| format!("not an attempt: {item}"))
                })
                .collect()
        };
        Ok(Self {
            probe: value["probe"].as_str().unwrap_or_default().to_owned(),
            attempts: attempts("attempts")?,
            twin: attempts("twin")?,
            facts: value["facts"].as_object().cloned().unwrap_or_default(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |list: &[Attempt]| list.iter().map(Attempt::to_json).collect::<Vec<_>>();
        let value = json!({
            "probe": self.probe,
            "attempts": side(&self.attempts),
            "twin": side(&self.twin),
            "facts": self.facts,
        });
        write!(f, "{value}")
    }
}

impl Attempt {
    fn new(action: String, ended: Ended) -> Self {
        let (outcome, number, signal) = match ended {
            Ended::Returned(_) => (Outcome::Allowed, None, None),
            Ended::Failed(number) => (Outcome::of_errno(number), Some(number), None),
            Ended::Killed(libc::SIGALRM) => (Outcome::Hung, None, Some(libc::SIGALRM)),
            Ended::Killed(signal) => (Outcome::Killed, None, Some(signal)),
            Ended::NotStarted(number) => (Outcome::NotTried, Some(number), None),
        };
        Self { action, outcome, number, signal }
    }

    fn to_json(&self) -> Value {
        let mut value = json!({ "action": self.action, "outcome": self.outcome.as_str() });
        if let Some(number) = self.number {
            value["errno"] = errno::name(number).into();
            value["number"] = number.into();
        }
        if let Some(signal) = self.signal {
            value["signal"] = signal.into();
        }
        value
    }

    fn from_json(value: &Value) -> Option<Self> {
        let small = |name: &str| value[name].as_i64().and_then(|number| i32::try_from(number).ok());
        Some(Self {
            action: value["action"].as_str()?.to_owned(),
            outcome: Outcome::parse(value["outcome"].as_str()?)?,
            number: small("number"),
            signal: small("signal"),
        })
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.action, self.outcome.as_str())?;
        if let Some(number) = self.number {
            write!(f, " ({})", errno::name(number))?;
        }
        if let Some(signal) = self.signal {
            write!(f, " (signal {signal})")?;
        }
        Ok(())
    }
}

impl<T> From<io::Result<T>> for Ended {
    fn from(result: io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::Returned(0),
            Err(error) => Self::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let mut report = Report::new("example");
        report.attempt("mount(proc)", Ended::Failed(libc::EPERM));
        report.attempt("entry", Ended::Killed(libc::SIGSYS));
        report.twin("stat(/proc)", Ended::Returned(0));
        report.fact("uid", 1000);
        let line = report.to_string();
        assert!(line.contains(r#""errno":"EPERM""#), "{line}");
        assert_eq!(Report::parse(&format!("noise\n{line}\n")), Ok(report));
    }

    #[test]
    fn only_walls_and_working_twins_pass() {
        let cases = [
            (Ended::Failed(libc::EPERM), Ended::Returned(0), 0),
            (Ended::Failed(libc::ENOENT), Ended::Returned(0), 0),
            (Ended::Killed(libc::SIGSYS), Ended::Returned(0), 0),
            (Ended::Returned(0), Ended::Returned(0), 1),
            // The kernel looked at the arguments: the call itself was open.
            (Ended::Failed(libc::EFAULT), Ended::Returned(0), 1),
            (Ended::Failed(libc::EPERM), Ended::Failed(libc::EPERM), 1),
            (Ended::Killed(libc::SIGALRM), Ended::Returned(0), 1),
            (Ended::NotStarted(libc::EAGAIN), Ended::NotStarted(libc::EAGAIN), 2),
        ];
        for (attempt, twin, expected) in cases {
            let mut report = Report::new("example");
            report.attempt("attempt", attempt);
            report.twin("twin", twin);
            assert_eq!(report.violations().len(), expected, "{report}");
        }
    }

    #[test]
    fn an_empty_report_proves_nothing() {
        assert_eq!(Report::new("empty").violations().len(), 2);
    }
}
