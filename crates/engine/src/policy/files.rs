//! Changes to files through the API, asked about one by one.
//!
//! Rules see the path as it was named, made absolute and without `.` and `..`; where links inside the sandbox lead is
//! for the kernel to decide, not for a rule.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use belljar_policy::document::Context;

use super::judge::{judge, judge_unrecorded};
use super::{Asker, Governed, Question, QuestionKind};
use crate::Result;
use crate::audit::AuditLog;

/// Of one upload this many permitted changes are put on record one by one: an archive has as many files as it likes.
/// What is denied is always on record.
const MAX_RECORDED: u32 = 100;

/// Asks before files change.
#[derive(Debug)]
pub(crate) struct FileGuard {
    audit: AuditLog,
    governed: Arc<Governed>,
    asker: Arc<Asker>,
    permitted: AtomicU32,
}

impl FileGuard {
    pub(crate) fn new(audit: &AuditLog, governed: Arc<Governed>, asker: &Arc<Asker>) -> Self {
        let (audit, asker) = (audit.clone(), Arc::clone(asker));
        Self { audit, governed, asker, permitted: AtomicU32::new(0) }
    }

    /// # Errors
    /// `policy-denied` where the change may not be made.
    pub(crate) async fn permit(&self, operation: &str, path: &Path) -> Result<()> {
        let path = plain(&self.governed.workdir, path);
        let context = Context::new()
            .with("operation", operation)
            .with("path", path.to_string_lossy().into_owned());
        let question = Question::new(QuestionKind::FileWrite, context);
        if self.permitted.load(Ordering::Relaxed) >= MAX_RECORDED
            && judge_unrecorded(&self.governed, question.clone()).await?.permits()
        {
            return Ok(());
        }
        judge(&self.audit, &self.governed, &self.asker, question).await?.permitted()?;
        self.permitted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn plain(workdir: &Path, path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in workdir.join(path).components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(part) => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain() {
        let check = |path: &str, expected: &str| {
            assert_eq!(plain(Path::new("/workspace"), Path::new(path)), Path::new(expected));
        };
        check("a", "/workspace/a");
        check("./a//b/", "/workspace/a/b");
        check("/tmp/../etc/passwd", "/etc/passwd");
        check("../../../etc", "/etc");
        check("/", "/");
    }
}
