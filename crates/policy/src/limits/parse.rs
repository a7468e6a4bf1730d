//! Limits as people write them.

use std::time::Duration;

use belljar_codes::Code;

use super::{GIB, KIB, MIB, TIB, format_bytes};
use crate::Invalid;
use crate::invalid::shown;
use crate::number;

/// Less does not hold the agent, a shell and their page tables.
const MIN_MEMORY: u64 = 16 * MIB;
/// Less does not hold a file system's own structures.
const MIN_DISK: u64 = 4 * MIB;
/// No machine has more; beyond it is a slip of the unit.
const MAX_SIZE: u64 = 16 * TIB;

/// A hundredth of a CPU is the smallest share the kernel's CPU bandwidth control accepts (1 ms of a 100 ms period).
const MIN_CPU_MILLIS: u64 = 10;
const MAX_CPU_MILLIS: u64 = 1_024_000;

/// The agent, a supervisor, a file worker, a shell and a pipeline of a few commands.
const MIN_PIDS: u32 = 8;
/// The kernel's own limit on process ids.
const MAX_PIDS: u32 = 4_194_304;

const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// # Errors
/// Where `text` is not a size between 16 MiB and 16 TiB.
pub fn parse_memory(text: &str) -> Result<u64, Invalid> {
    size("memory limit", text, MIN_MEMORY)
}

/// # Errors
/// Where `text` is not a size between 4 MiB and 16 TiB.
pub fn parse_disk(text: &str) -> Result<u64, Invalid> {
    size("disk limit", text, MIN_DISK)
}

/// Thousandths of a CPU.
///
/// # Errors
/// Where `text` is not a number between 0.01 and 1024 with at most three decimals.
pub fn parse_cpus(text: &str) -> Result<u32, Invalid> {
    let refuse = |reason| {
        refuse(
            "CPU limit",
            text,
            reason,
            "use a number between 0.01 and 1024, such as `0.5` or `2`",
        )
    };
    let (number, unit) = number::split(text).ok_or_else(|| refuse("is not a number above zero"))?;
    if !unit.is_empty() {
        return Err(refuse("is not a number of CPUs"));
    }
    let millis = number.times(1000).ok_or_else(|| refuse("is out of range"))?;
    if !(MIN_CPU_MILLIS..=MAX_CPU_MILLIS).contains(&millis) {
        return Err(refuse("is out of range"));
    }
    if number.times_exactly(1000).is_none() {
        return Err(refuse("is finer than a thousandth"));
    }
    u32::try_from(millis).map_err(|_| refuse("is out of range"))
}

/// # Errors
/// Where `text` is not a whole number between 8 and 4194304.
pub fn parse_pids(text: &str) -> Result<u32, Invalid> {
    let refuse = |reason| {
        refuse(
            "process limit",
            text,
            reason,
            "use a whole number between 8 and 4194304; the agent and its helpers count too",
        )
    };
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refuse("is not a whole number above zero"));
    }
    match text.parse() {
        Ok(pids) if (MIN_PIDS..=MAX_PIDS).contains(&pids) => Ok(pids),
        _ => Err(refuse("is out of range")),
    }
}

/// A time in seconds, or with one of the units `ms`, `s`, `m`, `h`, `d`.
///
/// # Errors
/// Where `text` is not a time above zero and up to thirty days.
pub fn parse_timeout(text: &str) -> Result<Duration, Invalid> {
    let refuse = |reason| {
        refuse("timeout", text, reason, "use seconds or a unit, such as `60`, `1.5`, `2m` or `1h`")
    };
    let (number, unit) = number::split(text).ok_or_else(|| refuse("is not a time above zero"))?;
    let nanos_per_unit = match unit.as_str() {
        "ms" => 1_000_000,
        "" | "s" | "sec" | "secs" => 1_000_000_000,
        "m" | "min" | "mins" => 60 * 1_000_000_000,
        "h" => 60 * 60 * 1_000_000_000,
        "d" => 24 * 60 * 60 * 1_000_000_000,
        _ => return Err(refuse("has an unknown unit")),
    };
    let nanos = number.times(nanos_per_unit).ok_or_else(|| refuse("is above 30 days"))?;
    let timeout = Duration::from_nanos(nanos);
    if timeout > MAX_TIMEOUT {
        return Err(refuse("is above 30 days"));
    }
    // The agent counts milliseconds, and 0 means "no limit" to it.
    if timeout < Duration::from_millis(1) {
        return Err(refuse("is not above zero"));
    }
    Ok(timeout)
}

