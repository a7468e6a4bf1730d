//! Servers that resolve names for anybody, past the DNS door.
//!
//! In the mode `full` everything public may be reached, but names are still ours to answer: these hosts are denied
//! there unless a rule names them. The list is of the well-known ones and cannot be complete.

use std::net::IpAddr;

/// DNS over TLS, and over QUIC.
const ENCRYPTED_DNS: u16 = 853;

const HOSTS: &[&str] = &[
    "dns.google",
    "dns64.dns.google",
    "cloudflare-dns.com",
    "one.one.one.one",
    "dns.quad9.net",
    "doh.opendns.com",
    "dns.adguard-dns.com",
    "dns.nextdns.io",
    "doh.cleanbrowsing.org",
    "freedns.controld.com",
    "dns.mullvad.net",
    "doh.dns.sb",
    "dns.alidns.com",
    "doh.pub",
];

const ADDRESSES: &[&str] = &[
    "8.8.8.8",
    "8.8.4.4",
    "1.1.1.1",
    "1.0.0.1",
    "9.9.9.9",
    "149.112.112.112",
    "208.67.222.222",
    "208.67.220.220",
    "94.140.14.14",
    "94.140.15.15",
    "2001:4860:4860::8888",
    "2001:4860:4860::8844",
    "2606:4700:4700::1111",
    "2606:4700:4700::1001",
    "2620:fe::fe",
    "2620:fe::9",
];

/// Whether a flow goes to a known resolver, by name, by address or by port.
pub(crate) fn is_foreign_resolver(host: &str, address: Option<IpAddr>, port: u16) -> bool {
    let listed = HOSTS.iter().any(|known| {
        host.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    port == ENCRYPTED_DNS
        || listed
        || address.is_some_and(|address| ADDRESSES.iter().any(|known| known.parse() == Ok(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_resolvers_are_seen() {
        assert!(is_foreign_resolver("a.example", None, 853));
        assert!(is_foreign_resolver("dns.google", None, 443));
        assert!(is_foreign_resolver("mozilla.cloudflare-dns.com", None, 443));
        assert!(is_foreign_resolver("1.1.1.1", Some("1.1.1.1".parse().unwrap()), 443));
        assert!(!is_foreign_resolver("notdns.google", None, 443));
        assert!(!is_foreign_resolver("google.com", Some("1.1.1.2".parse().unwrap()), 443));
        assert!(ADDRESSES.iter().all(|known| known.parse::<IpAddr>().is_ok()));
    }
}
