//! The policies of sandboxes in memory: compiled once, found without a question to the store.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_codes::Code;
use belljar_policy::mounts::WORKSPACE_TARGET;
use belljar_policy::{SandboxId, TenantId};

use super::{PolicyRef, SandboxPolicy};
use crate::destroy::has_ended;
use crate::engine::Inner;
use crate::store::SandboxRecord;
use crate::{Error, Result, aside, store};

/// Sandboxes and documents whose policies are kept ready; beyond, they are read again.
const MAX_READY: usize = 4096;

/// What the documents that are kept ready may take as text; ready, they take several times as much.
const MAX_READY_BYTES: usize = 32 << 20;

/// The name under which metadata and labels tell whose work a sandbox does.
const AGENT_ID: &str = "agent_id";

/// A sandbox that has a policy.
#[derive(Debug)]
pub(crate) struct Governed {
    pub(crate) sandbox: SandboxId,
    pub(crate) tenant: TenantId,
    /// Whose work it does, as told at its creation.
    pub(crate) agent_id: Option<String>,
    /// Where relative paths begin.
    pub(crate) workdir: PathBuf,
    pub(crate) policy: Arc<SandboxPolicy>,
}

impl Governed {
    pub(crate) fn new(record: &SandboxRecord, policy: Arc<SandboxPolicy>) -> Self {
        let details = &record.details;
        let told = details.metadata.get(AGENT_ID).or_else(|| details.labels.get(AGENT_ID));
        Self {
            sandbox: record.id.clone(),
            tenant: record.tenant.clone(),
            agent_id: told.cloned(),
            workdir: details.workdir.as_deref().unwrap_or(WORKSPACE_TARGET).into(),
            policy,
        }
    }
}

/// What was made ready so far.
#[derive(Debug, Default)]
pub(crate) struct Policies(Mutex<Ready>);

#[derive(Debug, Default)]
struct Ready {
    sandboxes: HashMap<SandboxId, Option<Arc<Governed>>>,
    policies: HashMap<String, Arc<SandboxPolicy>>,
    /// The bytes of the text of each.
    sizes: BTreeSet<(usize, String)>,
    /// Of all of them.
    bytes: usize,
}

impl Ready {
    /// Keeps a policy that was not there. Where there are too many, those give way that no sandbox here runs under, then the
    /// largest, so that one which is small stays whatever others ask. They are for the caller to free.
    fn keep_policy(
        &mut self,
        key: String,
        policy: &Arc<SandboxPolicy>,
        bytes: usize,
    ) -> Vec<Arc<SandboxPolicy>> {
        let mut gone = Vec::new();
        if self.policies.contains_key(&key) {
            return gone;
        }
        if self.is_full(bytes) {
            self.take_unused(&mut gone);
        }
        while self.is_full(bytes) {
            let Some((bytes, largest)) = self.sizes.pop_last() else { break };
            self.bytes -= bytes;
            gone.extend(self.policies.remove(&largest));
        }
        if !gone.is_empty() {
            // Sandboxes hold on to their policies, so they go too.
            let gone: HashSet<_> = gone.iter().map(Arc::as_ptr).collect();
            let is_gone = |governed: &Arc<Governed>| gone.contains(&Arc::as_ptr(&governed.policy));
            self.sandboxes.retain(|_, governed| !governed.as_ref().is_some_and(is_gone));
        }
        self.bytes += bytes;
        self.sizes.insert((bytes, key.clone()));
        self.policies.insert(key, Arc::clone(policy));
        gone
    }

    fn is_full(&self, more: usize) -> bool {
        self.policies.len() >= MAX_READY || self.bytes.saturating_add(more) > MAX_READY_BYTES
    }

    /// Whoever makes a policy for each sandbox leaves one with each that ends.
    fn take_unused(&mut self, gone: &mut Vec<Arc<SandboxPolicy>>) {
        let Self { policies, sizes, bytes, .. } = self;
        sizes.retain(|(size, key)| {
            if policies.get(key).is_some_and(|policy| Arc::strong_count(policy) > 1) {
                return true;
            }
            *bytes -= size;
            gone.extend(policies.remove(key));
            false
        });
    }
}

impl Policies {
    /// The policy of a sandbox, in whatever state it is; `None` where it has none.
    pub(crate) async fn of(&self, inner: &Inner, id: &SandboxId) -> Result<Option<Arc<Governed>>> {
        if let Some(known) = self.lock().sandboxes.get(id) {
            return Ok(known.clone());
        }
        let record = inner.store.sandbox(id).await?;
        let record = record.ok_or_else(|| Error::sandbox_not_found(id.as_str()))?;
        let governed = match &record.details.policy {
            None => None,
            Some(kept) => {
                let policy = self.find(inner, &PolicyRef::from(kept)).await.map_err(|error| {
                    // What only sandboxes that have ended ran under goes first where there is too much.
                    let is_gone = error.code() == Code::PolicyNotFound && has_ended(record.state);
                    if is_gone { Error::sandbox_gone(id.as_str()) } else { error }
                })?;
                Some(Arc::new(Governed::new(&record, policy)))
            }
        };
        let mut ready = self.lock();
        if ready.sandboxes.len() >= MAX_READY {
            ready.sandboxes.clear();
        }
        ready.sandboxes.insert(id.clone(), governed.clone());
        Ok(governed)
    }