fn size(what: &str, text: &str, least: u64) -> Result<u64, Invalid> {
    let refuse = |reason: &str| {
        let remedy = format!(
            "use a size between {} and {}, such as `512m` or `2g`",
            format_bytes(least),
            format_bytes(MAX_SIZE)
        );
        refuse(what, text, reason, &remedy)
    };
    let (number, unit) = number::split(text).ok_or_else(|| refuse("is not a size above zero"))?;
    let bytes_per_unit = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => TIB,
        _ => return Err(refuse("has an unknown unit")),
    };
    match number.times(bytes_per_unit) {
        Some(bytes) if bytes < least => Err(refuse("is too small")),
        Some(bytes) if bytes <= MAX_SIZE => Ok(bytes),
        _ => Err(refuse("is too large")),
    }
}

fn refuse(what: &str, text: &str, reason: &str, remedy: &str) -> Invalid {
    Invalid::new(Code::InvalidLimit, format!("{what} `{}` {reason}", shown(text)), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        let check = |text: &str, expected: Result<u64, &str>| {
            let found = parse_memory(text);
            let found = found.as_ref().map(|n| *n).map_err(|e| e.message.as_str());
            let expected =
                expected.map_err(|reason| format!("memory limit `{}` {reason}", shown(text)));
            assert_eq!(found, expected.as_ref().map(|n| *n).map_err(String::as_str));
        };
        check("512m", Ok(512 * MIB));
        check("512M", Ok(512 * MIB));
        check("64MiB", Ok(64 * MIB));
        check("64 MiB", Ok(64 * MIB));
        check("64mb", Ok(64 * MIB));
        check("1g", Ok(GIB));
        check("1.5g", Ok(3 * GIB / 2));
        check("16777216", Ok(16 * MIB));
        check("16t", Ok(16 * TIB));
        check("16777215", Err("is too small"));
        check("15m", Err("is too small"));
        check("0", Err("is too small"));
        check("0g", Err("is too small"));
        check("17t", Err("is too large"));
        check("99999999999t", Err("is too large"));
        check("18446744073709551616", Err("is not a size above zero"));
        check("-1", Err("is not a size above zero"));
        check("-512m", Err("is not a size above zero"));
        check("", Err("is not a size above zero"));
        check("lots", Err("is not a size above zero"));
        check("NaN", Err("is not a size above zero"));
        check("1e9", Err("has an unknown unit"));
        check("0x1000000", Err("has an unknown unit"));
        check("512mm", Err("has an unknown unit"));
        check("512m\n", Err("has an unknown unit"));
        assert_eq!(parse_disk("4m").unwrap(), 4 * MIB);
        assert_eq!(parse_disk("3m").unwrap_err().code, Code::InvalidLimit);
    }

    #[test]
    fn cpus() {
        let check = |text: &str, expected: Option<u32>| {
            assert_eq!(parse_cpus(text).ok(), expected, "{text}");
        };
        check("1", Some(1000));
        check("0.5", Some(500));
        check("1.25", Some(1250));
        check("0.01", Some(10));
        check("1024", Some(1_024_000));
        for text in ["0", "0.009", "1024.001", "0.0105", "-1", "", "1c", "inf", "NaN", "1,5"] {
            check(text, None);
        }
    }

    #[test]
    fn pids() {
        let check = |text: &str, expected: Option<u32>| {
            assert_eq!(parse_pids(text).ok(), expected, "{text}");
        };
        check("8", Some(8));
        check("4194304", Some(4_194_304));
        for text in ["7", "0", "-1", "4194305", "99999999999999", "1.5", "1k", "", "+9"] {
            check(text, None);
        }
    }

    #[test]
    fn timeouts() {
        let check = |text: &str, expected: Option<u64>| {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(parse_timeout(text).ok(), expected, "{text}");
        };
        check("60", Some(60_000));
        check("1.5", Some(1500));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("90s", Some(90_000));
        check("250ms", Some(250));
        check("30d", Some(30 * 86_400_000));
        for text in ["0", "0.0001", "-1", "31d", "721h", "1w", "", "soon", "1e3"] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-+0-9.eE a-zA-Z]{0,24}|\\PC*") {
            let _ = parse_memory(&text);
            let _ = parse_cpus(&text);
            let _ = parse_pids(&text);
            let _ = parse_timeout(&text);
        }

        #[test]
        fn shown_sizes_parse_to_about_the_same(bytes in MIN_MEMORY..=MAX_SIZE) {
            let again = parse_memory(&format_bytes(bytes)).unwrap();
            prop_assert!(again.abs_diff(bytes) <= bytes / 10, "{bytes} {again}");
        }
    }
}
