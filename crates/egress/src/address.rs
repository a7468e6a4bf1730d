//! Which addresses may be reached at all, whatever name leads there.
//!
//! Public unicast addresses are. Everything else (private, loopback, link-local, shared, documentation, multicast,
//! reserved, and forms that carry such an address inside) is only where the rules name it by a network; the host's
//! own addresses, loopback and cloud metadata only where they are named one by one, so that `10.0.0.0/8` does not
//! open the host that happens to be in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

/// Services that clouds give machines, and that hand out credentials.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Public,
    /// Reachable where a network of the rules has it.
    Special,
    /// Reachable only where the rules name this very address.
    Guarded,
}

/// Whether a sandbox with these networks named may reach `address`.
pub(crate) fn admits(address: IpAddr, named: &[IpNet]) -> bool {
    let address = address.to_canonical();
    let single = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
    match kind(address) {
        Kind::Public => true,
        Kind::Special => named.iter().any(|net| net.contains(&address)),
        Kind::Guarded => named.iter().any(|net| single(net) && net.contains(&address)),
    }
}

fn kind(address: IpAddr) -> Kind {
    if METADATA.contains(&address) || address.is_loopback() || is_own(address) {
        return Kind::Guarded;
    }
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    let special = match address.octets() {
        [0 | 10 | 127, ..] | [169, 254, ..] | [192, 168, ..] => true,
        [100, second, ..] => second & 0b1100_0000 == 64,
        [172, second, ..] => second & 0xf0 == 16,
        [192, 0, 0 | 2, _] | [192, 88, 99, _] => true,
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        [224..=255, ..] => true,
        _ => false,
    };
    if special { Kind::Special } else { Kind::Public }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    let inner = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        // What a translator would make of it decides; a public form of it is unusual enough to need naming too.
        match kind(IpAddr::V4(Ipv4Addr::new(a, b, c, d))) {
            Kind::Public => Kind::Special,
            other => other,
        }
    };
    match address.segments() {
        // NAT64 and 6to4 carry an IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => inner(high, low),
        // Protocol assignments (Teredo among them), benchmarking, documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Kind::Special,
        // Global unicast is what was handed out so far.
        [0x2000..=0x3fff, ..] => Kind::Public,
        _ => Kind::Special,
    }
}

/// Whether the address is one of this machine's. The kernel is asked each time, since addresses come and go: it picks the
/// destination itself as source exactly where the destination is local. No packet is sent.
fn is_own(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let source = UdpSocket::bind(any)
        .and_then(|socket| socket.connect((address, 9)).and_then(|()| socket.local_addr()));
    // Where there is no route the address is nobody's here, and connecting will say so.
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, named: &[&str], expected: bool) {
        let named: Vec<IpNet> = named.iter().map(|net| net.parse().unwrap()).collect();
        assert_eq!(admits(address.parse().unwrap(), &named), expected, "{address} {named:?}");
    }

    #[test]
    fn public_addresses_are_reachable() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "223.255.255.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
        ] {
            check(address, &[], true);
        }
    }

    #[test]
    fn the_rest_is_not_unless_named() {
        for (address, net) in [
            ("10.1.2.3", "10.0.0.0/8"),
            ("172.16.0.1", "172.16.0.0/12"),
            ("172.31.255.255", "172.16.0.0/12"),
            ("192.168.1.1", "192.168.0.0/16"),
            ("100.64.0.1", "100.64.0.0/10"),
            ("169.254.1.1", "169.254.0.0/16"),
            ("0.0.0.0", "0.0.0.0/8"),
            ("0.1.2.3", "0.0.0.0/8"),
            ("198.18.0.1", "198.18.0.0/15"),
            ("224.0.0.1", "224.0.0.0/4"),
            ("255.255.255.255", "240.0.0.0/4"),
            ("192.0.2.1", "192.0.2.0/24"),
            ("fc00::1", "fc00::/7"),
            ("fe80::1", "fe80::/10"),
            ("ff02::1", "ff00::/8"),
            ("::", "::/128"),
            ("2001:db8::1", "2001:db8::/32"),
            ("2001::1", "2001::/32"),
            ("64:ff9b::1.1.1.1", "64:ff9b::/96"),
            ("64:ff9b:1::1", "64:ff9b:1::/48"),
            ("4000::1", "4000::/3"),
        ] {
            check(address, &[], false);
            check(address, &["203.0.113.0/24"], false);
            check(address, &[net], true);
        }
        check("::ffff:10.0.0.1", &[], false);
        check("::ffff:10.0.0.1", &["10.0.0.0/8"], true);
        check("::ffff:1.1.1.1", &[], true);
    }

    #[test]
    fn host_and_metadata_only_one_by_one() {
        for address in
            ["127.0.0.1", "127.8.8.8", "169.254.169.254", "100.100.100.200", "168.63.129.16"]
        {
            check(address, &[], false);
            check(address, &["0.0.0.0/0", "127.0.0.0/8", "169.254.0.0/16", "100.64.0.0/10"], false);
            check(address, &[&format!("{address}/32")], true);
        }
        for address in ["::1", "fd00:ec2::254"] {
            check(address, &["::/0"], false);
            check(address, &[&format!("{address}/128")], true);
        }
        check("64:ff9b::169.254.169.254", &["64:ff9b::/96"], false);
        check("2002:7f00:1::", &["2002::/16"], false);
    }
}
