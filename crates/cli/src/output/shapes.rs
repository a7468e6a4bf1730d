//! The JSON that commands print. Names and shapes are a promise: fields are only added.

use std::path::Path;

use belljar_engine::{Artifact, LayerChange, Sandbox};
use belljar_policy::SandboxId;
use serde::Serialize;

use super::{ExplainShape, rfc3339};

/// The result of `run` and `exec`.
#[derive(Debug, Serialize)]
pub(crate) struct RunShape {
    pub(crate) exit_code: i32,
    pub(crate) duration_ms: u64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// How the command ended: exited, signalled, timed_out, oom, cancelled, lost.
    pub(crate) reason: &'static str,
    pub(crate) timed_out: bool,
    /// Codes of the limits that were reached.
    pub(crate) limits_hit: Vec<&'static str>,
    pub(crate) artifacts: Vec<ArtifactShape>,
    pub(crate) sandbox_id: SandboxId,
    pub(crate) session: SessionShape,
    pub(crate) isolation: IsolationShape,
    /// Only with `--read`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<FileShape>,
    /// Only with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explain: Option<ExplainShape>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SessionShape {
    pub(crate) name: Option<String>,
    pub(crate) created: bool,
}

/// A file that the command left in `/output`.
#[derive(Debug, Serialize)]
pub(crate) struct ArtifactShape {
    pub(crate) path: String,
    /// Its size.
    pub(crate) bytes: u64,
}

/// A file that `--read` asked for. Bytes that are no text are replaced, as in `stdout`.
#[derive(Debug, Serialize)]
pub(crate) struct FileShape {
    pub(crate) path: String,
    pub(crate) content: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct IsolationShape {
    pub(crate) backend: String,
    pub(crate) class: &'static str,
    pub(crate) network_mode: String,
    pub(crate) network_enforcement: String,
    pub(crate) writable_paths: Vec<String>,
    pub(crate) timeout_secs: u64,
}

/// A sandbox, as `create`, `inspect` and `list` print it.
#[derive(Debug, Serialize)]
pub(crate) struct SandboxShape {
    pub(crate) sandbox_id: SandboxId,
    pub(crate) name: Option<String>,
    pub(crate) template: String,
    pub(crate) backend: String,
    pub(crate) state: &'static str,
    pub(crate) created_at: String,
    pub(crate) expires_at: Option<String>,
    pub(crate) isolation: IsolationShape,
    /// Why it failed, where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// Only with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explain: Option<ExplainShape>,
}

/// A change in a workspace layer.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeShape {
    pub(crate) change: &'static str,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) size: u64,
}

// === from the engine's types ===

impl From<&Sandbox> for SandboxShape {
    fn from(sandbox: &Sandbox) -> Self {
        Self {
            sandbox_id: sandbox.id.clone(),
            name: sandbox.name.clone(),
            template: sandbox.template.clone(),
            backend: sandbox.backend.clone(),
            state: sandbox.state.as_str(),
            created_at: rfc3339(sandbox.created_at),
            expires_at: sandbox.expires_at.map(rfc3339),
            isolation: IsolationShape::from(sandbox),
            failure: sandbox.failure.clone(),
            explain: None,
        }
    }
}

impl From<&Sandbox> for IsolationShape {
    fn from(sandbox: &Sandbox) -> Self {
        let isolation = &sandbox.isolation;
        Self {
            backend: isolation.backend.clone(),
            class: isolation.class.as_str(),
            network_mode: isolation.network_mode.clone(),
            network_enforcement: isolation.network_enforcement.clone(),
            writable_paths: isolation.writable_paths.clone(),
            timeout_secs: isolation.timeout_secs,
        }
    }
}

impl From<&LayerChange> for ChangeShape {
    fn from(change: &LayerChange) -> Self {
        Self {
            change: change.change.as_str(),
            path: text(&change.path),
            kind: change.kind.as_str(),
            size: change.size,
        }
    }
}

impl From<&Artifact> for ArtifactShape {
    fn from(artifact: &Artifact) -> Self {
        Self { path: text(&artifact.path), bytes: artifact.bytes }
    }
}

impl FileShape {
    pub(crate) fn new(path: &Path, content: &[u8]) -> Self {
        Self { path: text(path), content: String::from_utf8_lossy(content).into_owned() }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
