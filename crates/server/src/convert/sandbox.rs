//! Sandboxes as callers see them.

use belljar_api::v1;
use belljar_backend::{Enforcement, Subject};
use belljar_engine::{Explanation, Isolation, LayerChange, Sandbox, SandboxState};

use super::{in_seconds, timestamp};

pub(crate) fn sandbox(sandbox: &Sandbox) -> v1::Sandbox {
    v1::Sandbox {
        sandbox_id: sandbox.id.as_str().to_owned(),
        name: sandbox.name.clone(),
        template: sandbox.template.clone(),
        backend: sandbox.backend.clone(),
        state: state(sandbox.state).into(),
        created_at: Some(timestamp(sandbox.created_at)),
        expires_at: sandbox.expires_at.map(timestamp),
        isolation: Some(isolation(&sandbox.isolation)),
        failure: sandbox.failure.clone(),
        tenant: sandbox.tenant.to_string(),
        labels: sandbox.labels.clone(),
        metadata: sandbox.metadata.clone(),
        limits: Some(v1::Limits {
            memory_bytes: Some(sandbox.limits.memory_bytes.value),
            milli_cpus: Some(sandbox.limits.cpu_millis.value.into()),
            pids: Some(sandbox.limits.pids.value.into()),
            disk_bytes: Some(sandbox.limits.disk_bytes.value),
        }),
        idle_timeout_secs: in_seconds(sandbox.idle_timeout),
        lease_secs: in_seconds(sandbox.hard_limit),
        used_at: Some(timestamp(sandbox.used_at)),
        enforcement: sandbox.enforcement.iter().map(enforcement).collect(),
        stripped_environment: sandbox.stripped_environment.clone(),
        ephemeral: sandbox.ephemeral,
        workspace: sandbox.workspace.as_ref().map(|workspace| v1::Workspace {
            path: workspace.path.to_string_lossy().into_owned(),
            mode: Some(workspace.mode.as_str().to_owned()),
        }),
        user: sandbox.user.to_string(),
        policy: sandbox.policy.as_ref().map(super::policy::reference),
    }
}

fn state(state: SandboxState) -> v1::SandboxState {
    match state {
        SandboxState::Creating => v1::SandboxState::Creating,
        SandboxState::Ready => v1::SandboxState::Ready,
        SandboxState::Paused => v1::SandboxState::Paused,
        SandboxState::Destroying => v1::SandboxState::Destroying,
        SandboxState::Destroyed => v1::SandboxState::Destroyed,
        SandboxState::Failed => v1::SandboxState::Failed,
    }
}

/// `None` for a number that stands for no state.
pub(crate) fn state_of(number: i32) -> Option<SandboxState> {
    match v1::SandboxState::try_from(number).ok()? {
        v1::SandboxState::Unspecified => None,
        v1::SandboxState::Creating => Some(SandboxState::Creating),
        v1::SandboxState::Ready => Some(SandboxState::Ready),
        v1::SandboxState::Paused => Some(SandboxState::Paused),
        v1::SandboxState::Destroying => Some(SandboxState::Destroying),
        v1::SandboxState::Destroyed => Some(SandboxState::Destroyed),
        v1::SandboxState::Failed => Some(SandboxState::Failed),
    }
}

fn isolation(isolation: &Isolation) -> v1::Isolation {
    v1::Isolation {
        backend: isolation.backend.clone(),
        class: isolation.class.as_str().to_owned(),
        network_mode: isolation.network_mode.clone(),
        network_enforcement: isolation.network_enforcement.clone(),
        writable_paths: isolation.writable_paths.clone(),
        timeout_secs: isolation.timeout_secs,
        runtime: isolation.runtime.as_ref().map(|runtime| runtime.name.clone()),
        platform: isolation.runtime.as_ref().and_then(|runtime| runtime.platform.clone()),
        reason: isolation.reason.clone(),
    }
}

pub(crate) fn enforcement(enforcement: &Enforcement) -> v1::Enforcement {
    v1::Enforcement {
        subject: subject(enforcement.subject).to_owned(),
        rule: enforcement.rule.clone(),
        mechanism: enforcement.mechanism.clone(),
        full: enforcement.full,
    }
}

const fn subject(subject: Subject) -> &'static str {
    match subject {
        Subject::Filesystem => "filesystem",
        Subject::Memory => "memory",
        Subject::Cpu => "cpu",
        Subject::Pids => "pids",
        Subject::Disk => "disk",
        Subject::Network => "network",
        Subject::Syscalls => "syscalls",
        Subject::Identity => "identity",
        Subject::Processes => "processes",
        Subject::Programs => "programs",
    }
}

pub(crate) fn explanation(explanation: Explanation) -> v1::Explanation {
    v1::Explanation {
        requested_backend: explanation.requested_backend,
        chosen_backend: explanation.chosen_backend,
        reason: explanation.reason,
        class: explanation.class.as_str().to_owned(),
        template: explanation.template,
        template_reason: explanation.template_reason,
        network_mode: explanation.network_mode.to_string(),
        network_enforcement: explanation.network_enforcement,
        writable_paths: explanation.writable_paths,
        timeout_secs: explanation.timeout_secs,
        stripped_environment: explanation.stripped_environment,
        rules: explanation.rules.iter().map(enforcement).collect(),
        runtime: explanation.runtime.as_ref().map(|runtime| runtime.name.clone()),
        platform: explanation.runtime.and_then(|runtime| runtime.platform),
    }
}

pub(crate) fn layer_change(change: &LayerChange) -> v1::LayerChange {
    v1::LayerChange {
        change: change.change.as_str().to_owned(),
        path: change.path.to_string_lossy().into_owned(),
        kind: change.kind.as_str().to_owned(),
        size: change.size,
    }
}
