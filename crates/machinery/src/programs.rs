//! The minimal-PATH profile: directories in which only the listed programs are what they seem.
//!
//! Each directory of programs is covered by one of the same names, in which every name leads to a stub that reports
//! the attempt and exits 126; the listed programs are bound onto their names. What is not listed does not exist at
//! its place, so it cannot be run by absolute path either.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use belljar_policy::Programs;

use crate::skeleton::{Item, Skeleton};

/// The stub's name in a covering directory; no program has it.
const STUB: &str = ".belljar-denied";

/// A directory to cover and what to bind into it.
#[derive(Clone, Debug)]
pub struct Cover {
    /// The covering directory on the host.
    pub directory: PathBuf,
    /// Relative to the sandbox's root.
    pub target: String,
    /// Real files and the names, relative to the sandbox's root, that they are bound to.
    pub programs: Vec<(PathBuf, String)>,
}

/// Covers for every directory of `search_path` that exists below `root` (`/` for the host template).
///
/// # Errors
/// `NotFound` with the name of the first listed program that is in none of the directories.
pub fn covers(
    root: &Path,
    search_path: &[String],
    programs: &Programs,
    templates: &Path,
    stub: &[u8],
    privileged: bool,
) -> io::Result<Vec<Cover>> {
    let mut covers = Vec::new();
    let mut seen = BTreeSet::new();
    let mut found = BTreeSet::new();
    for directory in search_path {
        let real = root.join(directory.trim_start_matches('/'));
        let Ok(real) = fs::canonicalize(&real) else { continue };
        let Ok(inside) = real.strip_prefix(root) else { continue };
        if !real.starts_with(root) || !seen.insert(real.clone()) {
            continue; // a link to a directory that is covered already, or out of the root
        }
        let target = inside.to_string_lossy().into_owned();
        let mut skeleton = Skeleton::default();
        skeleton.add(STUB, Item::File { content: stub.to_vec(), mode: 0o755 });
        let mut bound = Vec::new();
        for entry in fs::read_dir(&real)?.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let program = fs::canonicalize(entry.path()).ok().filter(|path| path.is_file());
            match program {
                Some(program) if programs.contains(&name) => {
                    skeleton.file(&name, "");
                    found.insert(name.clone());
                    bound.push((program, format!("{target}/{name}")));
                }
                _ => skeleton.link(&name, STUB),
            }
        }
        let directory = skeleton.build(templates, "programs", privileged)?;
        covers.push(Cover { directory, target, programs: bound });
    }
    match programs.iter().find(|name| !found.contains(*name)) {
        None => Ok(covers),
        Some(missing) => Err(io::Error::new(io::ErrorKind::NotFound, missing.to_owned())),
    }
}