    /// The documents of that digest, compiled.
    pub(crate) async fn find(
        &self,
        inner: &Inner,
        reference: &PolicyRef,
    ) -> Result<Arc<SandboxPolicy>> {
        // Documents that say the same may be known by several names.
        let key = format!("{reference:?}");
        if let Some(known) = self.lock().policies.get(&key) {
            return Ok(Arc::clone(known));
        }
        let digest = &reference.digest;
        let lost = || {
            Error::new(Code::PolicyNotFound, format!("the policy {digest} is no longer kept"))
                .with_remedy("put it again, as `belljar policy put NAME FILE` does")
        };
        let text = inner.store.documents(digest).await?.ok_or_else(lost)?;
        let bytes = text.len();
        // Also of a short one: it may have patterns that take long to read.
        let policy = aside(move || SandboxPolicy::kept(store::read_layers(&text)?)).await??;
        // What was kept must say what it said then.
        if policy.digest != *digest {
            let message = format!("the policy {digest} is not what was kept");
            return Err(Error::new(Code::StateFailed, message));
        }
        let policy = policy.known_as(reference);
        let gone = self.lock().keep_policy(key, &policy, bytes);
        drop(gone);
        Ok(policy)
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.lock().sandboxes.remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use belljar_policy::document::{Document, Layer};

    use super::*;
    use crate::{Engine, EngineOptions};

    #[tokio::test]
    async fn what_was_let_in_is_asked_for_ever() {
        let rule = |n: usize| {
            let condition = serde_json::json!({"field": "x", "operator": "matches", "value": format!("[a-z] {n}$")});
            serde_json::json!({"name": format!("r{n}"), "condition": condition, "action": "deny"})
        };
        let schema = serde_json::json!({"properties": {"a": {"pattern": r"\w{100}x"}}});
        let tool = serde_json::json!({"name": "t", "command": ["true"], "input_schema": schema});
        for document in [
            serde_json::json!({"rules": (0..2500).map(rule).collect::<Vec<_>>()}),
            serde_json::json!({"tools": [tool]}),
        ] {
            let document: Document = serde_json::from_value(document).unwrap();
            let layers = vec![Layer { origin: "old".to_owned(), document }];
            let refused = SandboxPolicy::new(layers.clone()).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidPolicy, "nothing new like it is let in");
            let digest = layers[0].document.digest();
            let reference =
                PolicyRef { name: "old".to_owned(), version: None, digest, recording: false };
            let directory = tempfile::tempdir().unwrap();
            let options = EngineOptions::new(directory.path(), Vec::new());
            let inner = Engine::open(options).await.unwrap().inner;
            let written = store::written_layers(&layers).unwrap();
            let documents = store::Documents { digest: &reference.digest, layers: &written };
            inner.store.put_policy(&TenantId::default(), "old", documents).await.unwrap();
            let found = inner.policies.find(&inner, &reference).await.unwrap();
            assert_eq!(found.digest, reference.digest);
        }
    }

    #[test]
    fn what_no_sandbox_runs_under_gives_way_first() {
        let mut ready = Ready::default();
        let used = Arc::new(SandboxPolicy::recording());
        ready.keep_policy("used".to_owned(), &used, 1000);
        for number in 1..MAX_READY {
            ready.keep_policy(format!("{number}"), &Arc::new(SandboxPolicy::recording()), 1);
        }
        assert_eq!(ready.policies.len(), MAX_READY);
        let gone = ready.keep_policy("new".to_owned(), &used, 1);
        assert_eq!(gone.len(), MAX_READY - 1);
        assert!(ready.policies.contains_key("used"), "though it is the largest");
        assert_eq!((ready.policies.len(), ready.sizes.len(), ready.bytes), (2, 2, 1001));
    }

    #[test]
    fn what_is_kept_ready_is_bounded_and_the_largest_give_way() {
        let tenant = TenantId::default();
        let policy = || Arc::new(SandboxPolicy::recording());
        let mut ready = Ready::default();
        let sandbox = |number: usize, policy: &Arc<SandboxPolicy>| {
            let id = SandboxId::parse(&format!("n00{number}abcdefgh")).unwrap();
            let (tenant, policy) = (tenant.clone(), Arc::clone(policy));
            let governed = Governed {
                sandbox: id.clone(),
                tenant,
                agent_id: None,
                workdir: "/".into(),
                policy,
            };
            (id, Some(Arc::new(governed)))
        };
        let small = policy();
        let keys = |ready: &Ready| {
            let mut keys: Vec<_> = ready.policies.keys().cloned().collect();
            keys.sort();
            keys.concat()
        };
        assert!(ready.keep_policy("a".to_owned(), &small, 1).is_empty());
        ready.sandboxes.extend([sandbox(1, &small)]);
        let large = policy();
        assert!(ready.keep_policy("b".to_owned(), &large, MAX_READY_BYTES - 1).is_empty());
        assert!(ready.keep_policy("b".to_owned(), &large, MAX_READY_BYTES - 1).is_empty());
        ready.sandboxes.extend([sandbox(2, &large), sandbox(3, &small)]);
        assert_eq!((keys(&ready).as_str(), ready.sandboxes.len()), ("ab", 3));
        let gone = ready.keep_policy("c".to_owned(), &policy(), 1);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0], &large));
        assert_eq!((keys(&ready).as_str(), ready.sandboxes.len(), ready.bytes), ("ac", 2, 2));
        // One that is too large for all is kept alone, and goes first.
        assert_eq!(ready.keep_policy("d".to_owned(), &policy(), 2 * MAX_READY_BYTES).len(), 2);
        assert_eq!((keys(&ready).as_str(), ready.sandboxes.len()), ("d", 0));
        ready.keep_policy("e".to_owned(), &policy(), 1);
        assert_eq!((keys(&ready).as_str(), ready.bytes, ready.sizes.len()), ("e", 1, 1));
        for number in 0..MAX_READY {
            ready.keep_policy(format!("{number:04}"), &small, 0);
        }
        assert_eq!((ready.policies.len(), ready.bytes), (MAX_READY, 0));
    }
}
