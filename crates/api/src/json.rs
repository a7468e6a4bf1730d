//! How the values that JSON has no word for are written: enums as words, times as RFC 3339, bytes as base64 or text.
//!
//! Generated code names these functions by path: `one` for a plain field, `maybe` for an optional one, `many` for a
//! repeated one, and `read_…` for the way back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;

pub(crate) mod base64;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod word;

/// A time as it is written everywhere, to the millisecond.
#[must_use]
pub fn rfc3339(time: &Timestamp) -> String {
    humantime::format_rfc3339_millis(system_time(time)).to_string()
}

/// The time that a text in the form of [`rfc3339`] means; times before 1970 are none.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let since = humantime::parse_rfc3339_weak(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp {
        seconds: i64::try_from(since.as_secs()).ok()?,
        nanos: i32::try_from(since.subsec_nanos()).ok()?,
    })
}

fn system_time(time: &Timestamp) -> SystemTime {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    let nanos = u32::try_from(time.nanos).unwrap_or(0);
    // The writer of RFC 3339 knows years up to 9999.
    const LAST: u64 = 253_402_300_799;
    UNIX_EPOCH + Duration::new(seconds.min(LAST), nanos.min(999_999_999))
}
