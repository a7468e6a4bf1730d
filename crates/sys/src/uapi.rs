//! Structures and constants of the kernel's interface that the `libc` crate does not have on every target.

/// `struct clone_args`, version 2 (with `cgroup`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

pub const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `struct mount_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MountAttributes {
    pub set: u64,
    pub clear: u64,
    pub propagation: u64,
    pub namespace: u64,
}

pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;
pub const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

pub const AT_RECURSIVE: i32 = 0x8000;
pub const OPEN_TREE_CLONE: usize = 1;
pub const OPEN_TREE_CLOEXEC: usize = libc::O_CLOEXEC as usize;
pub const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x4;
pub const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
pub const FSOPEN_CLOEXEC: usize = 1;
pub const FSMOUNT_CLOEXEC: usize = 1;
pub const FSCONFIG_SET_FLAG: usize = 0;
pub const FSCONFIG_SET_STRING: usize = 1;
pub const FSCONFIG_CMD_CREATE: usize = 6;

/// `struct open_how`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

pub const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
pub const RESOLVE_NO_SYMLINKS: u64 = 0x04;
pub const RESOLVE_BENEATH: u64 = 0x08;
/// Nothing above, no links of either kind.
pub const BENEATH: u64 = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

/// `struct __user_cap_header_struct`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CapabilityHeader {
    pub version: u32,
    pub pid: i32,
}

impl Default for CapabilityHeader {
    fn default() -> Self {
        Self { version: 0x2008_0522, pid: 0 } // _LINUX_CAPABILITY_VERSION_3, this thread
    }
}

/// `struct __user_cap_data_struct`; version 3 uses two of them, low half first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CapabilityData {
    pub effective: u32,
    pub permitted: u32,
    pub inheritable: u32,
}

impl CapabilityData {
    /// The same set in all three places.
    #[must_use]
    pub fn split(set: u64) -> [Self; 2] {
        [set as u32, (set >> 32) as u32].map(|half| Self {
            effective: half,
            permitted: half,
            inheritable: half,
        })
    }
}

/// `struct ifreq` as far as `SIOCSIFFLAGS` reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InterfaceFlags {
    name: [u8; 16],
    flags: i16,
    padding: [u8; 22],
}

impl InterfaceFlags {
    #[must_use]
    pub fn loopback_up() -> Self {
        let mut name = [0; 16];
        name[..2].copy_from_slice(b"lo");
        Self { name, flags: libc::IFF_UP as i16, padding: [0; 22] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_the_kernel_knows() {
        assert_eq!(size_of::<CloneArgs>(), 88);
        assert_eq!(size_of::<MountAttributes>(), 32);
        assert_eq!(size_of::<OpenHow>(), 24);
        assert_eq!(size_of::<CapabilityHeader>(), 8);
        assert_eq!(size_of::<CapabilityData>(), 12);
        assert_eq!(size_of::<InterfaceFlags>(), 40);
    }
}
