//! Between the API's messages and the engine's types. Everything that a caller sends is checked here.

mod command;
mod create;
mod event;
mod file;
mod network;
mod policy;
mod process;
mod sandbox;
mod snapshot;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;

pub(crate) use command::{exec_request, hint_of, terminal};
pub(crate) use create::{create_request, explain_request, lease};
pub(crate) use event::{event, kind, kind_of};
pub(crate) use file::{
    archive_format, file_event, file_info, page_token, path, read_token, search_hit, write_mode,
};
pub(crate) use network::{
    approval, approval_answer, network_change, network_decision, sandbox_network,
};
pub(crate) use policy::{kept_policy, policy_layers, policy_name, whole_policy};
pub(crate) use process::{
    artifact, channel, exec_response, listed_process, offsets, process, process_id, status_of,
};
pub(crate) use sandbox::{enforcement, explanation, layer_change, sandbox, state_of};
pub(crate) use snapshot::{restored, snapshot};

use crate::problem::{Problem, Result};

/// Nobody means a longer time than a year.
const LONGEST: f64 = 366.0 * 24.0 * 3600.0;

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    }
}

pub(crate) fn system_time(time: &Timestamp) -> SystemTime {
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    UNIX_EPOCH + Duration::new(seconds.min(1 << 40), u32::try_from(time.nanos).unwrap_or(0))
}

/// A time span of a request.
pub(crate) fn seconds(name: &str, value: f64) -> Result<Duration> {
    if value.is_finite() && (0.0..=LONGEST).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(Problem::invalid(format!("`{name}` is {value}, which is no time span that can be meant"))
        .with_remedy("give seconds from 0 to a year"))
}

pub(crate) fn in_seconds(duration: Option<Duration>) -> f64 {
    duration.map_or(0.0, |duration| duration.as_secs_f64())
}

/// A field that every request of its kind has.
pub(crate) fn required<'a>(name: &str, value: &'a str) -> Result<&'a str> {
    if value.is_empty() {
        return Err(
            Problem::invalid(format!("`{name}` is missing")).with_remedy(format!("give `{name}`"))
        );
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_bounded() {
        assert_eq!(seconds("t", 1.5).unwrap(), Duration::from_millis(1500));
        assert_eq!(seconds("t", 0.0).unwrap(), Duration::ZERO);
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(seconds("t", bad).is_err(), "{bad}");
        }
    }
}
