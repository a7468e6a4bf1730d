//! The audit log: what is put into it, and what can be asked of it.

use belljar_api::v1;
use belljar_engine::{AuditEntry, AuditQuery, AuditReader, AuditRecord, ProcessId, SandboxId};
use futures_util::{Stream, stream};

use super::{Answers, Api};
use crate::action::{self, Action, Target};
use crate::call::Call;
use crate::convert::{system_time, timestamp};
use crate::problem::{Problem, Result};

impl Api {
    pub async fn query_audit(
        &self,
        call: &Call,
        request: v1::QueryAuditRequest,
    ) -> Result<Answers<v1::AuditRecord>> {
        let work = async {
            let sandbox = match &request.sandbox {
                // Records outlive sandboxes, so an id need not be known any more.
                Some(reference) => Some(match self.engine(call).identify(reference).await {
                    Ok(id) => id.as_str().to_owned(),
                    Err(_) => reference.clone(),
                }),
                None => None,
            };
            let query = AuditQuery {
                sandbox,
                actor: request.actor.clone(),
                action: request.action.clone(),
                outcome: request.outcome.clone(),
                verdict: request.verdict.clone(),
                rule: request.rule.clone(),
                policy: request.policy.clone(),
                since: request.since.as_ref().map(system_time),
                until: request.until.as_ref().map(system_time),
                last: request.last,
                follow: request.follow,
            };
            let reader = self.engine.audit().query(query).await;
            Ok(self.until_stopped(records(reader)))
        };
        self.act(call, action::QUERY_AUDIT, "", work).await
    }

    /// Puts what was done on record.
    pub(super) fn put_on_record(&self, call: &Call, action: Action, target: &str, outcome: &str) {
        let mut about = call.about();
        // What was not found has only the name that it was asked for by.
        let found = match action.target {
            Target::Process => named(&mut about.process, ProcessId::parse(target).is_ok(), target),
            Target::Sandbox => named(&mut about.sandbox, SandboxId::parse(target).is_ok(), target),
            Target::Other => false,
        };
        if !found && !target.is_empty() {
            about.detail.insert("target".to_owned(), target.to_owned());
        }
        self.engine.audit().record(AuditEntry {
            actor: call.caller.actor.clone(),
            tenant: about.tenant.unwrap_or_else(|| call.caller.tenant().to_string()),
            action: action.name.to_owned(),
            sandbox: about.sandbox,
            process: about.process,
            outcome: outcome.to_owned(),
            detail: about.detail,
            request_id: call.request_id.clone(),
        });
    }
}

/// Whether the target is what the record is about; an id that nothing was found by is.
fn named(about: &mut Option<String>, is_id: bool, target: &str) -> bool {
    if is_id && about.is_none() {
        *about = Some(target.to_owned());
    }
    about.as_deref() == Some(target)
}

fn records(reader: AuditReader) -> impl Stream<Item = Result<v1::AuditRecord>> + Send + 'static {
    stream::try_unfold(reader, async |mut reader| {
        let record = reader.next().await?;
        Ok::<_, Problem>(record.map(|record| (wire(record), reader)))
    })
}

fn wire(record: AuditRecord) -> v1::AuditRecord {
    let AuditRecord { seq, at, entry, previous: _, hash } = record;
    v1::AuditRecord {
        seq,
        at: Some(timestamp(at)),
        actor: entry.actor,
        tenant: entry.tenant,
        action: entry.action,
        sandbox_id: entry.sandbox,
        process_id: entry.process,
        outcome: entry.outcome,
        detail: entry.detail,
        request_id: entry.request_id,
        hash,
    }
}
