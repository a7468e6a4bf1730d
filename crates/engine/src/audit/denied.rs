//! What happens inside sandboxes and is put on record: programs that were asked for and denied.

use std::collections::BTreeMap;

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};
use belljar_protocol::v1;

use super::{AuditEntry, AuditLog};

impl AuditLog {
    /// A program outside the sandbox's profile was asked for.
    pub(crate) fn program_denied(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        denied: &v1::ProgramDenied,
    ) {
        let mut detail = BTreeMap::new();
        let name = String::from_utf8_lossy(&denied.name).into_owned();
        detail.insert("name".to_owned(), name);
        // Zero: the host itself asked for it.
        if denied.pid != 0 {
            detail.insert("pid".to_owned(), denied.pid.to_string());
        }
        // Events before this one that never came here, unlike those that the log left out.
        if denied.lost_before != 0 {
            detail.insert("unreported".to_owned(), denied.lost_before.to_string());
        }
        let entry = AuditEntry {
            actor: format!("sandbox:{sandbox}"),
            action: "program.start".to_owned(),
            outcome: Code::ProgramDenied.as_str().to_owned(),
            detail,
            ..AuditEntry::default()
        };
        self.record_from_inside(sandbox, tenant, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AuditQuery;
    use crate::audit::share::SAVED_UP;

    #[tokio::test]
    async fn a_flood_is_cut_off_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let audit = AuditLog::of(directory.path());
        let id = SandboxId::parse("n001abcdefgh").unwrap();
        let flood = 2 * SAVED_UP as usize;
        for _ in 0..flood {
            let name = b"curl\xff".to_vec();
            let denied = v1::ProgramDenied { name, pid: 7, ..v1::ProgramDenied::default() };
            audit.program_denied(&TenantId::default(), &id, &denied);
        }
        audit.forget(&id);
        let mut reader = audit.query(AuditQuery::default()).await;
        let mut records = Vec::new();
        while let Some(record) = reader.next().await.unwrap() {
            records.push(record.entry);
        }
        assert!(records.len() < flood, "{}", records.len());
        assert_eq!(records[0].outcome, "program-denied");
        assert_eq!(records[0].detail["name"], "curl\u{fffd}");
        assert_eq!(records[0].detail["pid"], "7");
        let last = records.last().unwrap();
        assert!(last.action == "audit.lost" || last.detail.contains_key("lost"), "{last:?}");
    }
}
