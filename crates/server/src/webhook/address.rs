//! Which addresses a tenant's webhook may have: those of the public Internet. Everything else is ours or the host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        // Shared by carriers, and used for metadata by some clouds.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        // For measuring, and never routed.
        || (a == 198 && (18..20).contains(&b))
        || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let global = segments[0] & 0xe000 == 0x2000;
    // Addresses that carry an IPv4 address lead wherever that one leads: 6to4, Teredo.
    let carries = segments[0] == 0x2002 || (segments[0] == 0x2001 && segments[1] == 0);
    let documentation = segments[0] == 0x2001 && segments[1] == 0xdb8;
    let special = segments[0] == 0x2001 && segments[1] < 0x200;
    global && !carries && !documentation && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internet_is_public() {
        let check = |text: &str, expected: bool| {
            assert_eq!(is_public(text.parse().unwrap()), expected, "{text}");
        };
        for public in
            ["1.1.1.1", "93.184.216.34", "100.128.0.1", "2606:4700::1111", "2a00:1450:4001::1"]
        {
            check(public, true);
        }
        for ours in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            check(ours, false);
        }
    }
}
