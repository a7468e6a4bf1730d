//! The files by which a host tells about itself. Below a root that tests replace.

use std::fs;
use std::path::{Path, PathBuf};

/// A host, seen through its files.
#[derive(Debug)]
pub(super) struct Host {
    root: PathBuf,
    pub(super) is_root: bool,
    /// Version of Landlock, 0 where there is none.
    pub(super) landlock: u32,
    /// This program, for remedies that name it.
    pub(super) program: String,
}

impl Host {
    pub(super) fn this() -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/belljar"));
        Self {
            root: PathBuf::from("/"),
            is_root: rustix::process::geteuid().is_root(),
            landlock: belljar_sys::landlock::version(),
            program: program.display().to_string(),
        }
    }

    /// The content of a file, without the newline at its end.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim_end().to_owned())
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    pub(super) fn is_writable(&self, path: &str) -> bool {
        rustix::fs::access(self.path(path), rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path).strip_prefix("/").unwrap_or(Path::new(path)))
    }
}

#[cfg(test)]
impl Host {
    /// A host made of `files`, in a temporary directory.
    pub(super) fn recorded(files: &[(&str, &str)], is_root: bool) -> (tempfile::TempDir, Self) {
        let directory = tempfile::tempdir().unwrap();
        let host = Self {
            root: directory.path().to_path_buf(),
            is_root,
            landlock: 4,
            program: "/usr/bin/belljar".to_owned(),
        };
        for (path, content) in files {
            let path = host.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        (directory, host)
    }
}
