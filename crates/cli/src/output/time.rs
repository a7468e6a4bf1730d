//! Times as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_api::{Timestamp, rfc3339};

/// As it is written everywhere, or `-`.
pub(crate) fn time(time: Option<&Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), rfc3339)
}

/// `5 s`, `3 min`, `2 h`, `4 d`: how long ago, roughly.
pub(crate) fn age(time: Option<&Timestamp>) -> String {
    age_at(time, SystemTime::now())
}

fn age_at(time: Option<&Timestamp>, now: SystemTime) -> String {
    let Some(time) = time else { return String::new() };
    let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(time.seconds).unwrap_or(0));
    let seconds = now.duration_since(at).unwrap_or(Duration::ZERO).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let check = |seconds: u64, expected: &str| {
            let found =
                age_at(Some(&Timestamp::default()), UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(found, expected);
        };
        check(5, "5 s");
        check(180, "3 min");
        check(7200, "2 h");
        check(345_600, "4 d");
        let later = Timestamp { seconds: 9, nanos: 0 };
        assert_eq!(age_at(Some(&later), UNIX_EPOCH), "0 s");
        assert_eq!(age_at(None, UNIX_EPOCH), "");
        assert_eq!(time(None), "-");
    }
}
