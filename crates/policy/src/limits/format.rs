//! Limits as people read them.

use std::time::Duration;

use super::{GIB, KIB, MIB, TIB};

/// `512 MiB`, `1.5 GiB`: at most one decimal, rounded down.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        TIB.. => (TIB, "TiB"),
        GIB.. => (GIB, "GiB"),
        MIB.. => (MIB, "MiB"),
        KIB.. => (KIB, "KiB"),
        _ => return format!("{bytes} B"),
    };
    let tenth = bytes % unit * 10 / unit;
    let whole = bytes / unit;
    if tenth == 0 { format!("{whole} {name}") } else { format!("{whole}.{tenth} {name}") }
}

/// `1`, `0.5`, `1.25`.
#[must_use]
pub fn format_cpus(millis: u32) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `60 s`, `1.5 s`, `2 min`, `1 h`: the largest unit that gives a whole number, otherwise seconds.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let millis = duration.subsec_millis();
    if millis != 0 {
        let text = format!("{seconds}.{millis:03}");
        return format!("{} s", text.trim_end_matches('0'));
    }
    match seconds {
        s if s > 0 && s % 86_400 == 0 => format!("{} d", s / 86_400),
        s if s > 0 && s % 3600 == 0 => format!("{} h", s / 3600),
        s if s > 60 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes() {
        let check = |bytes, expected: &str| assert_eq!(format_bytes(bytes), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1024, "1 KiB");
        check(512 * MIB, "512 MiB");
        check(GIB + GIB / 2, "1.5 GiB");
        check(GIB - 1, "1023.9 MiB");
        check(16 * TIB, "16 TiB");
        check(u64::MAX, "16777215.9 TiB");
    }

    #[test]
    fn cpus() {
        let check = |millis, expected: &str| assert_eq!(format_cpus(millis), expected);
        check(1000, "1");
        check(500, "0.5");
        check(1250, "1.25");
        check(10, "0.01");
        check(100_000, "100");
    }

    #[test]
    fn durations() {
        let check = |millis, expected: &str| {
            assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        };
        check(60_000, "60 s");
        check(120_000, "2 min");
        check(1500, "1.5 s");
        check(250, "0.25 s");
        check(3_600_000, "1 h");
        check(86_400_000, "1 d");
        check(61_000, "61 s");
        check(0, "0 s");
    }
}
