//! What is refused with `EPERM` rather than as unknown, because programs ask for it and should learn why not.

use super::{Entry, NAMESPACES, When};

/// Pushes characters into the terminal as if typed.
const TIOCSTI: u64 = 0x5412;
/// Pastes the console's selection.
const TIOCLINUX: u64 = 0x541C;

const fn namespace(index: usize) -> When {
    When::Flag { index: 0, flag: NAMESPACES[index] }
}

#[rustfmt::skip]
pub(super) const TABLE: &[Entry] = &[
    (libc::SYS_mount, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_umount2, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_pivot_root, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_fsopen, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_fsconfig, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_fsmount, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_fspick, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_move_mount, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_open_tree, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_mount_setattr, When::Always, "mounts: the file system tree is not the workload's to change"),
    (libc::SYS_setns, When::Always, "namespaces: joining another one"),
    (libc::SYS_bpf, When::Always, "kernel programs and monitoring: large attack surface, reads across processes"),
    (libc::SYS_perf_event_open, When::Always, "kernel programs and monitoring: large attack surface, reads across processes"),
    (libc::SYS_userfaultfd, When::Always, "userfaultfd: makes kernel races winnable"),
    (libc::SYS_io_uring_setup, When::Always, "io_uring: bypasses this very filter"),
    (libc::SYS_io_uring_enter, When::Always, "io_uring: bypasses this very filter"),
    (libc::SYS_io_uring_register, When::Always, "io_uring: bypasses this very filter"),
    (libc::SYS_add_key, When::Always, "keys: kernel keyrings are not namespaced"),
    (libc::SYS_request_key, When::Always, "keys: kernel keyrings are not namespaced"),
    (libc::SYS_keyctl, When::Always, "keys: kernel keyrings are not namespaced"),
    (libc::SYS_init_module, When::Always, "kernel modules and images"),
    (libc::SYS_finit_module, When::Always, "kernel modules and images"),
    (libc::SYS_delete_module, When::Always, "kernel modules and images"),
    (libc::SYS_kexec_load, When::Always, "kernel modules and images"),
    (libc::SYS_kexec_file_load, When::Always, "kernel modules and images"),
    (libc::SYS_reboot, When::Always, "the machine itself"),
    (libc::SYS_swapon, When::Always, "the machine itself"),
    (libc::SYS_swapoff, When::Always, "the machine itself"),
    (libc::SYS_acct, When::Always, "the machine itself"),
    (libc::SYS_quotactl, When::Always, "the machine itself"),
    (libc::SYS_quotactl_fd, When::Always, "the machine itself"),
    (libc::SYS_sethostname, When::Always, "the machine itself"),
    (libc::SYS_setdomainname, When::Always, "the machine itself"),
    (libc::SYS_vhangup, When::Always, "the machine itself"),
    (libc::SYS_syslog, When::Always, "the machine itself"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_iopl, When::Always, "hardware ports and segments"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ioperm, When::Always, "hardware ports and segments"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_modify_ldt, When::Always, "hardware ports and segments"),
    (libc::SYS_clock_settime, When::Always, "the clock of the host"),
    (libc::SYS_settimeofday, When::Always, "the clock of the host"),
    (libc::SYS_clock_adjtime, When::Always, "the clock of the host"),
    (libc::SYS_adjtimex, When::Always, "the clock of the host"),
    (libc::SYS_open_by_handle_at, When::Always, "files by handle: walks around directory permissions"),
    (libc::SYS_fanotify_init, When::Always, "watching other processes' files"),
    (libc::SYS_fanotify_mark, When::Always, "watching other processes' files"),
    (libc::SYS_kcmp, When::Always, "comparing kernel objects across processes"),
    (libc::SYS_move_pages, When::Always, "moving other processes' memory"),
    (libc::SYS_migrate_pages, When::Always, "moving other processes' memory"),
    (libc::SYS_lookup_dcookie, When::Always, "obsolete, reachable only by old exploits"),
    (libc::SYS_nfsservctl, When::Always, "obsolete, reachable only by old exploits"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_uselib, When::Always, "obsolete, reachable only by old exploits"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ustat, When::Always, "obsolete, reachable only by old exploits"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_sysfs, When::Always, "obsolete, reachable only by old exploits"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS__sysctl, When::Always, "obsolete, reachable only by old exploits"),
    (libc::SYS_socket, When::Except(&[], &[
        (0, libc::AF_UNIX as u64), (0, libc::AF_INET as u64), (0, libc::AF_INET6 as u64), (0, libc::AF_NETLINK as u64),
    ]), "packet, vsock, kernel crypto and other address families"),
    (libc::SYS_socket, When::Except(&[(0, libc::AF_NETLINK as u64)], &[(2, libc::NETLINK_ROUTE as u64)]), "netlink other than listing interfaces"),
    (libc::SYS_personality, When::Except(&[], &[(0, 0), (0, 0x0004_0000), (0, 0xFFFF_FFFF)]), "execution domains that weaken memory protection"),
    (libc::SYS_unshare, namespace(0), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(1), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(1), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(2), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(2), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(3), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(3), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(4), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(4), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(5), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(5), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(6), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(6), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_clone, namespace(7), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_unshare, namespace(7), "new namespaces: a larger part of the kernel to attack"),
    (libc::SYS_prlimit64, When::Except(&[], &[(0, 0)]), "limits of other processes: without ids of its own, the agent's too"),
    (libc::SYS_ioctl, When::Equal(&[(1, TIOCSTI)]), "typing into the operator's terminal"),
    (libc::SYS_ioctl, When::Equal(&[(1, TIOCLINUX)]), "pasting into the operator's console"),
];
