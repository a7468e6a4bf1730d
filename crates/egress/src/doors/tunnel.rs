//! `CONNECT`: where to, and what is answered.

use std::net::IpAddr;

use crate::Reason;
use crate::names::normalise;

/// Where a client of a proxy wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// A normalised name, or an address.
    pub(crate) host: Result<String, IpAddr>,
    pub(crate) port: u16,
}

pub(crate) const GRANTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

impl Target {
    /// A name, or an address as text.
    pub(crate) fn parse(host: &str, port: u16) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bare.unwrap_or(host).parse::<IpAddr>() {
            Ok(address) => Self::address(address, port),
            Err(_) if bare.is_some() || port == 0 => None,
            Err(_) => Some(Self { host: Ok(normalise(host)?), port }),
        }
    }

    pub(crate) fn address(address: IpAddr, port: u16) -> Option<Self> {
        (port != 0).then(|| Self { host: Err(address.to_canonical()), port })
    }
}

/// The target of `CONNECT host:port HTTP/1.x`, strictly.
pub(crate) fn connect_target(head: &[u8]) -> Option<Target> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let (Some("CONNECT"), Some(authority), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return None;
    };
    let (host, port) = authority.rsplit_once(':')?;
    let digits = !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    if !digits || (host.contains(':') && !host.starts_with('[')) {
        return None;
    }
    Target::parse(host, port.parse().ok()?)
}

pub(crate) fn malformed() -> Vec<u8> {
    reply("400 Bad Request", Reason::Malformed, "", "the request cannot be read")
}

/// Who it is was not said, or not proved.
pub(crate) fn unknown() -> Vec<u8> {
    let body = "{\"code\":\"unauthenticated\",\"message\":\"this proxy wants the sandbox's token as password\"}\n";
    format!(
        "HTTP/1.1 407 Proxy Authentication Required\r\nx-belljar-decision: deny\r\n\
         proxy-authenticate: Basic realm=\"belljar\"\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len(),
    )
    .into_bytes()
}

/// The answer that agents can read: who decided, why, about what.
pub(crate) fn refused(target: &Target, reason: Reason) -> Vec<u8> {
    let host = match &target.host {
        Ok(name) => name.clone(),
        Err(address) => address.to_string(),
    };
    let status = match reason {
        Reason::ResolveFailed | Reason::ConnectFailed => "502 Bad Gateway",
        _ => "403 Forbidden",
    };
    reply(status, reason, &host, "the network policy of this sandbox does not let it connect there")
}

fn reply(status: &str, reason: Reason, host: &str, message: &str) -> Vec<u8> {
    // Names are normalised and reasons are ours: nothing in here needs escaping.
    let body = format!(
        "{{\"code\":\"policy-denied\",\"reason\":\"{}\",\"host\":\"{host}\",\"message\":\"{message}\"}}\n",
        reason.as_str()
    );
    format!(
        "HTTP/1.1 {status}\r\nx-belljar-decision: deny\r\nx-belljar-reason: {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        reason.as_str(),
        body.len(),
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_strictly() {
        let check = |line: &str, expected: Option<(Result<&str, &str>, u16)>| {
            let expected = expected.map(|(host, port)| Target {
                host: host.map(str::to_owned).map_err(|address| address.parse().unwrap()),
                port,
            });
            assert_eq!(connect_target(line.as_bytes()), expected, "{line}");
        };
        check("CONNECT A.Example:443 HTTP/1.1\r\nHost: x", Some((Ok("a.example"), 443)));
        check("CONNECT a.example.:443 HTTP/1.0", Some((Ok("a.example"), 443)));
        check("CONNECT 1.2.3.4:443 HTTP/1.1", Some((Err("1.2.3.4"), 443)));
        check("CONNECT [::1]:443 HTTP/1.1", Some((Err("::1"), 443)));
        check("CONNECT [::ffff:1.2.3.4]:1 HTTP/1.1", Some((Err("1.2.3.4"), 1)));
        for line in [
            "CONNECT a.example HTTP/1.1",
            "CONNECT a.example: HTTP/1.1",
            "CONNECT a.example:0 HTTP/1.1",
            "CONNECT a.example:+80 HTTP/1.1",
            "CONNECT a.example:99999 HTTP/1.1",
            "CONNECT  a.example:80 HTTP/1.1",
            "CONNECT a.example:80  HTTP/1.1",
            "CONNECT a.example:80 HTTP/2",
            "CONNECT user@a.example:80 HTTP/1.1",
            "CONNECT 0x7f.1:80 HTTP/1.1",
            "CONNECT 2130706433:80 HTTP/1.1",
            "CONNECT [a.example]:80 HTTP/1.1",
            "CONNECT ::1:80 HTTP/1.1",
            "GET a.example:80 HTTP/1.1",
        ] {
            // Spellings of addresses that only some programs know are no names either.
            check(line, None);
        }
    }
}
