//! Who the calling process is.

/// Whether the caller has the administrator's capability over the initial user namespace's mounts and ids.
///
/// Being uid 0 proves little (a container's root is one too), so this asks for the capability and for a full id map.
#[must_use]
pub fn is_privileged() -> bool {
    let admin = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN));
    admin && maps_all_ids()
}

fn maps_all_ids() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| {
        map.lines()
            .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
            .sum::<u64>()
            >= u64::from(u32::MAX)
    })
}
