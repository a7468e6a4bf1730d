//! What a process of the host uses, from `/proc`.

use std::fs;

/// One look at a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub resident: u64,
    pub descriptors: usize,
    pub threads: u64,
}

/// `None` where there is no such process.
#[must_use]
pub fn usage(process: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    Some(Usage {
        resident: number("VmRSS")? << 10,
        descriptors: fs::read_dir(format!("/proc/{process}/fd")).ok()?.count(),
        threads: number("Threads")?,
    })
}

/// The most memory that a process ever had resident.
#[must_use]
pub fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Begins the record of [`peak`] anew.
pub fn reset_peak(process: u32) {
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("root may do this");
}
