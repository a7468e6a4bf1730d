//! Flows that wait for somebody to allow them.
//!
//! What waits is bounded, for a sandbox and for a tenant: beyond that, nobody is asked and the answer is no. A flow whose client
//! goes away, or whose time is over, waits no longer. Where a program decides about connections of the sandbox, it is asked
//! too, and the first answer counts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use belljar_codes::Code;
use belljar_egress::{Approval, Approver, Asked, Connecting, Decider, Decision, Identity};
use belljar_policy::document::Transport;
use belljar_policy::{SandboxId, TenantId};
use tokio::sync::oneshot;

use crate::{AuditEntry, AuditLog, Error, Result, Scope, random};

/// What may wait.
const MAX_OF_SANDBOX: usize = 32;
const MAX_OF_TENANT: usize = 1024;

/// Something that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingApproval {
    pub id: String,
    pub sandbox: SandboxId,
    pub tenant: TenantId,
    pub host: String,
    pub address: Option<IpAddr>,
    pub port: u16,
    pub transport: String,
    /// Method and path.
    pub request: Option<(String, String)>,
    pub rule: Option<String>,
    pub asked_at: SystemTime,
    pub until: SystemTime,
}

/// What somebody says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    Once,
    /// Every flow of the sandbox to that host and port, as long as its doors stay open.
    Sandbox,
    /// The same, and it is kept with the sandbox.
    Always,
    Deny,
}

/// Everything that waits.
#[derive(Clone)]
pub(crate) struct Approvals {
    waiting: Arc<Mutex<BTreeMap<String, Waiting>>>,
    programs: Arc<dyn Decider>,
    audit: AuditLog,
}

struct Waiting {
    pending: PendingApproval,
    answer: oneshot::Sender<Approval>,
}

impl Approvals {
    pub(crate) fn new(programs: Arc<dyn Decider>, audit: AuditLog) -> Self {
        Self { waiting: Arc::default(), programs, audit }
    }

    /// What waits and is in scope, that which began first at the beginning.
    pub(crate) fn list(&self, scope: &Scope, sandbox: Option<&SandboxId>) -> Vec<PendingApproval> {
        let mut found: Vec<_> = self
            .lock()
            .values()
            .map(|waiting| &waiting.pending)
            .filter(|one| scope.sees(&one.tenant, &one.sandbox))
            .filter(|one| sandbox.is_none_or(|sandbox| one.sandbox == *sandbox))
            .cloned()
            .collect();
        found.sort_by_key(|one| one.asked_at);
        found
    }

    /// What waits under that name, if it is in scope.
    pub(crate) fn find(&self, scope: &Scope, id: &str) -> Result<PendingApproval> {
        let found = self.lock().get(id).map(|waiting| waiting.pending.clone());
        found.filter(|one| scope.sees(&one.tenant, &one.sandbox)).ok_or_else(|| not_waiting(id))
    }

    /// Answers for what waits.
    pub(crate) fn answer(&self, id: &str, answer: ApprovalAnswer) -> Result<()> {
        let waiting = self.lock().remove(id).ok_or_else(|| not_waiting(id))?;
        let approval = match answer {
            ApprovalAnswer::Once => Approval::Once,
            ApprovalAnswer::Sandbox => Approval::Sandbox,
            ApprovalAnswer::Always => Approval::Always,
            ApprovalAnswer::Deny => Approval::Deny,
        };
        waiting.answer.send(approval).map_err(|_| not_waiting(id))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_waiting(id: &str) -> Error {
    Error::new(
        Code::ApprovalNotFound,
        format!("nothing waits under `{}`", belljar_policy::shown(id)),
    )
    .with_remedy("`belljar approvals list` shows what waits; it may have been answered, or be over")
}

#[async_trait]
impl Approver for Approvals {
    async fn ask(&self, identity: &Identity, asked: &Asked) -> Approval {
        let id = random::token();
        let (sender, answer) = oneshot::channel();
        {
            let mut all = self.lock();
            let count = |is_counted: &dyn Fn(&PendingApproval) -> bool| {
                all.values().filter(|one| is_counted(&one.pending)).count()
            };
            if count(&|one| one.sandbox == identity.sandbox) >= MAX_OF_SANDBOX
                || count(&|one| one.tenant == identity.tenant) >= MAX_OF_TENANT
            {
                return Approval::Deny;
            }
            let pending = pending(id.clone(), identity, asked);
            all.insert(id.clone(), Waiting { pending, answer: sender });
        }
        let _gone = Forget { approvals: self, id: &id };
        let answered = async {
            tokio::select! {
                answer = answer => answer.unwrap_or(Approval::Deny),
                answer = self.by_program(identity, asked) => answer,
            }
        };
        tokio::time::timeout(asked.wait, answered).await.unwrap_or(Approval::Deny)
    }
}

impl Approvals {
    /// What a program says, if one decides here. It sees connections; requests that rules ask about wait for people.
    async fn by_program(&self, identity: &Identity, asked: &Asked) -> Approval {
        if asked.request.is_some() || !self.programs.is_there(identity) {
            return std::future::pending().await;
        }
        let connecting = Connecting {
            transport: asked.transport,
            source: asked.source,
            address: asked.address,
            port: asked.port,
            host: Some(asked.host.clone()).filter(|host| host.parse::<IpAddr>().is_err()),
            question: None,
            greeting: None,
            rule: asked.rule.clone(),
        };
        let (approval, word, words) =
            match self.programs.connection(identity, &connecting, asked.wait).await {
                // Nothing looks into a connection that was approved.
                Decision::Allow { http: true, words, .. } => (Approval::Deny, "deny", words),
                Decision::Allow { lasting: true, words, .. } => {
                    (Approval::Sandbox, "sandbox", words)
                }
                Decision::Allow { words, .. } => (Approval::Once, "once", words),
                Decision::Deny { words } | Decision::Unanswered(words) => {
                    (Approval::Deny, "deny", words)
                }
            };
        let detail = [
            ("by", "callback".to_owned()),
            ("host", asked.host.clone()),
            ("port", asked.port.to_string()),
            ("answer", word.to_owned()),
            ("words", belljar_policy::shown(&words)),
        ];
        let entry = AuditEntry {
            actor: format!("sandbox:{}", identity.sandbox),
            action: "approval.answer".to_owned(),
            outcome: "ok".to_owned(),
            detail: detail.map(|(name, value)| (name.to_owned(), value)).into(),
            ..AuditEntry::default()
        };
        self.audit.record_from_inside(&identity.sandbox, &identity.tenant, entry);
        approval
    }
}

fn pending(id: String, identity: &Identity, asked: &Asked) -> PendingApproval {
    let now = SystemTime::now();
    PendingApproval {
        id,
        sandbox: identity.sandbox.clone(),
        tenant: identity.tenant.clone(),
        host: asked.host.clone(),
        address: asked.address,
        port: asked.port,
        transport: match asked.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
        .to_owned(),
        request: asked.request.clone(),
        rule: asked.rule.clone(),
        asked_at: now,
        until: now + asked.wait.min(Duration::from_secs(3600)),
    }
}

/// Takes what no longer waits off the list, also where the flow was dropped.
struct Forget<'a> {
    approvals: &'a Approvals,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.approvals.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { sandbox: SandboxId::parse("n001abcdefgh").unwrap(), tenant: TenantId::default() }
    }

