//! Listing a directory, sorted, in pages, with memory bounded by the page and not by the directory.
//!
//! Order is by path, component by component, so that a directory is followed by what is in it. A page starts after a
//! given path; of each directory only the smallest names that can still be on the page are kept.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use belljar_protocol::MAX_FRAME;
use belljar_protocol::v1::{Entries, Kind, List, Metadata};
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::io::Errno;

use super::metadata::describe_entry;
use crate::failure::{Problem, Result};

/// How one entry is looked at; the workspace layer sees more than a plain directory.
pub(super) trait Look {
    fn entry(&self, directory: &OwnedFd, name: &[u8], shown: &[u8]) -> Result<Option<Metadata>>;
}

/// As `ls` does.
#[derive(Debug)]
pub(super) struct Plainly;

impl Look for Plainly {
    fn entry(&self, directory: &OwnedFd, name: &[u8], shown: &[u8]) -> Result<Option<Metadata>> {
        Ok(describe_entry(directory, name, shown)?.map(|(metadata, _)| metadata))
    }
}

const DEFAULT_LIMIT: u32 = 1000;
const LARGEST_LIMIT: u32 = 10_000;

/// Directories below each other, each with an open descriptor.
const DEEPEST: u32 = 64;

/// A page must fit into a frame, with what is around it.
const LARGEST_PAGE: usize = MAX_FRAME - 16 * 1024;

/// What an entry takes on the wire besides its two strings.
const ENTRY_OVERHEAD: usize = 96;

pub(super) fn list(request: &List) -> Result<Entries> {
    let path = request.path.as_slice();
    let directory = open_directory(CWD, path, OFlags::empty())
        .map_err(|errno| Problem::file("open", path, errno))?;
    list_open(&directory, request, &Plainly)
}

/// Lists below an open directory.
pub(super) fn list_open(directory: &OwnedFd, request: &List, look: &impl Look) -> Result<Entries> {
    let limit = match request.limit {
        0 => DEFAULT_LIMIT,
        limit => limit.min(LARGEST_LIMIT),
    };
    let mut page = Page { entries: Vec::new(), limit: limit as usize, size: 0, more: false };
    let after: Vec<&[u8]> = request
        .after
        .split(|&byte| byte == b'/')
        .filter(|component| !component.is_empty())
        .collect();
    walk(directory, &[], &after, request.depth.clamp(1, DEEPEST), &mut page, look)?;
    Ok(Entries { entries: page.entries, more: page.more })
}

struct Page {
    entries: Vec<Metadata>,
    limit: usize,
    size: usize,
    /// There was something that did not fit.
    more: bool,
}

impl Page {
    fn push(&mut self, entry: Metadata) {
        let size = entry.path.len() + entry.link_target.len() + ENTRY_OVERHEAD;
        if self.entries.len() == self.limit || self.size + size > LARGEST_PAGE {
            self.more = true;
        } else {
            self.size += size;
            self.entries.push(entry);
        }
    }
}

fn walk(
    directory: &OwnedFd,
    prefix: &[u8],
    after: &[&[u8]],
    depth: u32,
    page: &mut Page,
    look: &impl Look,
) -> Result {
    let (first, rest) = match after.split_first() {
        Some((first, rest)) => (Some(*first), rest),
        None => (None, &[][..]),
    };
    // One more than fits shows that there is more; the one that the last page ended in may have to be entered again.
    let wanted = page.limit - page.entries.len() + 2;
    for name in smallest_names(directory, first, wanted)? {
        let shown = match prefix {
            [] => name.clone(),
            _ => [prefix, b"/", &name].concat(),
        };
        let seen = first == Some(name.as_slice());
        let Some(entry) = look.entry(directory, &name, &shown)? else { continue };
        let is_directory = entry.kind == i32::from(Kind::Directory);
        if !seen {
            page.push(entry);
        }
        if is_directory && depth > 1 && !page.more {
            let below: &[&[u8]] = if seen { rest } else { &[] };
            match open_directory(directory, &name, OFlags::NOFOLLOW) {
                Ok(inner) => walk(&inner, &shown, below, depth - 1, page, look)?,
                // Not for this user to see, or gone: the entry itself was listed.
                Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(Problem::file("open", &shown, errno)),
            }
        }
        if page.more {
            return Ok(());
        }
    }
    Ok(())
}

/// The smallest names of a directory that are not below `from`, sorted.
fn smallest_names(directory: &OwnedFd, from: Option<&[u8]>, wanted: usize) -> Result<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut space = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut listing = RawDir::new(directory, &mut space);
    while let Some(entry) = listing.next() {
        let entry = entry.map_err(|errno| Problem::file("list", b"", errno))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || from.is_some_and(|from| name < from) {
            continue;
        }
        if let Err(index) = names.binary_search_by(|known| known.as_slice().cmp(name))
            && index < wanted
        {
            names.insert(index, name.to_vec());
            names.truncate(wanted);
        }
    }
    Ok(names)
}

pub(super) fn open_directory(
    directory: impl AsFd,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(directory, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own that goes away again.
    struct Directory(std::path::PathBuf);

    impl Directory {
        fn new(name: &str, files: &[&str]) -> Self {
            let path = std::env::temp_dir().join(format!("belljar-{name}-{}", std::process::id()));
            for file in files {
                let file = path.join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, b"x").unwrap();
            }
            Self(path)
        }

        fn list(&self, depth: u32, after: &str, limit: u32) -> (Vec<String>, bool) {
            let path = self.0.to_str().unwrap().as_bytes().to_vec();
            let request = List { path, depth, after: after.into(), limit, root: 0 };
            let entries = list(&request).unwrap();
            let names = entries
                .entries
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.path).into_owned())
                .collect();
            (names, entries.more)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn every_page_size_gives_the_same_list() {
        let files = ["a/x", "a/y/z", "a-b", "b", "c/d/e/f", "c/g"];
        let directory = Directory::new("pages", &files);
        let all = ["a", "a/x", "a/y", "a/y/z", "a-b", "b", "c", "c/d", "c/d/e", "c/d/e/f", "c/g"];
        assert_eq!(directory.list(9, "", 0), (all.map(String::from).to_vec(), false));
        for limit in 1..=12 {
            let mut found: Vec<String> = Vec::new();
            loop {
                let after = found.last().cloned().unwrap_or_default();
                let (names, more) = directory.list(9, &after, limit);
                assert!(names.len() <= limit as usize && !names.is_empty(), "{limit} {names:?}");
                found.extend(names);
                if !more {
                    break;
                }
            }
            assert_eq!(found, all, "{limit}");
        }
    }

    #[test]
    fn depth_is_how_far_down() {
        let directory = Directory::new("depth", &["a/b/c"]);
        for (depth, expected) in [(0, &["a"][..]), (1, &["a"]), (2, &["a", "a/b"])] {
            assert_eq!(directory.list(depth, "", 0).0, expected);
        }
    }

    #[test]
    fn a_page_may_start_after_something_that_is_gone() {
        let directory = Directory::new("gone", &["a", "c/d", "e"]);
        assert_eq!(directory.list(2, "b/x", 0).0, ["c", "c/d", "e"]);
        assert_eq!(directory.list(2, "c/a", 0).0, ["c/d", "e"]);
        assert_eq!(directory.list(2, "z", 0).0, Vec::<String>::new());
    }
}
