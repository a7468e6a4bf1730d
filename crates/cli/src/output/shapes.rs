//! The JSON that commands print where it is more than one message of the API. Names and shapes are a promise: fields
//! are only added.

use belljar_api::v1;
use serde::Serialize;

/// The result of `run` and `exec`.
#[derive(Debug, Serialize)]
pub(crate) struct RunShape<'a> {
    pub(crate) exit_code: i32,
    pub(crate) duration_ms: u64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// How the command ended: exited, signalled, timed_out, oom, cancelled, lost.
    pub(crate) reason: v1::Reason,
    pub(crate) timed_out: bool,
    /// Codes of the limits that were reached.
    pub(crate) limits_hit: &'a [String],
    /// What stands out in the command, where it is Python code.
    pub(crate) findings: &'a [v1::Finding],
    pub(crate) artifacts: Vec<v1::Artifact>,
    pub(crate) sandbox_id: String,
    pub(crate) process_id: &'a str,
    pub(crate) session: v1::Session,
    pub(crate) isolation: v1::Isolation,
    pub(crate) usage: Option<v1::Usage>,
    /// Only with `--read`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<FileShape>,
    /// Only with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explain: Option<v1::Explanation>,
}

/// The result of `run --detach` and `exec --detach`.
#[derive(Debug, Serialize)]
pub(crate) struct DetachShape {
    pub(crate) process: v1::Process,
    pub(crate) sandbox_id: String,
    pub(crate) session: v1::Session,
    pub(crate) isolation: v1::Isolation,
    /// Only with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explain: Option<v1::Explanation>,
}

/// A file that `--read` asked for. Bytes that are no text are replaced, as in `stdout`.
#[derive(Debug, Serialize)]
pub(crate) struct FileShape {
    pub(crate) path: String,
    pub(crate) content: String,
}

/// A sandbox, as `create` and `inspect` print it.
#[derive(Debug, Serialize)]
pub(crate) struct SandboxShape {
    #[serde(flatten)]
    pub(crate) sandbox: v1::Sandbox,
    /// Only with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) explain: Option<v1::Explanation>,
}

impl From<&v1::FileContent> for FileShape {
    fn from(file: &v1::FileContent) -> Self {
        let content = String::from_utf8_lossy(&file.content).into_owned();
        Self { path: file.path.clone(), content }
    }
}