    fn nobody_decides() -> (Approvals, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let audit = AuditLog::of(directory.path());
        (Approvals::new(Arc::new(belljar_egress::NoDecider), audit), directory)
    }

    fn asked(port: u16, wait: Duration) -> Asked {
        Asked {
            host: "example.com".to_owned(),
            source: None,
            address: None,
            port,
            transport: Transport::Tcp,
            request: None,
            rule: None,
            wait,
        }
    }

    #[tokio::test]
    async fn an_answer_reaches_who_waits_and_the_rest_is_no() {
        let (approvals, _directory) = nobody_decides();
        let waits = {
            let approvals = approvals.clone();
            tokio::spawn(async move {
                approvals.ask(&identity(), &asked(443, Duration::from_secs(60))).await
            })
        };
        let listed = loop {
            match approvals.list(&Scope::All, None).as_slice() {
                [] => tokio::task::yield_now().await,
                [one] => break one.clone(),
                _ => panic!("only one waits"),
            }
        };
        assert_eq!((listed.host.as_str(), listed.port), ("example.com", 443));
        approvals.answer(&listed.id, ApprovalAnswer::Once).unwrap();
        assert_eq!(waits.await.unwrap(), Approval::Once);
        let again = approvals.answer(&listed.id, ApprovalAnswer::Once);
        assert_eq!(again.unwrap_err().code(), Code::ApprovalNotFound);
        let late = approvals.ask(&identity(), &asked(443, Duration::from_millis(1))).await;
        assert_eq!(late, Approval::Deny);
        assert!(approvals.list(&Scope::All, None).is_empty());
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_forgotten_with_its_flow() {
        let (approvals, _directory) = nobody_decides();
        let wait = |identity: Identity| {
            let approvals = approvals.clone();
            tokio::spawn(async move {
                approvals.ask(&identity, &asked(1, Duration::from_secs(60))).await
            })
        };
        let all_wait = async |waiting: usize| {
            while approvals.list(&Scope::All, None).len() < waiting {
                tokio::task::yield_now().await;
            }
        };
        let is_refused = async |identity: Identity| {
            let asked = asked(1, Duration::from_secs(60));
            let asking = approvals.ask(&identity, &asked);
            tokio::time::timeout(Duration::ZERO, asking).await == Ok(Approval::Deny)
        };
        let of = |number: usize| Identity {
            sandbox: SandboxId::parse(&format!("n001abcd{number:04}")).unwrap(),
            tenant: TenantId::default(),
        };
        let full = MAX_OF_TENANT / MAX_OF_SANDBOX;
        let mut waiting = Vec::new();
        for number in 0..full {
            assert!(!is_refused(of(number)).await);
            waiting.extend((0..MAX_OF_SANDBOX).map(|_| wait(of(number))));
            all_wait(waiting.len()).await;
            assert!(is_refused(of(number)).await, "a sandbox has its share");
        }
        assert!(is_refused(of(full)).await, "and a tenant");
        let other = TenantId::parse("other").unwrap();
        assert!(!is_refused(Identity { tenant: other, ..of(full) }).await, "others have theirs");
        for flow in waiting {
            flow.abort();
            let _ = flow.await;
        }
        assert!(approvals.list(&Scope::All, None).is_empty());
    }
}
