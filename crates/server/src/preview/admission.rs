//! Who may see a port that is shown by its own name.

use axum::response::{IntoResponse, Response};
use belljar_codes::Code;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::{TOKEN_COOKIE, TOKEN_HEADER, TOKEN_PARAMETER, Target, host, scope};
use crate::problem::{Problem, Result};
use crate::token::{Audience, Tokens};

/// What a request brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// A token, and how it came.
    Token(String, Carrier),
    /// Nothing of the sort: it may have a key.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Header,
    Parameter,
    Cookie,
}

impl Admission {
    pub(crate) fn of(request: &Parts) -> Self {
        let named = request.headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
        if let Some(token) = named {
            return Self::Token(token.to_owned(), Carrier::Header);
        }
        let query = request.uri.query().unwrap_or_default();
        let parameter =
            query.split('&').find_map(|pair| pair.strip_prefix(TOKEN_PARAMETER)?.strip_prefix('='));
        if let Some(token) = parameter {
            return Self::Token(token.to_owned(), Carrier::Parameter);
        }
        match cookie(&request.headers) {
            Some(token) => Self::Token(token.to_owned(), Carrier::Cookie),
            None => Self::Other,
        }
    }

    /// A token must be ours, for this port, and not be used by another site through the visitor's browser.
    /// Gives the key that made it.
    pub(crate) fn check(
        &self,
        tokens: &Tokens,
        target: &Target,
        request: &Parts,
    ) -> Result<Option<String>> {
        let Self::Token(token, carrier) = self else { return Ok(None) };
        let claims = tokens.verify(token, Audience::Preview)?;
        let ports: Vec<_> = claims.scopes.iter().filter(|word| word.starts_with("port:")).collect();
        let covers = ports.is_empty() || ports.iter().any(|word| **word == scope(target.port));
        if claims.sub != target.id.as_str() || !covers {
            return Err(Problem::new(Code::TokenInvalid, "the token is for another port")
                .with_remedy("`belljar expose` gives one for this port"));
        }
        if *carrier == Carrier::Cookie && is_foreign(request) {
            return Err(Problem::new(
                Code::PermissionDenied,
                "another site's page asks in the visitor's name",
            )
            .with_remedy("open the address itself"));
        }
        Ok(claims.key)
    }

    /// An address with a token in it is left as soon as the token is known to the browser, so that nobody copies it.
    pub(crate) fn welcome(&self, request: &Parts, tls: bool) -> Option<Response> {
        let Self::Token(token, Carrier::Parameter) = self else { return None };
        if request.method != Method::GET {
            return None;
        }
        let secure = if tls { "; Secure" } else { "" };
        let cookie = format!("{TOKEN_COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax{secure}");
        let location = without_token(request.uri.path(), request.uri.query());
        let cookie = HeaderValue::from_str(&cookie).ok()?;
        let location = HeaderValue::from_str(&location).ok()?;
        let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, location)];
        Some((StatusCode::SEE_OTHER, headers).into_response())
    }
}

/// Pages of other sites may lead here, and no more. Other sandboxes' pages are other sites, too, though browsers take names
/// below one domain for one site and send cookies along.
fn is_foreign(request: &Parts) -> bool {
    let headers = &request.headers;
    let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let elsewhere =
        word("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    let leads_here = request.method == Method::GET
        && word("sec-fetch-mode") == Some("navigate")
        && word("sec-fetch-dest") == Some("document");
    if elsewhere && !leads_here {
        return true;
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.map(|(_, host)| host) != host(&request.uri, headers)
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    cookies
        .flat_map(|line| line.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(TOKEN_COOKIE)?.strip_prefix('='))
}

/// The path and the rest of the query. Never another host: a path that begins with two slashes would be one.
pub(super) fn without_token(path: &str, query: Option<&str>) -> String {
    let kept: Vec<_> = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|pair| pair.split('=').next() != Some(TOKEN_PARAMETER))
        .collect();
    let path = format!("/{}", path.trim_start_matches('/'));
    if kept.is_empty() { path } else { format!("{path}?{}", kept.join("&")) }
}

/// The cookies that are the sandbox's own business.
pub(super) fn without_cookie(line: &str) -> Option<String> {
    let kept: Vec<_> = line
        .split(';')
        .map(str::trim)
        .filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(TOKEN_COOKIE))
        .collect();
    (!kept.is_empty()).then(|| kept.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn tokens_are_found_where_they_may_be() {
        let of = |uri: &str, headers: &[(&str, &str)]| Admission::of(&request(uri, headers));
        let token = |carrier| Admission::Token("t".to_owned(), carrier);
        assert_eq!(of("/", &[]), Admission::Other);
        assert_eq!(of("/", &[("x-belljar-token", "t")]), token(Carrier::Header));
        assert_eq!(of("/?a=1&belljar_token=t", &[]), token(Carrier::Parameter));
        assert_eq!(of("/?xbelljar_token=t", &[]), Admission::Other);
        assert_eq!(of("/", &[("cookie", "a=1; belljar_preview=t")]), token(Carrier::Cookie));
        assert_eq!(of("/", &[("cookie", "abelljar_preview=t")]), Admission::Other);
    }

    #[test]
    fn what_let_a_request_in_stays_outside() {
        assert_eq!(without_token("/a", Some("belljar_token=t")), "/a");
        assert_eq!(without_token("/a", Some("x=1&belljar_token=t&y")), "/a?x=1&y");
        assert_eq!(without_token("//evil.example/", None), "/evil.example/");
        assert_eq!(without_cookie("a=1; belljar_preview=t; b=2"), Some("a=1; b=2".to_owned()));
        assert_eq!(without_cookie("belljar_preview=t"), None);
    }

    #[test]
    fn pages_of_other_sites_do_not_act_in_the_visitors_name() {
        let foreign = |origin: &str| {
            let headers = [("host", "1-a.test:80"), ("origin", origin)];
            is_foreign(&request("/", &headers))
        };
        assert!(!foreign("http://1-a.test:80"));
        assert!(foreign("http://2-b.test:80"));
        assert!(foreign("null"));
        assert!(!is_foreign(&request("/", &[("host", "1-a.test")])));
        // What is fetched for a page of another sandbox comes without an origin where it is a script or a picture.
        let fetched = |site: &str, mode: &str, dest: &str| {
            let headers = [
                ("host", "1-a.test"),
                ("sec-fetch-site", site),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ];
            is_foreign(&request("/", &headers))
        };
        assert!(fetched("same-site", "no-cors", "script"));
        assert!(fetched("same-site", "navigate", "iframe"));
        assert!(fetched("cross-site", "no-cors", "image"));
        assert!(!fetched("cross-site", "navigate", "document"));
        assert!(!fetched("same-origin", "no-cors", "script"));
        assert!(!fetched("none", "navigate", "document"));
    }
}
