//! Rules about what may be done below a directory, enforced by the kernel's Landlock.
//!
//! Everything that this kernel's Landlock can control is handled, so it is denied wherever no rule allows it. Making
//! device nodes is in no [`Access`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// What a rule allows below its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, listing, executing.
    ReadExecute,
    /// Everything but device nodes.
    ReadWrite,
    /// Reading, writing and ioctl on what exists; nothing is created.
    Devices,
}

/// A set of rules that a process can put on itself.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
}

// `LANDLOCK_ACCESS_FS_*`.
const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// The rights that mean something on a file; the kernel refuses others in a rule whose path is no directory.
const ON_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// All rights up to each version of the interface, from version 1.
const HANDLED: [u64; 5] =
    [REFER - 1, TRUNCATE - 1, IOCTL_DEV - 1, IOCTL_DEV - 1, (IOCTL_DEV << 1) - 1];

/// The version of Landlock that this kernel speaks; 0 if it has none.
#[must_use]
pub fn version() -> u32 {
    const CREATE_RULESET_VERSION: usize = 1;
    // SAFETY: with this flag the call takes no pointer and makes nothing.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

impl Access {
    fn rights(self) -> u64 {
        let rights = match self {
            Self::ReadExecute => EXECUTE | READ_FILE | READ_DIR,
            Self::ReadWrite => {
                let files = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE;
                let directories = READ_DIR | REMOVE_DIR | REMOVE_FILE | REFER;
                files | directories | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
            }
            Self::Devices => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        };
        rights & !(MAKE_CHAR | MAKE_BLOCK)
    }
}

impl Ruleset {
    /// An empty set, which denies everything. `None` if the kernel has no Landlock.
    pub fn new() -> io::Result<Option<Self>> {
        let newest = (version() as usize).min(HANDLED.len());
        let Some(&handled) = newest.checked_sub(1).and_then(|index| HANDLED.get(index)) else {
            return Ok(None);
        };
        // `struct landlock_ruleset_attr` of version 1; longer ones only add fields that would be zero here.
        // SAFETY: the pointer leads to a live u64, the size passed is its size.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const handled,
                size_of_val(&handled),
                0usize,
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor; nobody else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
        Ok(Some(Self { descriptor, handled }))
    }

    /// Allows something at and below an open file or directory (`O_PATH` suffices).
    pub fn allow(&self, path: impl AsFd, access: Access) -> io::Result<()> {
        let is_directory =
            rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&path)?.st_mode).is_dir();
        let sensible = if is_directory { u64::MAX } else { ON_FILES };
        let rule = PathBeneath {
            allowed_access: access.rights() & self.handled & sensible,
            parent: path.as_fd().as_raw_fd(),
        };
        const RULE_PATH_BENEATH: usize = 1;
        // SAFETY: the pointer leads to a live structure of the layout that this kind of rule has.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0usize,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_access_makes_device_nodes() {
        for access in [Access::ReadExecute, Access::ReadWrite, Access::Devices] {
            assert_eq!(access.rights() & (MAKE_CHAR | MAKE_BLOCK), 0, "{access:?}");
        }
        let made =
            REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM;
        assert_eq!(Access::ReadWrite.rights() & made, made);
        assert_eq!(Access::Devices.rights() & made, 0);
        assert_eq!(Access::ReadExecute.rights() & (made | WRITE_FILE), 0);
    }

    #[test]
    fn handles_what_each_version_knows() {
        assert_eq!(HANDLED.map(u64::count_ones), [13, 14, 15, 15, 16]);
        assert_eq!(size_of::<PathBeneath>(), 12);
    }

    #[test]
    fn takes_rules_for_directories_and_files() {
        let Some(ruleset) = Ruleset::new().unwrap() else { return };
        for path in ["/tmp", "/etc/passwd"] {
            let opened = std::fs::File::open(path).unwrap();
            for access in [Access::ReadExecute, Access::ReadWrite, Access::Devices] {
                ruleset.allow(&opened, access).unwrap();
            }
        }
    }
}
