//! The audit log: one JSON line per refusal, appended whole.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use belljar_policy::SandboxId;
use belljar_protocol::v1;
use serde::Serialize;

use crate::time::now_ms;

/// Lines that one connection to a sandbox may cause. A workload that asks for denied programs in a loop must not fill
/// the disk; the last line says that more came.
const MAX_PER_CONNECTION: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
}

/// What one connection may still write.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicU32);

#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970.
    time: i64,
    sandbox: &'a str,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Events before this one that nobody could take.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

impl Audit {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// A program outside the sandbox's profile was asked for.
    pub(crate) fn program_denied(
        &self,
        budget: &Budget,
        sandbox: &SandboxId,
        denied: &v1::ProgramDenied,
    ) {
        let used = budget.0.fetch_add(1, Ordering::Relaxed);
        let name = String::from_utf8_lossy(&denied.name);
        // Zero: the host itself asked for it.
        let pid = Some(denied.pid).filter(|pid| *pid != 0);
        let lost = Some(denied.lost_before).filter(|lost| *lost != 0);
        let sandbox = sandbox.as_str();
        let line = match used {
            0..MAX_PER_CONNECTION => Line {
                time: now_ms(),
                sandbox,
                event: "program-denied",
                name: Some(&name),
                pid,
                lost,
            },
            MAX_PER_CONNECTION => Line {
                time: now_ms(),
                sandbox,
                event: "events-suppressed",
                name: None,
                pid: None,
                lost: None,
            },
            _ => {
                budget.0.store(MAX_PER_CONNECTION + 1, Ordering::Relaxed);
                return;
            }
        };
        if let Err(error) = self.append(&line) {
            tracing::warn!(%error, path = %self.path.display(), "the audit log cannot be written");
        }
    }

    fn append(&self, line: &Line<'_>) -> std::io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        file.write_all(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_off_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let audit = Audit::new(directory.path().join("audit.jsonl"));
        let id = SandboxId::parse("n001abcdefgh").unwrap();
        let budget = Budget::default();
        for _ in 0..MAX_PER_CONNECTION + 50 {
            let name = b"curl\xff".to_vec();
            let denied = v1::ProgramDenied { name, pid: 7, ..v1::ProgramDenied::default() };
            audit.program_denied(&budget, &id, &denied);
        }
        let text = std::fs::read_to_string(directory.path().join("audit.jsonl")).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len() as u32, MAX_PER_CONNECTION + 1);
        assert_eq!(lines[0]["event"], "program-denied");
        assert_eq!(lines[0]["name"], "curl\u{fffd}");
        assert_eq!(lines[0]["pid"], 7);
        assert_eq!(lines.last().unwrap()["event"], "events-suppressed");
    }
}
