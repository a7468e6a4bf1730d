//! Everything below a directory, in order, however deep: pages of listings, one at a time in memory.
//!
//! A directory comes before what is in it. What appears or goes while the walk is under way may or may not be seen;
//! nothing is seen twice. Links are seen, never followed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use belljar_codes::Code;

use super::{FileInfo, FileKind, Files, ListOptions};
use crate::{Error, Result};

/// As deep as the agent lists at once; what is deeper is a listing of its own.
const LISTED_DEPTH: u32 = 64;

/// A tree in which this many entries were seen is being grown by somebody while we walk, or is no use to walk.
const MOST_ENTRIES: u64 = 10_000_000;

/// Listings within each other: far below what paths of 4096 bytes allow, far above what anybody makes.
const MOST_LISTINGS: usize = 16;

#[derive(Debug)]
pub(super) struct Walk {
    files: Files,
    root: PathBuf,
    /// How deep to go, counted from the root.
    depth: u32,
    listings: Vec<Listing>,
    seen: u64,
}

/// One listing that is being gone through.
#[derive(Debug)]
struct Listing {
    /// From the root of the walk.
    base: PathBuf,
    depth: u32,
    after: Option<PathBuf>,
    page: VecDeque<FileInfo>,
    more: bool,
}

impl Walk {
    /// `depth` 1 is what is in the directory itself.
    pub(super) fn new(files: &Files, root: &Path, depth: u32) -> Self {
        let first = Listing::new(PathBuf::new(), depth);
        Self { files: files.clone(), root: root.to_owned(), depth, listings: vec![first], seen: 0 }
    }

    /// The next entry, its path from the root of the walk. Giving up waiting loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<FileInfo>> {
        loop {
            let is_inner = self.listings.len() > 1;
            let Some(listing) = self.listings.last_mut() else { return Ok(None) };
            if let Some(mut entry) = listing.page.pop_front() {
                let deepest = depth_of(&entry.path) == listing.depth;
                listing.after = Some(entry.path.clone());
                entry.path = listing.base.join(&entry.path);
                self.enter(&entry, deepest)?;
                self.seen += 1;
                if self.seen > MOST_ENTRIES {
                    return Err(self.too_much("has too many entries"));
                }
                return Ok(Some(entry));
            }
            if !listing.more {
                self.listings.pop();
                continue;
            }
            let options =
                ListOptions { depth: listing.depth, after: listing.after.clone(), limit: 0 };
            let page = match self.files.list(&self.root.join(&listing.base), &options).await {
                Ok(page) => page,
                // Gone since it was seen, or not ours to see.
                Err(error) if is_inner && is_out_of_reach(&error) => {
                    self.listings.pop();
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Whatever the sandbox says, a page without entries is the last.
            listing.more = page.more && !page.entries.is_empty();
            listing.page = page.entries.into();
        }
    }

    /// Goes on below a directory that is as deep as its listing goes.
    fn enter(&mut self, entry: &FileInfo, deepest: bool) -> Result<()> {
        let here = depth_of(&entry.path);
        if deepest && entry.kind == FileKind::Directory && here < self.depth {
            if self.listings.len() == MOST_LISTINGS {
                return Err(self.too_much("is too deep"));
            }
            self.listings.push(Listing::new(entry.path.clone(), self.depth - here));
        }
        Ok(())
    }

    fn too_much(&self, what: &str) -> Error {
        let shown = belljar_policy::shown(&self.root.to_string_lossy());
        Error::new(Code::FileFailed, format!("the tree at `{shown}` {what}"))
    }
}

impl Listing {
    fn new(base: PathBuf, depth: u32) -> Self {
        let depth = depth.clamp(1, LISTED_DEPTH);
        Self { base, depth, after: None, page: VecDeque::new(), more: true }
    }
}

fn depth_of(path: &Path) -> u32 {
    u32::try_from(path.components().count()).unwrap_or(u32::MAX)
}

/// Whether a path that was seen has gone, changed its kind or may not be read: for whoever goes through a tree, an
/// entry to pass over.
pub(super) fn is_out_of_reach(error: &Error) -> bool {
    matches!(error.code(), Code::FileNotFound | Code::FileDenied | Code::FileKindWrong)
}
