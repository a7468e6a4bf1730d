//! What a run left in `/output`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use belljar_codes::Code;

use crate::Result;
use crate::files::{FileKind, Files, ListOptions};

const OUTPUT: &str = "/output";

/// How deep artifacts may lie, and how many are told of: a workload may leave millions of files.
const DEPTH: u32 = 16;
const MOST: usize = 1000;

/// Pages looked at before giving up on finding more.
const PAGES: usize = 32;

/// Times of files come from a clock that lags a few milliseconds behind.
const CLOCK_SLACK: Duration = Duration::from_millis(20);

/// A file that came out of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Inside the sandbox.
    pub path: PathBuf,
    pub bytes: u64,
}

pub(crate) async fn artifacts(files: &Files, since: SystemTime) -> Result<Vec<Artifact>> {
    let since = since.checked_sub(CLOCK_SLACK).unwrap_or(since);
    let mut found = Vec::new();
    let mut options = ListOptions { depth: DEPTH, ..ListOptions::default() };
    for _ in 0..PAGES {
        let listing = match files.list(Path::new(OUTPUT), &options).await {
            Ok(listing) => listing,
            // A template may have no such directory; then there are no artifacts.
            Err(error) if error.code() == Code::FileNotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let last = listing.entries.last().map(|entry| entry.path.clone());
        let new = listing
            .entries
            .into_iter()
            .filter(|entry| entry.kind == FileKind::File && entry.modified >= since);
        found.extend(
            new.map(|entry| Artifact {
                path: Path::new(OUTPUT).join(entry.path),
                bytes: entry.size,
            }),
        );
        if !listing.more || last.is_none() || found.len() >= MOST {
            break;
        }
        options.after = last;
    }
    found.truncate(MOST);
    Ok(found)
}
