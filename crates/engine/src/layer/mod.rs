//! The workspace layer: what a sandbox changed, shown, written to the host's directory, or thrown away.
//!
//! The layer is read through the agent; the host's directory is reached only beneath its own descriptor, without
//! following any link. What comes out of a sandbox is data here: names are checked, contents streamed, special files
//! left alone. Applying is repeatable: interrupted, it can be done again and does the rest.

mod apply;
mod compare;
mod tree;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::{Access, WorkspaceMode};

use crate::engine::Inner;
use crate::fault::point;
use crate::files::{FileKind, Files};
use crate::mounts::open_directory;
use crate::store::{SandboxRecord, State, Step, WorkspaceRecord};
use crate::time::{from_ns, now_ns};
use crate::transition::{Work, claim, release};
use crate::{Error, Result, Scope};
use compare::Change;
use tree::Tree;

/// What happened to a path of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerChangeKind {
    Added,
    Modified,
    Removed,
    /// A socket, pipe or device: it exists in the sandbox and is never written to the host.
    Skipped,
}

impl LayerChangeKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Removed => "removed",
            Self::Skipped => "skipped",
        }
    }
}

/// One change in a workspace layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerChange {
    /// Relative to the workspace.
    pub path: PathBuf,
    pub change: LayerChangeKind,
    /// Of what is there now; for something removed, of what was there.
    pub kind: FileKind,
    pub size: u64,
}

pub(crate) async fn diff(
    inner: &Arc<Inner>,
    scope: &Scope,
    reference: &str,
) -> Result<Vec<LayerChange>> {
    let layer = Layer::find(inner, scope, reference).await?;
    Ok(shown(&layer.changes().await?))
}

pub(crate) async fn apply(
    inner: &Arc<Inner>,
    scope: &Scope,
    reference: &str,
) -> Result<Vec<LayerChange>> {
    let mut layer =
        Layer::claim(inner, scope, reference, &[Step::Applying, Step::Resetting]).await?;
    let id = layer.record.id.clone();
    let _work = Work::on(inner, &id);
    let applied = layer.apply(inner).await;
    release(inner, &id).await?;
    applied
}

pub(crate) async fn discard(
    inner: &Arc<Inner>,
    scope: &Scope,
    reference: &str,
) -> Result<Vec<LayerChange>> {
    let mut layer = Layer::claim(inner, scope, reference, &[Step::Resetting]).await?;
    let id = layer.record.id.clone();
    let _work = Work::on(inner, &id);
    let discarded = layer.discard(inner).await;
    release(inner, &id).await?;
    discarded
}

struct Layer {
    record: SandboxRecord,
    workspace: WorkspaceRecord,
    files: Files,
    tree: Tree,
}

impl Layer {
    async fn find(inner: &Arc<Inner>, scope: &Scope, reference: &str) -> Result<Self> {
        let record = inner.find(scope, reference).await?;
        let overlay =
            |workspace: &WorkspaceRecord| workspace.mode == WorkspaceMode::Overlay.as_str();
        let workspace = record.details.workspace.clone().filter(overlay).ok_or_else(|| {
            let shown = belljar_policy::shown(reference);
            Error::new(Code::LayerNotFound, format!("sandbox `{shown}` has no workspace layer"))
                .with_remedy("create it with `--workspace DIR --workspace-mode overlay`")
        })?;
        let live = inner.live(&record.id).await?;
        let files = Files::new(live.connection(inner).await?, inner.spools.of(&live.tenant));
        let path = PathBuf::from(OsString::from_vec(workspace.path.clone()));
        let directory = open_directory(&path, Access::ReadOnly)?;
        if (directory.device, directory.inode) != (workspace.device, workspace.inode) {
            return Err(Error::new(
                Code::LayerConflict,
                format!("`{}` is not the directory that the sandbox was given", path.display()),
            )
            .with_remedy("put the workspace back in its place, or discard the layer's sandbox"));
        }
        let tree = Tree::new(&path, &directory.descriptor)?;
        Ok(Self { record, workspace, files, tree })
    }

    /// A layer that nobody else is at work on.
    async fn claim(
        inner: &Arc<Inner>,
        scope: &Scope,
        reference: &str,
        steps: &[Step],
    ) -> Result<Self> {
        let layer = Self::find(inner, scope, reference).await?;
        match claim(inner, &layer.record.id, steps, None, None).await? {
            Some(record) if record.state == State::Ready => Ok(layer),
            Some(record) => {
                release(inner, &record.id).await?;
                Err(Error::sandbox_gone(record.id.as_str()))
            }
            None => Err(Error::sandbox_gone(layer.record.id.as_str())),
        }
    }

    async fn apply(&mut self, inner: &Arc<Inner>) -> Result<Vec<LayerChange>> {
        let changes = self.changes().await?;
        let since = from_ns(self.workspace.layer_since);
        let conflicts = compare::conflicts(&changes, &self.tree, since)?;
        if !conflicts.is_empty() {
            return Err(conflict(&conflicts));
        }
        point("layer.applying");
        apply::apply(&changes, &self.files, &self.tree, &self.record.id).await?;
        point("layer.applying.done");
        self.reset(inner).await?;
        Ok(shown(&changes))
    }

    async fn discard(&mut self, inner: &Arc<Inner>) -> Result<Vec<LayerChange>> {
        let changes = self.changes().await?;
        self.reset(inner).await?;
        Ok(shown(&changes))
    }

    async fn changes(&self) -> Result<Vec<Change>> {
        compare::changes(&self.files, &self.tree).await
    }

    /// Empties the layer and notes when.
    async fn reset(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let id = &self.record.id;
        point("layer.resetting");
        inner.backends.get(&self.record.backend)?.reset_workspace_layer(id).await?;
        point("layer.resetting.done");
        self.workspace.layer_since = now_ns();
        self.record.details.workspace = Some(self.workspace.clone());
        inner.store.describe(id, Step::Ready, &self.record.details).await
    }
}

fn shown(changes: &[Change]) -> Vec<LayerChange> {
    changes.iter().map(|change| change.shown.clone()).collect()
}

fn conflict(paths: &[PathBuf]) -> Error {
    const NAMED: usize = 5;
    let names: Vec<_> = paths.iter().take(NAMED).map(|path| format!("`{}`", show(path))).collect();
    let more = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Error::new(
        Code::LayerConflict,
        format!("changed on the host since the sandbox saw it: {}{more}", names.join(", ")),
    )
    .with_remedy("move the host's version aside and apply again, or discard the layer")
}

fn show(path: &Path) -> String {
    belljar_policy::shown(&path.to_string_lossy())
}
