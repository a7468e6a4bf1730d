//! How the doors of all sandboxes are served, from the words of an operator.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use belljar_codes::Code;
use belljar_egress::{Settings, Upstream};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::{Error, Result};

const DNS: u16 = 53;
const DNS_OVER_TLS: u16 = 853;

/// Settings with servers for names (`9.9.9.9`, `tcp://[2620:fe::fe]:53`, `tls://9.9.9.9#dns.quad9.net`, separated by commas) and a
/// file of certificates to trust in place of the system's.
pub fn egress_settings(upstreams: Option<&str>, roots: Option<&Path>) -> Result<Settings> {
    let mut settings = Settings::default();
    for text in upstreams.into_iter().flat_map(|text| text.split(',')).map(str::trim) {
        if !text.is_empty() {
            settings.upstreams.push(upstream(text)?);
        }
    }
    settings.roots = roots.map(read_roots).transpose()?.map(Arc::new);
    Ok(settings)
}

fn upstream(text: &str) -> Result<Upstream> {
    let refuse = || {
        Error::new(
            Code::InvalidConfiguration,
            format!("`{}` is no server for names", belljar_policy::shown(text)),
        )
        .with_remedy("write `9.9.9.9`, `tcp://9.9.9.9:53` or `tls://9.9.9.9#dns.quad9.net`")
    };
    match text.split_once("://") {
        None => address(text, DNS).map(Upstream::Plain).ok_or_else(refuse),
        Some(("udp", rest)) => address(rest, DNS).map(Upstream::Plain).ok_or_else(refuse),
        Some(("tcp", rest)) => address(rest, DNS).map(Upstream::Tcp).ok_or_else(refuse),
        Some(("tls", rest)) => {
            let (place, name) = rest.split_once('#').ok_or_else(refuse)?;
            let place = address(place, DNS_OVER_TLS).ok_or_else(refuse)?;
            Ok(Upstream::Tls(place, name.to_owned()))
        }
        Some(_) => Err(refuse()),
    }
}

fn address(text: &str, port: u16) -> Option<SocketAddr> {
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok();
    plain.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, port)).or_else(with_port)
}

fn read_roots(path: &Path) -> Result<RootCertStore> {
    let refuse = || {
        Error::new(
            Code::InvalidConfiguration,
            format!("`{}` has no certificates that can be trusted", path.display()),
        )
        .with_remedy("give a file of certificates of authorities in PEM")
    };
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refuse().with_source(std::io::Error::other(error.to_string())))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 { Err(refuse()) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_for_names_are_read() {
        let settings =
            egress_settings(Some("9.9.9.9, tcp://[::1]:5353,tls://1.1.1.1#one.one"), None).unwrap();
        assert_eq!(
            settings.upstreams,
            [
                Upstream::Plain("9.9.9.9:53".parse().unwrap()),
                Upstream::Tcp("[::1]:5353".parse().unwrap()),
                Upstream::Tls("1.1.1.1:853".parse().unwrap(), "one.one".to_owned()),
            ]
        );
        for bad in ["dns.example", "tls://1.1.1.1", "https://1.1.1.1", "1.2.3.4:99999"] {
            let refused = egress_settings(Some(bad), None).err().unwrap();
            assert_eq!(refused.code(), Code::InvalidConfiguration, "{bad}");
        }
        assert!(egress_settings(None, Some(Path::new("/nonexistent"))).is_err());
    }
}
