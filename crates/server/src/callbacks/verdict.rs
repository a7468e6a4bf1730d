//! Verdicts of a client, checked before anything acts on them. What is wrong with one denies.

use std::net::SocketAddr;

use belljar_api::v1;
use http::{HeaderName, HeaderValue};

use super::{CallError, MAX_WORDS};

/// Headers that one verdict may set or remove.
const MAX_HEADERS: usize = 64;

/// Those decide where a request goes and where it ends, which is not the client's to say.
const KEPT: [&str; 7] =
    ["connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"];

pub(super) fn connection(
    mut verdict: v1::ConnectionVerdict,
) -> Result<v1::ConnectionVerdict, CallError> {
    shorten(&mut verdict.reason);
    if let Some(resolver) = &verdict.resolver
        && resolver.parse::<SocketAddr>().is_err()
    {
        return Err(CallError::Malformed("`resolver` is not an address and port".to_owned()));
    }
    Ok(verdict)
}

pub(super) fn request(mut verdict: v1::RequestVerdict) -> Result<v1::RequestVerdict, CallError> {
    shorten(&mut verdict.reason);
    if verdict.set_headers.len() + verdict.remove_headers.len() > MAX_HEADERS {
        return Err(CallError::Malformed(format!("it has more than {MAX_HEADERS} headers")));
    }
    for header in &mut verdict.set_headers {
        header.name = name(&header.name)?;
        // ISO 8859-1, as the wire says it.
        let bytes = header.value.chars().map(u8::try_from).collect::<Result<Vec<_>, _>>();
        if !bytes.is_ok_and(|bytes| HeaderValue::from_bytes(&bytes).is_ok()) {
            let reason = format!("the value of header `{}` is no header's", header.name);
            return Err(CallError::Malformed(reason));
        }
    }
    for header in &mut verdict.remove_headers {
        *header = name(header)?;
    }
    Ok(verdict)
}

fn name(text: &str) -> Result<String, CallError> {
    let malformed =
        |what| CallError::Malformed(format!("{what} `{}`", belljar_policy::shown(text)));
    let name =
        HeaderName::from_bytes(text.as_bytes()).map_err(|_| malformed("no header is called"))?;
    if KEPT.contains(&name.as_str()) {
        return Err(malformed("a verdict cannot change the header"));
    }
    Ok(name.as_str().to_owned())
}

/// Words for people need not be whole.
pub(super) fn shorten(text: &mut String) {
    if text.len() > MAX_WORDS {
        let end = (0..=MAX_WORDS).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &str) -> v1::HttpHeader {
        v1::HttpHeader { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn headers_are_headers() {
        let check = |set: v1::HttpHeader, fine| {
            let verdict =
                v1::RequestVerdict { set_headers: vec![set.clone()], ..Default::default() };
            assert_eq!(request(verdict).is_ok(), fine, "{set:?}");
        };
        check(header("Authorization", "Bearer x"), true);
        check(header("x-name", "Zoë"), true);
        check(header("x-name", "名"), false);
        check(header("x-name", "a\r\nb: c"), false);
        check(header("x name", "a"), false);
        check(header("Host", "elsewhere"), false);
        check(header("transfer-encoding", "chunked"), false);
        let removes =
            v1::RequestVerdict { remove_headers: vec!["Cookie".to_owned()], ..Default::default() };
        assert_eq!(request(removes).unwrap().remove_headers, ["cookie"]);
    }

    #[test]
    fn a_resolver_is_an_address() {
        let verdict = |resolver: &str| v1::ConnectionVerdict {
            resolver: Some(resolver.to_owned()),
            ..Default::default()
        };
        assert!(connection(verdict("127.0.0.1:53")).is_ok());
        assert!(connection(verdict("localhost")).is_err());
    }
}
