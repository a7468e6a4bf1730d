//! Ports of sandboxes over HTTP: `PORT-ID.DOMAIN` shows one as if it were a site of its own.
//!
//! What comes from inside a sandbox is a stranger's page. By its own name it has an origin of its own in a browser: it
//! shares nothing with the API, and every path of that name leads into the sandbox. By a path of the API it is shown as
//! a sandboxed document without an origin, so that its scripts can act as nobody. The keys and tokens that let a request
//! in never go in with it.

mod admission;
mod forward;

use axum::body::Body;
use axum::extract::Request;
use belljar_engine::SandboxId;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

use crate::status::Status;

pub(crate) use admission::Admission;
pub(crate) use forward::{Form, Forwarded, forward};

/// Where a token may be, beside the header: the parameter of an address, and the cookie that takes its place.
const TOKEN_HEADER: &str = "x-belljar-token";
const TOKEN_PARAMETER: &str = "belljar_token";
const TOKEN_COOKIE: &str = "belljar_preview";

/// Where what lets into the API is found.
pub(crate) const KEY_HEADERS: [HeaderName; 2] =
    [header::AUTHORIZATION, HeaderName::from_static("x-api-key")];

/// A port of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: SandboxId,
    pub(crate) port: u16,
}

/// The key or token that such a header brings, if it does: no blank is in one.
pub(crate) fn secret_in(value: &HeaderValue) -> &str {
    let text = value.to_str().unwrap_or_default();
    text.split_ascii_whitespace().next_back().unwrap_or_default()
}

/// What of a token's scopes stands for one port.
pub(crate) fn scope(port: u16) -> String {
    format!("port:{port}")
}

/// Where a port is shown by its own name.
pub(crate) fn url(status: &Status, id: &SandboxId, port: u16) -> Option<String> {
    let address = status.addresses.iter().find(|address| address.starts_with("http"))?;
    let (scheme, address) = address.split_once("://")?;
    let (_, tcp) = address.rsplit_once(':')?;
    Some(format!("{scheme}://{port}-{id}.{domain}:{tcp}/", domain = status.domain))
}

/// The path of the API that leads to a port.
pub(crate) fn path(id: &SandboxId, port: u16) -> String {
    format!("/v1/sandboxes/{id}/ports/{port}/")
}

/// The port that a request asks for by name.
pub(crate) fn target(request: &Request<Body>, domain: &str) -> Option<Target> {
    let host = host(request.uri(), request.headers())?;
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let label = name.strip_suffix(domain)?.strip_suffix('.')?;
    let (port, id) = label.split_once('-')?;
    let plain = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| plain)?;
    Some(Target { id: SandboxId::parse(&id.to_ascii_lowercase()).ok()?, port })
}

fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let named = uri.authority().map(http::uri::Authority::as_str);
    named.or_else(|| headers.get(header::HOST)?.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_ports() {
        let check = |host: &str, expected: Option<u16>| {
            let request = Request::builder().header("host", host).body(Body::empty()).unwrap();
            let found = target(&request, "belljar.test");
            assert_eq!(found.map(|target| target.port), expected, "{host}");
        };
        let id = "abcdefghijklmnop";
        check(&format!("8080-{id}.belljar.test"), Some(8080));
        check(&format!("8080-{id}.belljar.test:443"), Some(8080));
        check(&format!("1-{}.belljar.test", id.to_uppercase()), Some(1));
        check("belljar.test", None);
        check(&format!("8080-{id}.belljar.test.evil.example"), None);
        check(&format!("8080-{id}.evilbelljar.test"), None);
        check(&format!("08080-{id}.belljar.test"), None);
        check(&format!("+8080-{id}.belljar.test"), None);
        check(&format!("65536-{id}.belljar.test"), None);
        check(&format!("8080-{id}.x.belljar.test"), None);
        check("8080-.belljar.test", None);
    }
}
