//! A temporary directory that is removed only when nothing is mounted in it.
//!
//! A mount that a failed test left behind may show the host's own files; removing through it would remove those.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Directory(Option<TempDir>);

impl Directory {
    pub(crate) fn new() -> Self {
        // Short: agents' sockets lie below it, and socket paths hold 108 bytes.
        let directory = tempfile::Builder::new().prefix("bj-").tempdir_in("/tmp");
        let directory = directory.expect("/tmp is writable");
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), everybody).expect("our own directory");
        Self(Some(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().expect("only dropping takes it").path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if has_mounts(self.path())
            && let Some(directory) = self.0.take()
        {
            let _ = directory.keep();
        }
    }
}

/// Whether anything is mounted at or below `path`; also when that cannot be told.
#[must_use]
pub fn has_mounts(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return true };
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|at| Path::new(at).starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_seen_where_they_are() {
        assert!(has_mounts(Path::new("/proc")));
        assert!(!has_mounts(Directory::new().path()));
    }

    #[test]
    fn an_ordinary_directory_is_removed() {
        let directory = Directory::new();
        let path = directory.path().to_path_buf();
        drop(directory);
        assert!(!path.exists());
    }
}
