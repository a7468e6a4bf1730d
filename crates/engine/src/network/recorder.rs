//! What comes of flows, requests and questions: one record each in the audit log and in the sandbox's own network log.
//!
//! Recording never waits: both logs are written by threads of their own behind bounded queues. A sandbox that makes
//! decisions necessary in a loop fills its own log, which is cut, and at most its share of the audit log.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_codes::Code;
use belljar_egress::{Identity, Record, Recorder, Stage, Verdict};
use belljar_policy::SandboxId;
use belljar_policy::document::Transport;

use super::log::{Logs, NetworkEntry};
use crate::{AuditEntry, AuditLog};

/// Writes down every decision.
pub(crate) struct Writer {
    audit: AuditLog,
    pub(crate) logs: Logs,
    counts: [AtomicU64; 4],
}

impl Writer {
    pub(crate) fn new(audit: AuditLog, directory: PathBuf) -> Self {
        Self { audit, logs: Logs::new(directory), counts: [const { AtomicU64::new(0) }; 4] }
    }

    /// Forgets a sandbox that is gone. Its log stays.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.audit.forget(id);
    }

    /// How often flows were allowed, flows denied, names denied, requests denied.
    pub(crate) fn counts(&self) -> [u64; 4] {
        std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed))
    }
}

impl Recorder for Writer {
    fn record(&self, identity: &Identity, record: Record) {
        let at = match (record.verdict, record.stage) {
            (Verdict::Allow, _) => 0,
            (Verdict::Deny, Stage::Flow) => 1,
            (Verdict::Deny, Stage::Dns) => 2,
            (Verdict::Deny, Stage::Request) => 3,
        };
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let entry = NetworkEntry::from(record);
        let audited = audit_entry(identity, &entry);
        self.audit.record_from_inside(&identity.sandbox, &identity.tenant, audited);
        self.logs.write(&identity.sandbox, entry);
    }
}

fn audit_entry(identity: &Identity, entry: &NetworkEntry) -> AuditEntry {
    let mut detail = BTreeMap::new();
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            detail.insert(key.to_owned(), value);
        }
    };
    add("host", entry.host.clone());
    add("address", entry.address.map(|address| address.to_string()));
    add("port", (entry.port != 0).then(|| entry.port.to_string()));
    add("transport", Some(entry.transport.clone()));
    add(
        "request",
        entry
            .method
            .as_ref()
            .map(|method| format!("{method} {}", entry.path.as_deref().unwrap_or_default())),
    );
    add("sni", entry.sni.clone().filter(|sni| Some(sni) != entry.host.as_ref()));
    add("rule", entry.rule.clone());
    add("reason", Some(entry.reason.clone()));
    let bytes = entry.bytes_up != 0 || entry.bytes_down != 0;
    add("bytes_up", bytes.then(|| entry.bytes_up.to_string()));
    add("bytes_down", bytes.then(|| entry.bytes_down.to_string()));
    add("duration_ms", bytes.then(|| entry.duration.as_millis().to_string()));
    let owner = entry.owner.as_ref();
    add("pid", owner.map(|owner| owner.pid.to_string()));
    add("program", owner.map(|owner| owner.program.clone()));
    add("process", owner.and_then(|owner| owner.process.as_ref()).map(ToString::to_string));
    let outcome = if entry.denied { Code::NetworkDenied.as_str() } else { "ok" };
    AuditEntry {
        actor: format!("sandbox:{}", identity.sandbox),
        action: format!("network.{}", entry.stage),
        outcome: outcome.to_owned(),
        detail,
        ..AuditEntry::default()
    }
}

impl From<Record> for NetworkEntry {
    fn from(record: Record) -> Self {
        Self {
            at: record.at,
            stage: record.stage.as_str().to_owned(),
            transport: match record.transport {
                Transport::Tcp => "tcp",
                Transport::Udp => "udp",
            }
            .to_owned(),
            host: record.host,
            address: record.address,
            port: record.port,
            sni: record.sni,
            method: record.method,
            path: record.path,
            rule: record.rule,
            denied: record.verdict == Verdict::Deny,
            reason: record.reason.as_str().to_owned(),
            bytes_up: record.bytes_up,
            bytes_down: record.bytes_down,
            duration: record.duration.min(Duration::from_secs(u32::MAX.into())),
            owner: record.owner,
        }
    }
}
