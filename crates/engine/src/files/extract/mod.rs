//! Archives from outside, extracted inside.
//!
//! An archive is somebody's input: every entry is checked before anything is written for it, and the first that is not
//! plain refuses the archive (`archive-refused`, naming the entry). Refused are names with `..`, absolute names, names
//! that occur twice or lead through a link, links that leave the target, devices and pipes, sparse and contradictory
//! headers, and more of anything than [`ExtractLimits`] allow. Writing is done by the agent as the workload's user, which
//! is the wall; the checks keep an archive from tricking whoever extracts it.
//!
//! - Links are made last, so no entry is written through one, whatever the file system thinks of upper and lower case.
//! - Hard links become copies of what they name, which must have come before.
//! - Files appear complete, in place of files and links that were there; directories are merged.
//! - Owners and times are not kept, nor are set-user-id and similar bits.
//! - Of a tar archive, what came before a refused entry stays. A zip archive is received whole before it is looked at
//!   (its directory is at the end), in a file without a name below the state directory; all its headers are checked
//!   before the first entry is written, so only contents that belie their headers leave something behind.

mod limits;
mod names;
mod pax;
mod source;
mod spool;
mod tar;
mod tar_header;
mod tree;
mod zip;
mod zip_directory;
mod zip_end;

use std::path::Path;

use belljar_codes::Code;
use tokio::io::AsyncRead;

pub use self::limits::ExtractLimits;
pub(crate) use self::spool::{Shelf, Spools};

use self::limits::Budget;
use self::source::Source;
use self::tree::Tree;
use super::{ArchiveFormat, Files};
use crate::{Error, Result};

/// What was extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtractReport {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    pub bytes: u64,
}

impl Files {
    /// Extracts an archive into a directory, which is made where it is missing.
    pub async fn extract(
        &self,
        path: &Path,
        format: ArchiveFormat,
        source: impl AsyncRead + Unpin + Send,
        limits: ExtractLimits,
    ) -> Result<ExtractReport> {
        let tree = Tree::new(self, path, limits);
        match format {
            ArchiveFormat::Tar => tar::extract(Source::plain(source, limits), tree).await,
            ArchiveFormat::TarGz => tar::extract(Source::compressed(source, limits), tree).await,
            ArchiveFormat::Zip => {
                let spool = spool::Spool::fill(&self.spool, source, limits.archive_bytes).await?;
                zip::extract(spool, tree).await
            }
        }
    }
}

/// A refusal of one entry.
fn refused(entry: &[u8], why: &str) -> Error {
    let shown = belljar_policy::shown(&String::from_utf8_lossy(entry));
    Error::new(Code::ArchiveRefused, format!("entry `{shown}` {why}"))
        .with_remedy("make an archive of plain files, directories and links that stay inside it")
}

/// A refusal of the archive as a whole.
fn refused_archive(why: impl std::fmt::Display) -> Error {
    Error::new(Code::ArchiveRefused, format!("the archive {why}"))
        .with_remedy("check that it is complete and of the format that was named")
}

fn failed_to_read(source: std::io::Error) -> Error {
    Error::new(Code::FileFailed, "receive the archive").with_source(source)
}
