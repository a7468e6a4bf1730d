//! Reads the head of a request: where it goes, what it wants, and whether two readers could disagree about it.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version};

use super::path::CanonicalPath;
use crate::flow::Entry;

/// Headers by which some servers take a request for one of another method.
const METHOD_OVERRIDES: [&str; 3] =
    ["x-http-method-override", "x-http-method", "x-method-override"];

/// Headers by which some servers take a request for one of another path.
const PATH_OVERRIDES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// How rules call the opening of a WebSocket, besides `GET`.
const WEBSOCKET: &str = "WEBSOCKET";

/// The head of a request, understood.
#[derive(Debug)]
pub(super) struct Head {
    /// The verified name.
    pub(super) host: String,
    pub(super) port: u16,
    /// What it is, and what servers may take it for. The first is what it is.
    pub(super) methods: Vec<String>,
    pub(super) path: CanonicalPath,
    pub(super) query: Option<String>,
    pub(super) websocket: bool,
}

impl Head {
    /// Every method that a server may take it for. A WebSocket is a `GET` to it.
    pub(super) fn taken_for(&self) -> Vec<&str> {
        self.methods.iter().map(String::as_str).filter(|method| *method != WEBSOCKET).collect()
    }
}

/// Why a head is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BadHead {
    /// Two readers could disagree.
    Malformed(&'static str),
    /// It is for a host that this connection is not for.
    OtherHost(String),
    /// Something that is never forwarded.
    Unsupported(&'static str),
}

/// `names` are the verified names of the connection; where `entry` is the proxy, each request names its own.
pub(super) fn read(
    parts: &Parts,
    entry: Entry,
    names: &[String],
    connected: u16,
) -> Result<Head, BadHead> {
    framing(&parts.headers, parts.version)?;
    if parts.method == Method::CONNECT {
        return Err(BadHead::Unsupported("CONNECT within a connection is not forwarded"));
    }
    let authority = authority(parts, entry)?;
    let host = normal(authority.host())?;
    let standard = if entry == Entry::Tls { 443 } else { 80 };
    let port = authority.port_u16();
    let names_port = authority.as_str().len() > authority.host().len();
    if names_port && port.is_none() {
        return Err(BadHead::Malformed("the port is none"));
    }
    let port = if entry == Entry::Proxy {
        port.unwrap_or(standard)
    } else {
        if port.is_some_and(|port| port != connected) {
            return Err(BadHead::OtherHost(authority.to_string()));
        }
        if !names.contains(&host) {
            return Err(BadHead::OtherHost(host));
        }
        connected
    };
    let canonical = |path: &str| {
        CanonicalPath::parse(path)
            .map_err(|_| BadHead::Malformed("servers would understand the path differently"))
    };
    let mut path = canonical(parts.uri.path())?;
    for name in PATH_OVERRIDES {
        for value in parts.headers.get_all(name) {
            let value = value.to_str().map_err(|_| BadHead::Malformed("a path that is none"))?;
            path.or(canonical(named_path(value))?);
        }
    }
    let websocket = wants_websocket(parts)?;
    let mut methods = vec![parts.method.as_str().to_owned()];
    if websocket {
        methods.push(WEBSOCKET.to_owned());
    }
    for name in METHOD_OVERRIDES {
        for value in parts.headers.get_all(name) {
            let value = value.to_str().map_err(|_| BadHead::Malformed("a method that is none"))?;
            methods.push(value.trim().to_ascii_uppercase());
        }
    }
    let query = parts.uri.query().map(str::to_owned);
    Ok(Head { host, port, methods, path, query, websocket })
}

/// The path in a header that is one, or a whole address.
fn named_path(value: &str) -> &str {
    let value = value.trim();
    let rest = value
        .split_once("://")
        .map_or(value, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    rest.split(['?', '#']).next().unwrap_or(rest)
}

/// What holds for every head that is understood; for `fuzzing`.
pub(crate) fn fuzz(parts: &Parts) {
    let names = ["a.example".to_owned()];
    for (entry, port) in [(Entry::Tls, 443), (Entry::Plain, 80), (Entry::Proxy, 0)] {
        let Ok(head) = read(parts, entry, &names, port) else { continue };
        assert!(entry == Entry::Proxy || (names.contains(&head.host) && head.port == port));
        assert_eq!(head.methods[0], parts.method.as_str());
        // What was judged is what is sent, and it means the same to who reads it again.
        assert_eq!(CanonicalPath::parse(head.path.as_str()).as_ref(), Ok(&head.path));
        let up = |path: &str| path.split('/').any(|segment| segment == "..");
        assert!(!head.path.readings().any(up), "{:?}", head.path);
        assert!(http::Uri::try_from(head.path.as_str()).is_ok(), "{:?}", head.path);
        let mut headers = parts.headers.clone();
        strip_hop_by_hop(&mut headers);
        assert!(!headers.contains_key(CONNECTION) && !headers.contains_key(TRANSFER_ENCODING));
    }
}

/// Refuses what two readers could take for messages of different lengths.
fn framing(headers: &HeaderMap, version: Version) -> Result<(), BadHead> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(BadHead::Malformed("several lengths"));
    }
    if length.is_some_and(|length| !length.as_bytes().iter().all(u8::is_ascii_digit)) {
        return Err(BadHead::Malformed("a length that is none"));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if version != Version::HTTP_11 {
        return Err(BadHead::Malformed("a transfer coding where there is none"));
    }
    if length.is_some() {
        return Err(BadHead::Malformed("a length and a transfer coding"));
    }
    let chunked = coding.to_str().is_ok_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    if codings.next().is_some() || !chunked {
        return Err(BadHead::Malformed("a transfer coding other than `chunked`"));
    }
    Ok(())
}

/// Which host it is for. Everything that names one must name the same.
fn authority(parts: &Parts, entry: Entry) -> Result<Authority, BadHead> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(BadHead::Malformed("several hosts")),
        (Some(host), None) => {
            let host = Authority::try_from(host.as_bytes());
            Some(host.map_err(|_| BadHead::Malformed("a host that is none"))?)
        }
        (None, None) => None,
    };
    let target = parts.uri.authority();
    if let Some(scheme) = parts.uri.scheme_str() {
        let secure = entry == Entry::Tls;
        if scheme != if secure { "https" } else { "http" } {
            return Err(BadHead::Malformed("a scheme that is not the connection's"));
        }
    } else if entry == Entry::Proxy {
        return Err(BadHead::Malformed("a request to a proxy names its host"));
    }
    let authority = match (target, &header) {
        (Some(target), Some(header)) if !same(target, header) => {
            return Err(BadHead::Malformed("two hosts that are not the same"));
        }
        (Some(target), _) => target.clone(),
        (None, Some(header)) => header.clone(),
        (None, None) => return Err(BadHead::Malformed("no host")),
    };
    if authority.as_str().contains('@') {
        return Err(BadHead::Malformed("a user in the host"));
    }
    Ok(authority)
}

