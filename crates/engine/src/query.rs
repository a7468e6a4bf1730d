//! Questions for many records, answered page by page.
//!
//! A page ends with a token that names its last record, so that pages neither repeat nor lose a record because others
//! came or went between two questions. A token carries no right: the scope of whoever asks is applied anew.

use std::collections::BTreeMap;

use belljar_codes::Code;

use crate::process::ProcessStatus;
use crate::sandbox::SandboxState;
use crate::{Error, Result};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

/// Which sandboxes; oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxQuery {
    /// All of them must be there with these values.
    pub labels: BTreeMap<String, String>,
    /// Likewise.
    pub metadata: BTreeMap<String, String>,
    /// Empty: those that have not ended.
    pub states: Vec<SandboxState>,
    pub name_prefix: Option<String>,
    /// [`Page::next`] of the page before.
    pub after: Option<String>,
    /// At most 1000; 100 unless given.
    pub limit: Option<u32>,
}

/// Which processes; newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessQuery {
    /// Id or name.
    pub sandbox: Option<String>,
    /// Empty: all.
    pub statuses: Vec<ProcessStatus>,
    /// [`Page::next`] of the page before.
    pub after: Option<String>,
    /// At most 1000; 100 unless given.
    pub limit: Option<u32>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Asks for what follows; `None` where nothing does.
    pub next: Option<String>,
}

/// Where a page ends: the time and id of its last record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: i64,
    pub(crate) id: String,
}

impl Place {
    fn token(&self) -> String {
        format!("{:x}-{}", self.at, self.id)
    }

    pub(crate) fn parse(token: &str) -> Result<Self> {
        let parsed = token.split_once('-').and_then(|(at, id)| {
            let plain =
                !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric());
            let at = i64::from_str_radix(at, 16).ok()?;
            plain.then(|| Self { at, id: id.to_owned() })
        });
        parsed.ok_or_else(|| {
            let shown = belljar_policy::shown(token);
            Error::new(Code::InvalidArgument, format!("`{shown}` is not a page token"))
                .with_remedy("use the token that came with the page before, or leave it out")
        })
    }
}

pub(crate) fn after(token: Option<&str>) -> Result<Option<Place>> {
    token.map(Place::parse).transpose()
}

pub(crate) fn limit(asked: Option<u32>) -> Result<usize> {
    match asked.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit as usize),
        other => Err(Error::new(Code::InvalidArgument, format!("a page of {other} cannot be had"))
            .with_remedy(format!("ask for 1 to {MAX_LIMIT}"))),
    }
}

/// Makes a page of at most `limit` out of records of which one more was asked for.
pub(crate) fn page<R, T>(
    mut records: Vec<R>,
    limit: usize,
    show: impl Fn(R) -> T,
    place: impl FnOnce(&R) -> Place,
) -> Page<T> {
    let more = records.len() > limit;
    records.truncate(limit);
    let next = if more { records.last().map(|last| place(last).token()) } else { None };
    Page { items: records.into_iter().map(show).collect(), next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_others_are_refused() {
        let place = Place { at: 1_700_000_000_123, id: "n001abcd".to_owned() };
        assert_eq!(Place::parse(&place.token()).unwrap(), place);
        for token in
            ["", "-", "12", "zz-a", "12-", "12-a b", "12-'", &format!("1-{}", "a".repeat(65))]
        {
            assert_eq!(Place::parse(token).unwrap_err().code(), Code::InvalidArgument, "{token}");
        }
    }

    #[test]
    fn pages_have_sensible_sizes() {
        assert_eq!(limit(None).unwrap(), 100);
        assert_eq!(limit(Some(1000)).unwrap(), 1000);
        assert!(limit(Some(0)).is_err());
        assert!(limit(Some(1001)).is_err());
    }
}
