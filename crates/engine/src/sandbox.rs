//! Sandboxes as callers see them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use belljar_backend::{Enforcement, IsolationClass, RuntimeChoice};
use belljar_policy::{Family, Limits, SandboxId, TenantId, UserSpec, WorkspaceMode};

use crate::PolicyRef;
use crate::store::{
    Details, EnforcementRecord, PolicyRecord, SandboxRecord, State, WorkspaceRecord,
};
use crate::time::from_ms;

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SandboxState {
    Creating,
    Ready,
    Paused,
    Destroying,
    Destroyed,
    Failed,
}

impl SandboxState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.stored().as_str()
    }

    const fn stored(self) -> State {
        match self {
            Self::Creating => State::Creating,
            Self::Ready => State::Ready,
            Self::Paused => State::Paused,
            Self::Destroying => State::Destroying,
            Self::Destroyed => State::Destroyed,
            Self::Failed => State::Failed,
        }
    }
}

impl From<State> for SandboxState {
    fn from(state: State) -> Self {
        match state {
            State::Creating => Self::Creating,
            State::Ready => Self::Ready,
            State::Paused => Self::Paused,
            State::Destroying => Self::Destroying,
            State::Destroyed => Self::Destroyed,
            State::Failed => Self::Failed,
        }
    }
}

/// A sandbox as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Sandbox {
    pub id: SandboxId,
    pub tenant: TenantId,
    pub name: Option<String>,
    pub template: String,
    pub family: Option<Family>,
    pub backend: String,
    pub state: SandboxState,
    /// Why it failed, or ended by itself.
    pub failure: Option<String>,
    pub created_at: SystemTime,
    /// When something was last done with it.
    pub used_at: SystemTime,
    /// How long it may go unused before it ends by itself.
    pub idle_timeout: Option<Duration>,
    /// How long it may live, counted from its creation or from when its lease was last extended.
    pub hard_limit: Option<Duration>,
    /// When it ends by itself unless it is used again.
    pub expires_at: Option<SystemTime>,
    pub isolation: Isolation,
    /// Every rule with what enforces it.
    pub enforcement: Vec<Enforcement>,
    pub labels: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    /// What was asked for; `enforcement` says what holds.
    pub limits: Limits,
    pub workspace: Option<Workspace>,
    pub user: UserSpec,
    /// Ends with the run that made it.
    pub ephemeral: bool,
    /// Names of environment variables that were refused at creation.
    pub stripped_environment: Vec<String>,
    /// What it runs under.
    pub policy: Option<PolicyRef>,
}

/// The wall in one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    pub backend: String,
    pub class: IsolationClass,
    pub network_mode: String,
    /// What enforces the network mode.
    pub network_enforcement: String,
    pub writable_paths: Vec<String>,
    pub timeout_secs: u64,
    /// What runs in the backend, where it has several.
    pub runtime: Option<RuntimeChoice>,
    /// Why it is this backend.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub path: PathBuf,
    pub mode: WorkspaceMode,
}

impl From<SandboxRecord> for Sandbox {
    fn from(record: SandboxRecord) -> Self {
        let expires_at = expires_at_ms(&record).map(from_ms);
        let details = record.details;
        Self {
            id: record.id,
            tenant: record.tenant,
            name: record.name,
            state: record.state.into(),
            failure: record.failure,
            created_at: from_ms(record.created_at),
            used_at: from_ms(record.used_at),
            idle_timeout: record.idle_ms.map(Duration::from_millis),
            hard_limit: record.hard_ms.map(Duration::from_millis),
            expires_at,
            isolation: isolation_of(&record.backend, &details),
            enforcement: details.enforcement.iter().map(Enforcement::from).collect(),
            template: details.template,
            family: details.family.as_deref().and_then(family_of),
            backend: record.backend,
            labels: details.labels,
            metadata: details.metadata,
            limits: details.limits,
            workspace: details.workspace.as_ref().map(Workspace::from),
            user: details.user.parse().unwrap_or_default(),
            ephemeral: record.owner.is_some(),
            stripped_environment: details.stripped_environment,
            policy: details.policy.as_ref().map(PolicyRef::from),
        }
    }
}

