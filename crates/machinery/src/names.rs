//! The files by which programs find addresses for names.

use belljar_launcher::wire::{GATEWAY_V4, GATEWAY_V6};

use crate::skeleton::Skeleton;

const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";

/// Adds `/etc/hosts` and `/etc/resolv.conf`; with a network, questions go to the doors.
pub fn files(skeleton: &mut Skeleton, network: bool) {
    skeleton.file("etc/hosts", HOSTS);
    let resolver = match network {
        // A second server only matters to programs that cannot reach the first; both are the same doors.
        true => {
            format!("nameserver {GATEWAY_V4}\nnameserver {GATEWAY_V6}\noptions edns0 timeout:5\n")
        }
        false => String::new(),
    };
    skeleton.file("etc/resolv.conf", resolver);
}
