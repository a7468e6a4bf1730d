//! Memory, processor, output and arguments.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::{Duration, Instant};

use super::argument;
use crate::errno;
use crate::raw;
use crate::report::Report;

const MIB: usize = 1 << 20;

/// Touches memory, a mebibyte at a time, until killed, refused, or BYTES are in use. What was reached is printed to
/// standard error along the way, since the end may be sudden.
pub(super) fn memory(arguments: &[OsString]) -> Result<Report, String> {
    let most: usize = argument(arguments, 0, "bytes")?;
    let mut report = Report::new("memory");
    let mut held: Vec<Vec<u8>> = Vec::new();
    let mut used = 0;
    while used < most {
        let mut block = Vec::new();
        if block.try_reserve_exact(MIB).is_err() {
            report.fact("refused_by", "ENOMEM");
            break;
        }
        // Not zero: pages of zeros could be shared.
        block.resize(MIB, 0xa5);
        held.push(std::hint::black_box(block));
        used += MIB;
        if used % (32 * MIB) == 0 {
            let _ = writeln!(io::stderr(), "{{\"used\":{used}}}");
        }
    }
    report.fact("used", used);
    Ok(report)
}

/// Keeps THREADS threads busy for MILLISECONDS and tells how much processor time they got.
pub(super) fn spin(arguments: &[OsString]) -> Result<Report, String> {
    let time = Duration::from_millis(argument(arguments, 0, "milliseconds")?);
    let threads: usize = argument(arguments, 1, "a number of threads")?;
    let mut report = Report::new("spin");
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut value = 1_u64;
                while start.elapsed() < time {
                    for _ in 0..10_000 {
                        value = std::hint::black_box(
                            value.wrapping_mul(6364136223846793005).wrapping_add(1),
                        );
                    }
                }
            });
        }
    });
    report.fact("wall_us", microseconds(start.elapsed()));
    report.fact("cpu_us", microseconds(raw::cpu_time()));
    Ok(report)
}

/// Writes BYTES to standard output as fast as they are taken; the report goes to standard error.
pub(super) fn flood(arguments: &[OsString]) -> Result<Report, String> {
    let most: usize = argument(arguments, 0, "bytes")?;
    let mut report = Report::new("flood");
    let block = "y\n".repeat(32 * 1024);
    let mut out = io::stdout().lock();
    let mut written = 0;
    while written < most {
        let piece = block.len().min(most - written);
        if let Err(error) = out.write_all(&block.as_bytes()[..piece]) {
            report.fact("refused_by", error.raw_os_error().map_or("?", errno::name));
            break;
        }
        written += piece;
    }
    report.fact("written", written);
    let _ = writeln!(io::stderr(), "{report}");
    Ok(report)
}

/// What arrived as arguments and environment.
pub(super) fn arguments(arguments: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("arguments");
    report.fact("count", arguments.len());
    report.fact("bytes", arguments.iter().map(|argument| argument.len()).sum::<usize>());
    let hex: Vec<String> = arguments
        .iter()
        .take(8)
        .map(|argument| argument.as_bytes().iter().take(32).map(|b| format!("{b:02x}")).collect())
        .collect();
    report.fact("first", hex);
    let environment = std::env::vars_os();
    let bytes: usize = environment.map(|(name, value)| name.len() + value.len() + 2).sum();
    report.fact("environment_bytes", bytes);
    let names: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    report.fact("environment", names);
    Ok(report)
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
