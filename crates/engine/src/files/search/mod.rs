//! Searching a tree by name and content, one hit at a time.
//!
//! The host walks and matches; the agent only lists and reads. Patterns are matched in linear time and are bounded in
//! what they compile to, and regular expressions do it aside, so neither a pattern nor a file can hold the host up. Files that cannot be read, have gone, or
//! are binary are passed over.

mod lines;
mod matcher;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_codes::Code;
use tokio::task::JoinHandle;

use self::lines::{Found, Lines};
use self::matcher::{ContentMatcher, NameMatcher};
use super::walk::{Walk, is_out_of_reach};
use super::{FileInfo, FileKind, FileReader, Files};
use crate::aside::Turns;
use crate::{Error, Result, aside_if};

/// Hits without being asked for a number, and at most.
const DEFAULT_RESULTS: u64 = 1000;
const MOST_RESULTS: u64 = 100_000;

/// Larger files are rarely what somebody searches.
const DEFAULT_FILE_SIZE: u64 = 16 << 20;

/// What to look for. Without name and content everything is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchRequest {
    /// The directory to search, or one file.
    pub path: PathBuf,
    /// A glob: of the name, or of the path below `path` if it has a slash. `**` goes through directories.
    pub name: Option<String>,
    /// Found in lines of regular files.
    pub content: Option<String>,
    /// `content` is a regular expression and not the text itself.
    pub regex: bool,
    /// For both name and content.
    pub case_insensitive: bool,
    /// `None`: as deep as it goes. 1: only what is in the directory itself.
    pub max_depth: Option<u32>,
    /// `None`: 1000; never more than 100,000.
    pub max_results: Option<u64>,
    /// Contents of larger files are not searched. `None`: 16 MiB.
    pub max_file_size: Option<u64>,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// Inside the sandbox, beginning with the path that was searched.
    pub path: PathBuf,
    pub kind: FileKind,
    pub size: u64,
    /// Where the content was found, counted from 1; the column in bytes.
    pub line: Option<u64>,
    pub column: Option<u64>,
    /// The line, or the part around the match if it is long. Bytes that are not text are replaced.
    pub text: Option<String>,
}

/// A search under way; ends when dropped.
#[derive(Debug)]
pub struct Search {
    files: Files,
    root: PathBuf,
    name: Option<NameMatcher>,
    content: Option<Arc<ContentMatcher>>,
    max_file_size: u64,
    left: u64,
    truncated: bool,
    /// The one file to look at, where the search is not of a directory.
    single: Option<FileInfo>,
    walk: Option<Walk>,
    open: Option<OpenFile>,
}

/// Lines that are being matched, given back with what was found.
type Matching = JoinHandle<Result<(Lines, Option<Found>)>>;

/// A large pattern takes seconds for a long line, which nothing else is to wait for.
static MATCHING: Turns = Turns::new();

#[derive(Debug)]
struct OpenFile {
    entry: FileInfo,
    reader: FileReader,
    lines: Lines,
    /// Has the lines until it ends. Kept here, so that nothing is lost if nobody waits for a moment.
    matching: Option<Matching>,
}

impl OpenFile {
    fn new(entry: FileInfo, reader: FileReader) -> Self {
        Self { entry, reader, lines: Lines::new(), matching: None }
    }

    /// The next line of what was read that matches.
    async fn find(&mut self, content: &Arc<ContentMatcher>) -> Result<Option<Found>> {
        if content.is_quick() {
            return Ok(self.lines.find(content));
        }
        let matching = self.matching.get_or_insert_with(|| {
            let mut lines = std::mem::replace(&mut self.lines, Lines::new());
            let content = Arc::clone(content);
            tokio::spawn(MATCHING.take(move || {
                let found = lines.find(&content);
                (lines, found)
            }))
        });
        let ended = matching.await;
        self.matching = None;
        let ended = ended.map_err(|source| {
            Error::new(Code::Internal, "a task of the engine ended").with_source(source)
        })?;
        let (lines, found) = ended?;
        self.lines = lines;
        Ok(found)
    }
}

