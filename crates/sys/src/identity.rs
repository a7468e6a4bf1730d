//! Who the calling process is, and who it is for files.

use rustix::process::DumpableBehavior;
use rustix::thread::CapabilitySets;

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

/// Looks at files as another user does, until it is dropped.
///
/// Of the calling thread alone: meant for processes that have one. The rest of the identity stays as it is, so nobody
/// gains a hold on this process by it.
#[derive(Debug)]
pub struct FileIdentity {
    uid: u32,
    gid: u32,
    capabilities: Option<CapabilitySets>,
    dumpable: Option<DumpableBehavior>,
}

impl FileIdentity {
    /// Where the kernel does not let it, nothing changes.
    #[must_use]
    pub fn assume(uid: u32, gid: u32) -> Self {
        let capabilities = rustix::thread::capabilities(None).ok();
        let dumpable = rustix::process::dumpable_behavior().ok();
        let (uid, gid) = set_file_ids(uid, gid);
        Self { uid, gid, capabilities, dumpable }
    }
}

impl Drop for FileIdentity {
    fn drop(&mut self) {
        set_file_ids(self.uid, self.gid);
        // Becoming root for files and back takes capabilities away; any change makes the process as dumpable as the
        // host's setting says.
        if let Some(capabilities) = self.capabilities {
            let _ = rustix::thread::set_capabilities(None, capabilities);
        }
        if let Some(dumpable) = self.dumpable {
            let _ = rustix::process::set_dumpable_behavior(dumpable);
        }
    }
}

/// Returns the ids as they were before.
fn set_file_ids(uid: u32, gid: u32) -> (u32, u32) {
    // SAFETY: both calls take and return plain numbers and touch no memory of ours.
    let before = unsafe { (libc::setfsuid(uid), libc::setfsgid(gid)) };
    (before.0.cast_unsigned(), before.1.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_looked_at_as_another_user_and_then_as_oneself_again() {
        if !is_privileged() {
            println!("SKIPPED files_are_looked_at_as_another_user: that needs root");
            return;
        }
        // Ids for files are a thread's own, and so are capabilities.
        let looked = std::thread::spawn(|| {
            let secret = tempfile::tempdir().unwrap();
            let path = secret.path().join("x");
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
            let readable = || std::fs::read(&path).is_ok();
            let before = rustix::thread::capabilities(None).unwrap();
            let other = FileIdentity::assume(65_534, 65_534);
            let as_other = readable();
            drop(other);
            (as_other, readable(), before == rustix::thread::capabilities(None).unwrap())
        });
        assert_eq!(looked.join().unwrap(), (false, true, true));
    }
}