impl From<&PolicyRecord> for PolicyRef {
    fn from(record: &PolicyRecord) -> Self {
        Self {
            name: record.name.clone(),
            version: record.version,
            digest: record.digest.clone(),
            recording: record.recording,
        }
    }
}

impl From<PolicyRef> for PolicyRecord {
    fn from(policy: PolicyRef) -> Self {
        Self {
            name: policy.name,
            version: policy.version,
            digest: policy.digest,
            recording: policy.recording,
        }
    }
}

impl From<&EnforcementRecord> for Enforcement {
    fn from(record: &EnforcementRecord) -> Self {
        Self {
            subject: record.subject,
            rule: record.rule.clone(),
            mechanism: record.mechanism.clone(),
            full: record.full,
        }
    }
}

impl From<&Enforcement> for EnforcementRecord {
    fn from(enforcement: &Enforcement) -> Self {
        Self {
            subject: enforcement.subject,
            rule: enforcement.rule.clone(),
            mechanism: enforcement.mechanism.clone(),
            full: enforcement.full,
        }
    }
}

impl From<&WorkspaceRecord> for Workspace {
    fn from(record: &WorkspaceRecord) -> Self {
        let mode = [WorkspaceMode::Bind, WorkspaceMode::BindReadOnly, WorkspaceMode::Overlay]
            .into_iter()
            .find(|mode| mode.as_str() == record.mode)
            .unwrap_or(WorkspaceMode::BindReadOnly);
        Self { path: OsString::from_vec(record.path.clone()).into(), mode }
    }
}

/// When the earlier of both clocks runs out.
pub(crate) fn expires_at_ms(record: &SandboxRecord) -> Option<i64> {
    let idle = after(record.used_at, record.idle_ms);
    [idle, hard_end_ms(record)].into_iter().flatten().min()
}

/// When the hard clock runs out.
pub(crate) fn hard_end_ms(record: &SandboxRecord) -> Option<i64> {
    after(record.hard_from, record.hard_ms)
}

fn after(start: i64, limit: Option<u64>) -> Option<i64> {
    limit.map(|limit| start.saturating_add(i64::try_from(limit).unwrap_or(i64::MAX)))
}

fn isolation_of(backend: &str, details: &Details) -> Isolation {
    Isolation {
        backend: backend.to_owned(),
        class: class_of(&details.class),
        network_mode: details.network_mode.clone(),
        network_enforcement: details.network_enforcement.clone(),
        writable_paths: details.writable_paths.clone(),
        timeout_secs: details.timeout_secs,
        runtime: details.runtime.clone(),
        reason: details.backend_reason.clone(),
    }
}

/// An unknown word promises nothing.
pub(crate) fn class_of(word: &str) -> IsolationClass {
    use IsolationClass::{Kernel, Namespace, None, Vm, Wasm};
    let classes = [None, Namespace, Kernel, Vm, Wasm];
    classes.into_iter().find(|class| class.as_str() == word).unwrap_or(None)
}

fn family_of(word: &str) -> Option<Family> {
    use Family::{Base, Go, Node, Python, Rust};
    [Python, Node, Go, Rust, Base].into_iter().find(|family| family.as_str() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_clock_counts() {
        let mut record = SandboxRecord {
            id: SandboxId::parse("n001abcdefgh").unwrap(),
            tenant: TenantId::default(),
            name: None,
            backend: "fake".to_owned(),
            state: State::Ready,
            owner: None,
            worker: None,
            created_at: 1000,
            used_at: 5000,
            idle_ms: Some(100),
            hard_ms: Some(10_000),
            hard_from: 1000,
            failure: None,
            details: Details::default(),
        };
        assert_eq!(expires_at_ms(&record), Some(5100));
        record.hard_ms = Some(2000);
        assert_eq!(expires_at_ms(&record), Some(3000));
        record.hard_from = 2500;
        assert_eq!(expires_at_ms(&record), Some(4500));
        record.idle_ms = Some(u64::MAX);
        record.hard_ms = None;
        assert_eq!(expires_at_ms(&record), Some(i64::MAX));
        record.idle_ms = None;
        assert_eq!(expires_at_ms(&record), None);
    }
}
