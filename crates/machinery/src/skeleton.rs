//! Directories that a root consists of besides what it is bound to: mount points, devices, a few files.
//!
//! A skeleton is made once per content, under a name that depends on the content, and then only read. It is put
//! together aside and renamed, so that nobody ever sees half of one.

use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The agent's user, who owns what the workload must not see. Only root can give files away; for an ordinary user
/// there is one user inside and nothing to give.
const AGENT: u32 = 65533;

/// Something in a skeleton.
#[derive(Clone, Debug, Hash)]
pub enum Item {
    Directory {
        mode: u32,
        agent: bool,
    },
    File {
        content: Vec<u8>,
        mode: u32,
    },
    Link {
        to: PathBuf,
    },
    /// A copy of a public directory of the host. The stamp tells one state of it from the next.
    Copy {
        from: PathBuf,
        stamp: (i64, i64),
    },
}

/// Paths, relative to the root, and what is there. Parents come first.
#[derive(Clone, Debug, Default, Hash)]
pub struct Skeleton {
    items: Vec<(PathBuf, Item)>,
}

impl Skeleton {
    /// What every root needs: places for `/proc`, devices, the writable directories and our own.
    pub fn mount_points() -> Self {
        let mut skeleton = Self::default();
        for path in [
            "dev",
            "dev/pts",
            "dev/shm",
            "proc",
            "sys",
            "workspace",
            "output",
            "home",
            "home/user",
            "run",
        ] {
            skeleton.directory(path);
        }
        skeleton.add("tmp", Item::Directory { mode: 0o1777, agent: false });
        for device in ["null", "zero", "full", "random", "urandom", "tty"] {
            skeleton.add(&format!("dev/{device}"), Item::File { content: Vec::new(), mode: 0o666 });
        }
        for (name, to) in [
            ("dev/ptmx", "pts/ptmx"),
            ("dev/fd", "/proc/self/fd"),
            ("dev/stdin", "/proc/self/fd/0"),
            ("dev/stdout", "/proc/self/fd/1"),
            ("dev/stderr", "/proc/self/fd/2"),
        ] {
            skeleton.link(name, to);
        }
        for path in [
            "run/belljar",
            "run/belljar/service",
            "run/belljar/trust",
            crate::init::TARGET,
            crate::tools::TARGET,
        ] {
            skeleton.directory(path);
        }
        for path in
            ["run/belljar/private", "run/belljar/private/layers", "run/belljar/private/lower"]
        {
            skeleton.add(path, Item::Directory { mode: 0o700, agent: true });
        }
        skeleton
    }

    pub fn add(&mut self, path: &str, item: Item) {
        self.items.push((PathBuf::from(path), item));
    }

    pub fn directory(&mut self, path: &str) {
        self.add(path, Item::Directory { mode: 0o755, agent: false });
    }

    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Item::File { content: content.into(), mode: 0o644 });
    }

    pub fn link(&mut self, path: &str, to: impl Into<PathBuf>) {
        self.add(path, Item::Link { to: to.into() });
    }

    /// Copies a directory of the host, if it is there.
    pub fn copy(&mut self, path: &str, from: &Path) {
        if let Ok(metadata) = fs::metadata(from)
            && metadata.is_dir()
        {
            let stamp = (metadata.mtime(), metadata.mtime_nsec());
            self.add(path, Item::Copy { from: from.to_owned(), stamp });
        }
    }

    /// The directory with this content below `templates`, made if it is not there yet.
    pub fn build(&self, templates: &Path, name: &str, privileged: bool) -> io::Result<PathBuf> {
        static SCRATCH: AtomicU64 = AtomicU64::new(0);
        let mut hasher = DefaultHasher::new();
        (self, privileged).hash(&mut hasher);
        let path = templates.join(format!("{name}-{:016x}", hasher.finish()));
        if path.exists() {
            return Ok(path);
        }
        fs::create_dir_all(templates)?;
        let serial = SCRATCH.fetch_add(1, Ordering::Relaxed);
        let scratch = templates.join(format!(".{name}-{}-{serial}", std::process::id()));
        fs::create_dir(&scratch)?;
        fs::set_permissions(&scratch, Permissions::from_mode(0o755))?;
        let filled = self.fill(&scratch, privileged);
        let renamed = filled.and_then(|()| fs::rename(&scratch, &path));
        if renamed.is_err() {
            let _ = fs::remove_dir_all(&scratch);
        }
        // Somebody else may have been first; theirs has the same content.
        if path.exists() { Ok(path) } else { renamed.map(|()| path) }
    }

    fn fill(&self, root: &Path, privileged: bool) -> io::Result<()> {
        for (path, item) in &self.items {
            let path = root.join(path);
            match item {
                Item::Directory { mode, agent } => {
                    match fs::create_dir(&path) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error);
                        }
                        _ => {}
                    }
                    if *agent && privileged {
                        chown(&path, Some(AGENT), Some(AGENT))?;
                    }
                    fs::set_permissions(&path, Permissions::from_mode(*mode))?;
                }
                Item::File { content, mode } => {
                    fs::write(&path, content)?;
                    fs::set_permissions(&path, Permissions::from_mode(*mode))?;
                }
                Item::Link { to } => symlink(to, &path)?,
                Item::Copy { from, .. } => copy_tree(from, &path, DEEPEST_COPY)?,
            }
        }
        Ok(())
    }
}

/// How deep copied directories may be.
const DEEPEST_COPY: u32 = 4;

/// Copies directories, links and readable files; nothing else is public.
fn copy_tree(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(source)?, target)?;
        } else if kind.is_dir() && depth > 0 {
            copy_tree(&source, &target, depth - 1)?;
        } else if kind.is_file() && fs::metadata(&source)?.mode() & 0o004 != 0 {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn building_twice_gives_the_same_directory_and_leaves_no_scratch() {
        let templates = tempfile::tempdir().unwrap();
        let skeleton = Skeleton::mount_points();
        let first = skeleton.build(templates.path(), "x", false).unwrap();
        assert_eq!(first, skeleton.build(templates.path(), "x", false).unwrap());
        assert_eq!(fs::read_link(first.join("dev/ptmx")).unwrap(), Path::new("pts/ptmx"));
        assert_eq!(fs::read_dir(templates.path()).unwrap().count(), 1);
    }
}
