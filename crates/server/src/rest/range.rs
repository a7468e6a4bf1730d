//! The part of a file that a request wants.

use crate::problem::{Problem, Result};

/// Bytes from `start` up to and without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What the header `range` asks for of a file of that size. `None`: all of it, also where several parts are asked for
/// or the header makes no sense, as HTTP allows.
///
/// # Errors
/// Where the part lies outside of the file.
pub(super) fn wanted(header: Option<&str>, size: u64) -> Result<Option<Part>> {
    let Some((first, last)) = header
        .and_then(|header| header.trim().strip_prefix("bytes="))
        .filter(|ranges| !ranges.contains(','))
        .and_then(|range| range.split_once('-'))
    else {
        return Ok(None);
    };
    let part = match (first.trim(), last.trim()) {
        ("", length) => number(length).map(|length| (size.saturating_sub(length), size)),
        (start, "") => number(start).map(|start| (start, size)),
        (start, last) => {
            let pair = number(start).zip(number(last)).filter(|(start, last)| start <= last);
            pair.map(|(start, last)| (start, last.saturating_add(1).min(size)))
        }
    };
    match part {
        None => Ok(None),
        Some((start, end)) if start < end => Ok(Some(Part { start, end })),
        Some(_) => {
            Err(Problem::invalid(format!("the range lies outside of the file of {size} bytes"))
                .with_remedy("ask for a part that exists"))
        }
    }
}

/// Digits only: `parse` takes a sign too.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let check = |header: &str, expected: Option<(u64, u64)>| {
            let expected = expected.map(|(start, end)| Part { start, end });
            assert_eq!(wanted(Some(header), 10).unwrap(), expected, "{header}");
        };
        check("bytes=0-3", Some((0, 4)));
        check("bytes=3-", Some((3, 10)));
        check("bytes=-4", Some((6, 10)));
        check("bytes=-40", Some((0, 10)));
        check("bytes=8-100", Some((8, 10)));
        check("bytes=0-1,3-4", None);
        check("bytes=5-2", None);
        check("bytes=+1-2", None);
        check("bytes=-", None);
        check("lines=1-2", None);
        assert_eq!(wanted(None, 10).unwrap(), None);
    }

    #[test]
    fn parts_outside_are_refused() {
        for header in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=18446744073709551615-"] {
            assert!(wanted(Some(header), 10).is_err(), "{header}");
        }
        assert!(wanted(Some("bytes=0-"), 0).is_err());
    }
}