fn same(one: &Authority, other: &Authority) -> bool {
    one.as_str().eq_ignore_ascii_case(other.as_str())
}

/// Lower-case, without the dot at the end, without brackets.
fn normal(host: &str) -> Result<String, BadHead> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.is_empty() { Err(BadHead::Malformed("no host")) } else { Ok(host) }
}

/// Other upgrades are not forwarded, and the request goes on without them.
fn wants_websocket(parts: &Parts) -> Result<bool, BadHead> {
    if parts.extensions.get::<hyper::ext::Protocol>().is_some() {
        return Err(BadHead::Unsupported("an extended CONNECT is not forwarded"));
    }
    let asked = listed(&parts.headers, &CONNECTION, "upgrade");
    Ok(asked && listed(&parts.headers, &UPGRADE, "websocket") && parts.method == Method::GET)
}

fn listed(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|found| found.trim().eq_ignore_ascii_case(word))
}

/// Takes away what is between two neighbours only.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    // A client that names these as belonging to its connection wants them lost on the way.
    let kept =
        |name: &HeaderName| *name == HOST || *name == CONTENT_LENGTH || *name == "authorization";
    for name in named.iter().filter(|name| !kept(name)) {
        headers.remove(name);
    }
    let trailers = listed(headers, &HeaderName::from_static("te"), "trailers");
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "te",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "expect",
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert("te", http::HeaderValue::from_static("trailers"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(entry: Entry, request: http::request::Builder) -> Result<Head, BadHead> {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let port = if entry == Entry::Tls { 443 } else { 80 };
        read(&parts, entry, &["a.example".to_owned()], port)
    }

    fn get(uri: &str) -> http::request::Builder {
        Request::builder().uri(uri)
    }

    #[test]
    fn the_host_is_the_connections() {
        for host in ["a.example", "A.Example", "a.example.", "a.example:443"] {
            let head = head(Entry::Tls, get("/x?y").header(HOST, host)).unwrap();
            assert_eq!((head.host.as_str(), head.port), ("a.example", 443));
        }
        for host in ["b.example", "a.example:444", "a.example.evil.example", "192.0.2.1"] {
            let refused = head(Entry::Tls, get("/").header(HOST, host)).unwrap_err();
            assert!(matches!(refused, BadHead::OtherHost(_)), "{host}");
        }
        for host in ["", "a b", "user@a.example", "a.example:x"] {
            let refused = head(Entry::Tls, get("/").header(HOST, host)).unwrap_err();
            assert!(matches!(refused, BadHead::Malformed(_)), "{host}");
        }
        assert!(head(Entry::Tls, get("/")).is_err());
        let two = get("/").header(HOST, "a.example").header(HOST, "a.example");
        assert!(head(Entry::Tls, two).is_err());
        let differ = get("https://a.example/").header(HOST, "b.example");
        assert!(matches!(head(Entry::Tls, differ), Err(BadHead::Malformed(_))));
        assert!(head(Entry::Tls, get("https://a.example/").header(HOST, "a.example")).is_ok());
        assert!(head(Entry::Tls, get("http://a.example/")).is_err(), "the scheme is another");
    }

    #[test]
    fn a_proxy_takes_any_host_by_its_whole_name() {
        let head = |uri: &str| head(Entry::Proxy, get(uri));
        let found = head("http://b.example:8080/x").unwrap();
        assert_eq!((found.host.as_str(), found.port), ("b.example", 8080));
        assert!(head("/x").is_err());
        assert!(head("https://b.example/").is_err());
    }

    #[test]
    fn lengths_have_one_meaning() {
        let ask = || get("/").header(HOST, "a.example");
        let check = |request, good: bool| assert_eq!(head(Entry::Plain, request).is_ok(), good);
        check(ask().header(CONTENT_LENGTH, "3"), true);
        check(ask().header(TRANSFER_ENCODING, "chunked"), true);
        check(ask().header(CONTENT_LENGTH, "3").header(CONTENT_LENGTH, "3"), false);
        check(ask().header(CONTENT_LENGTH, "+3"), false);
        check(ask().header(CONTENT_LENGTH, "3").header(TRANSFER_ENCODING, "chunked"), false);
        check(ask().header(TRANSFER_ENCODING, "gzip, chunked"), false);
        check(ask().header(TRANSFER_ENCODING, "xchunked"), false);
        check(ask().version(Version::HTTP_10).header(TRANSFER_ENCODING, "chunked"), false);
    }

    #[test]
    fn methods_that_a_request_may_be_taken_for() {
        let ask = || get("/").header(HOST, "a.example");
        let methods = |request| head(Entry::Plain, request).unwrap().methods;
        assert_eq!(methods(ask()), ["GET"]);
        assert_eq!(methods(ask().header("X-HTTP-Method-Override", "delete")), ["GET", "DELETE"]);
        let websocket =
            ask().header(CONNECTION, "keep-alive, Upgrade").header(UPGRADE, "websocket");
        assert_eq!(methods(websocket), ["GET", "WEBSOCKET"]);
        let h2c = ask().header(CONNECTION, "Upgrade, HTTP2-Settings").header(UPGRADE, "h2c");
        assert_eq!(methods(h2c), ["GET"]);
        let connect = Request::builder().method("CONNECT").uri("a.example:443");
        assert!(matches!(head(Entry::Tls, connect), Err(BadHead::Unsupported(_))));
    }

    #[test]
    fn paths_that_a_request_may_be_taken_for() {
        let ask = |value: &str| {
            let request = get("/open/x").header(HOST, "a.example").header("X-Original-URL", value);
            head(Entry::Plain, request)
        };
        let check = |value: &str, reading: &str| {
            let head = ask(value).unwrap();
            assert_eq!(head.path.as_str(), "/open/x", "{value}");
            assert_eq!(head.path.readings().collect::<Vec<_>>(), ["/open/x", reading], "{value}");
        };
        check("/admin", "/admin");
        check(" /open/../%61dmin?x=/open ", "/admin");
        check("http://b.example/admin#x", "/admin");
        check("http://b.example", "/");
        for value in ["admin", "", "/a%", "/open/..%2fadmin"] {
            assert!(matches!(ask(value), Err(BadHead::Malformed(_))), "{value}");
        }
        assert_eq!(ask("/open/x").unwrap().path.readings().count(), 1);
    }

    #[test]
    fn hop_by_hop_headers_stay_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-own, authorization"),
            ("x-own", "1"),
            ("authorization", "x"),
            ("te", "trailers, deflate"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        strip_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "authorization", "te"]);
        assert_eq!(headers["te"], "trailers");
    }
}
