//! Times as zip archives have them: local time without a zone, here always UTC, from 1980 on, in steps of two seconds.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 60 * 60;

/// The earliest and the latest time there is a word for.
const FIRST: (u16, u16) = (0, (1 << 5) | 1);
const LAST: (u16, u16) = ((23 << 11) | (59 << 5) | 29, (127 << 9) | (12 << 5) | 31);

/// Time and date.
pub(super) fn dos_time(time: SystemTime) -> (u16, u16) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / DAY);
    match year {
        ..1980 => FIRST,
        1980..=2107 => {
            let second = seconds % DAY;
            let time = ((second / 3600) << 11) | ((second / 60 % 60) << 5) | (second % 60 / 2);
            let date = ((year - 1980) << 9) | (month << 5) | day;
            (time as u16, date as u16)
        }
        _ => LAST,
    }
}

/// Year, month and day of a day since 1970: the calendar repeats every 400 years, and years that begin in March have
/// their odd day at the end.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_days() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_454, (2026, 1, 1)),
        ] {
            assert_eq!(civil(days), expected);
        }
        assert_eq!(dos_time(UNIX_EPOCH), FIRST);
        assert_eq!(dos_time(UNIX_EPOCH + Duration::from_secs(1 << 40)), LAST);
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_001);
        assert_eq!(dos_time(time), ((22 << 11) | (13 << 5) | 10, (43 << 9) | (11 << 5) | 14));
    }
}
