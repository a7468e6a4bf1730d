//! What happens inside sandboxes and is put on record: programs that were asked for and denied.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};
use belljar_protocol::v1;

use super::{AuditEntry, AuditLog};

/// Records that one connection to a sandbox may cause. A workload that asks for denied programs in a loop must not fill
/// the log; the last record says that more came.
const MAX_PER_CONNECTION: u32 = 1000;

/// What one connection may still write.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicU32);

impl AuditLog {
    /// A program outside the sandbox's profile was asked for.
    pub(crate) fn program_denied(
        &self,
        budget: &Budget,
        tenant: &TenantId,
        sandbox: &SandboxId,
        denied: &v1::ProgramDenied,
    ) {
        let used = budget.0.fetch_add(1, Ordering::Relaxed);
        let mut detail = BTreeMap::new();
        match used {
            0..MAX_PER_CONNECTION => {
                let name = String::from_utf8_lossy(&denied.name).into_owned();
                detail.insert("name".to_owned(), name);
                // Zero: the host itself asked for it.
                if denied.pid != 0 {
                    detail.insert("pid".to_owned(), denied.pid.to_string());
                }
                // Events before this one that nobody could take.
                if denied.lost_before != 0 {
                    detail.insert("lost".to_owned(), denied.lost_before.to_string());
                }
            }
            MAX_PER_CONNECTION => {
                detail.insert("more".to_owned(), "not recorded".to_owned());
            }
            _ => {
                budget.0.store(MAX_PER_CONNECTION + 1, Ordering::Relaxed);
                return;
            }
        }
        self.record(AuditEntry {
            actor: format!("sandbox:{sandbox}"),
            tenant: tenant.to_string(),
            action: "program.start".to_owned(),
            sandbox: Some(sandbox.as_str().to_owned()),
            outcome: Code::ProgramDenied.as_str().to_owned(),
            detail,
            ..AuditEntry::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AuditQuery;

    #[tokio::test]
    async fn a_flood_is_cut_off_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let audit = AuditLog::of(directory.path());
        let id = SandboxId::parse("n001abcdefgh").unwrap();
        let budget = Budget::default();
        for _ in 0..MAX_PER_CONNECTION + 50 {
            let name = b"curl\xff".to_vec();
            let denied = v1::ProgramDenied { name, pid: 7, ..v1::ProgramDenied::default() };
            audit.program_denied(&budget, &TenantId::default(), &id, &denied);
        }
        let mut reader = audit.query(AuditQuery::default()).await;
        let mut records = Vec::new();
        while let Some(record) = reader.next().await.unwrap() {
            records.push(record.entry);
        }
        assert_eq!(records.len() as u32, MAX_PER_CONNECTION + 1);
        assert_eq!(records[0].outcome, "program-denied");
        assert_eq!(records[0].detail["name"], "curl\u{fffd}");
        assert_eq!(records[0].detail["pid"], "7");
        assert_eq!(records.last().unwrap().detail["more"], "not recorded");
    }
}