impl Files {
    /// Searches below a path. Patterns that cannot be used are refused here, everything else shows with the hits.
    pub async fn search(&self, request: &SearchRequest) -> Result<Search> {
        let sensitive = !request.case_insensitive;
        let name = request.name.as_deref().map(|glob| NameMatcher::new(glob, sensitive));
        let name = name.transpose()?;
        let content = match request.content.clone() {
            None => None,
            Some(pattern) => {
                let is_regex = request.regex;
                let compile = move || ContentMatcher::new(&pattern, is_regex, sensitive);
                Some(Arc::new(aside_if(is_regex, compile).await??))
            }
        };
        let root = self.stat(&request.path, true).await?;
        let depth = request.max_depth.unwrap_or(u32::MAX).max(1);
        let is_directory = root.kind == FileKind::Directory;
        Ok(Search {
            files: self.clone(),
            root: request.path.clone(),
            name,
            content,
            max_file_size: request.max_file_size.unwrap_or(DEFAULT_FILE_SIZE),
            left: request.max_results.unwrap_or(DEFAULT_RESULTS).min(MOST_RESULTS),
            truncated: false,
            walk: is_directory.then(|| Walk::new(self, &request.path, depth)),
            single: (!is_directory).then_some(root),
            open: None,
        })
    }
}

impl Search {
    /// The next hit; `None` at the end. Giving up waiting loses nothing.
    pub async fn next(&mut self) -> Result<Option<SearchHit>> {
        let hit = self.find().await?;
        if hit.is_some() && self.left == 0 {
            self.truncated = true;
            self.walk = None;
            self.open = None;
            return Ok(None);
        }
        self.left = self.left.saturating_sub(1);
        Ok(hit)
    }

    /// Whether there was more than the number of hits that was asked for; known after the end.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    async fn find(&mut self) -> Result<Option<SearchHit>> {
        loop {
            if let Some(hit) = self.find_in_open_file().await? {
                return Ok(Some(hit));
            }
            let Some(entry) = self.next_entry().await? else { return Ok(None) };
            // Of a single file its own path is all there is to match.
            let below = match entry.path.strip_prefix(&self.root) {
                Ok(below) if !below.as_os_str().is_empty() => below,
                _ => &entry.path,
            };
            if self.name.as_ref().is_some_and(|name| !name.matches(below)) {
                continue;
            }
            if self.content.is_none() {
                return Ok(Some(hit(&entry, None)));
            }
            if entry.kind == FileKind::File && entry.size <= self.max_file_size {
                // The size may have changed, or be unknown as for files of the kernel.
                let reader = self.files.read(&entry.path, 0, Some(self.max_file_size)).await?;
                self.open = Some(OpenFile::new(entry, reader));
            }
        }
    }

    async fn next_entry(&mut self) -> Result<Option<FileInfo>> {
        if let Some(single) = self.single.take() {
            return Ok(Some(single));
        }
        let Some(walk) = &mut self.walk else { return Ok(None) };
        let mut entry = walk.next().await?;
        if let Some(entry) = &mut entry {
            entry.path = self.root.join(&entry.path);
        }
        Ok(entry)
    }

    async fn find_in_open_file(&mut self) -> Result<Option<SearchHit>> {
        let (Some(open), Some(content)) = (&mut self.open, &self.content) else { return Ok(None) };
        loop {
            if let Some(found) = open.find(content).await? {
                return Ok(Some(hit(&open.entry, Some(found))));
            }
            let goes_on = match open.reader.next().await {
                Ok(Some(piece)) => open.lines.push(piece),
                Ok(None) => open.lines.end(),
                Err(error) if is_out_of_reach(&error) => false,
                Err(error) => return Err(error),
            };
            if !goes_on {
                break;
            }
        }
        self.open = None;
        Ok(None)
    }
}

fn hit(entry: &FileInfo, found: Option<Found>) -> SearchHit {
    let (kind, size, path) = (entry.kind, entry.size, Path::to_owned(&entry.path));
    match found {
        Some(found) => SearchHit {
            path,
            kind,
            size,
            line: Some(found.line),
            column: Some(found.column),
            text: Some(found.text),
        },
        None => SearchHit { path, kind, size, line: None, column: None, text: None },
    }
}
