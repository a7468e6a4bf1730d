//! One request: who asks, under which number, and what it turned out to be about.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_engine::{ProcessId, SandboxId};
use belljar_policy::TenantId;

use crate::caller::Caller;

/// Travels with a request from where it was identified to where it is answered. All clones are the same call.
#[derive(Clone, Debug)]
pub struct Call {
    pub caller: Caller,
    pub request_id: String,
    about: Arc<Mutex<About>>,
}

/// What the audit log is told about a request beside its name and outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// Where it is not the caller's own.
    pub(crate) tenant: Option<String>,
    pub(crate) sandbox: Option<String>,
    pub(crate) process: Option<String>,
    pub(crate) detail: BTreeMap<String, String>,
}

impl Call {
    #[must_use]
    pub fn new(caller: Caller, request_id: String) -> Self {
        Self { caller, request_id, about: Arc::default() }
    }

    /// The request is about this sandbox of that tenant, whatever name it used for it.
    pub(crate) fn concerns(&self, sandbox: &SandboxId, tenant: &TenantId) {
        self.lock().sandbox = Some(sandbox.as_str().to_owned());
        self.belongs_to(tenant);
    }

    /// What the request is about belongs to this tenant. Only administrators act on what is not their own tenant's: what
    /// others ask for in the name of another is theirs all the same.
    pub(crate) fn belongs_to(&self, tenant: &TenantId) {
        if self.caller.is_admin() {
            self.lock().tenant = Some(tenant.to_string());
        }
    }

    /// The request is about this process.
    pub(crate) fn concerns_process(&self, process: &ProcessId) {
        self.lock().process = Some(process.as_str().to_owned());
    }

    /// Something that belongs on record, such as a path. Never a secret.
    pub(crate) fn note(&self, name: &str, value: impl Into<String>) {
        self.lock().detail.insert(name.to_owned(), value.into());
    }

    pub(crate) fn about(&self) -> About {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
