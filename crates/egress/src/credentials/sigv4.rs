//! AWS Signature Version 4, for requests that are signed on the host.
//!
//! The sandbox's programs sign with whatever keys they have; that signature is thrown away and the request is signed
//! anew with the real ones. Bodies must be known before they are sent, except for S3, which takes unsigned ones over
//! TLS. Checked against the published test suite.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use ring::{digest, hmac};

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// What a secret for signing says: `ACCESS_KEY:SECRET_KEY`, or with `:SESSION_TOKEN` behind it.
pub(super) struct Keys<'a> {
    pub(super) access: &'a str,
    pub(super) secret: &'a str,
    pub(super) session: Option<&'a str>,
}

/// Where a signature counts.
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

/// The parts of a request that are signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    /// As it is sent, escaped.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) headers: &'a mut HeaderMap,
}

/// What is known of the body.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Whole(&'a [u8]),
    Unsigned,
}

impl<'a> Keys<'a> {
    pub(super) fn parse(secret: &'a str) -> Option<Self> {
        let mut parts = secret.splitn(3, ':');
        let (access, secret, session) = (parts.next()?, parts.next()?, parts.next());
        (!access.is_empty() && !secret.is_empty()).then_some(Self { access, secret, session })
    }
}

impl Scope<'_> {
    /// Whether a body may go without being hashed first.
    pub(super) fn takes_unsigned(&self) -> bool {
        self.service == "s3"
    }
}

/// Puts a signature in the place of whatever the request had.
pub(super) fn sign(
    request: &mut Signed<'_>,
    keys: &Keys<'_>,
    scope: &Scope<'_>,
    payload: Payload<'_>,
    now: SystemTime,
) -> Result<(), http::header::InvalidHeaderValue> {
    let time = timestamp(now);
    for name in [AUTHORIZATION, DATE, TOKEN] {
        request.headers.remove(name);
    }
    request.headers.insert(DATE, HeaderValue::from_str(&time)?);
    if let Some(session) = keys.session {
        let mut value = HeaderValue::from_str(session)?;
        value.set_sensitive(true);
        request.headers.insert(TOKEN, value);
    }
    let payload = match payload {
        Payload::Whole(body) => hex(digest::digest(&digest::SHA256, body).as_ref()),
        Payload::Unsigned => UNSIGNED.to_owned(),
    };
    if scope.takes_unsigned() {
        request.headers.insert(CONTENT, HeaderValue::from_str(&payload)?);
    } else {
        request.headers.remove(CONTENT);
    }
    let names = signed_names(request.headers);
    let canonical = canonical(request, &names, scope, &payload);
    let date = &time[..8];
    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{hash}");
    let mut key = format!("AWS4{}", keys.secret).into_bytes();
    for part in [date, scope.region, scope.service, "aws4_request"] {
        key = keyed(&key, part.as_bytes());
    }
    let signature = hex(&keyed(&key, text.as_bytes()));
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{place}, SignedHeaders={}, Signature={signature}",
        keys.access,
        names.join(";"),
    );
    request.headers.insert(AUTHORIZATION, HeaderValue::from_str(&value)?);
    Ok(())
}

/// `host`, the type of the content and everything of Amazon's own: what no intermediary touches.
fn signed_names(headers: &HeaderMap) -> Vec<String> {
    let mut names: Vec<_> = headers
        .keys()
        .map(|name| name.as_str().to_owned())
        .filter(|name| name == "content-type" || name.starts_with("x-amz-"))
        .collect();
    names.push(HOST.as_str().to_owned());
    names.sort();
    names.dedup();
    names
}

fn canonical(request: &Signed<'_>, names: &[String], scope: &Scope<'_>, payload: &str) -> String {
    let mut text = format!(
        "{}\n{}\n{}\n",
        request.method,
        canonical_path(request.path, scope),
        canonical_query(request.query)
    );
    for name in names {
        let value = if name == HOST.as_str() {
            request.host.to_owned()
        } else {
            let values = request.headers.get_all(name).iter().map(trimmed);
            values.collect::<Vec<_>>().join(",")
        };
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "\n{}\n{payload}", names.join(";"));
    text
}

/// Every segment is escaped; for S3 as it is sent, for others once more.
fn canonical_path(path: &str, scope: &Scope<'_>) -> String {
    if scope.takes_unsigned() {
        return escape(unescape(path), true);
    }
    escape(path, true)
}

fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (escape(unescape(name), false), escape(unescape(value), false))
        })
        .collect();
    pairs.sort();
    let pairs = pairs.into_iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

/// Without space around it, and one space where there are several.
fn trimmed(value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn escape(text: impl AsRef<[u8]>, keep_slashes: bool) -> String {
    let mut escaped = String::new();
    for &byte in text.as_ref() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            b'/' if keep_slashes => escaped.push('/'),
            byte if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            byte => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

fn unescape(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

fn keyed(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `20150830T123600Z`.
fn timestamp(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The civil date of a day after 1970 (Hinnant's algorithm: years begin in March, so that leap days are last).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year, month, day - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// 2015-08-30T12:36:00Z, the moment of the published test suite.
    const NOW: Duration = Duration::from_secs(1_440_938_160);

    const KEYS: Keys<'_> = Keys {
        access: "AKIDEXAMPLE",
        secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        session: None,
    };

    fn signature(
        method: &str,
        path: &str,
        query: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        let mut request =
            Signed { method, host: "example.amazonaws.com", path, query, headers: &mut headers };
        let scope = Scope { region: "us-east-1", service: "service" };
        let payload = Payload::Whole(body.as_bytes());
        sign(&mut request, &KEYS, &scope, payload, UNIX_EPOCH + NOW).unwrap();
        let value = headers[AUTHORIZATION].to_str().unwrap();
        value.split_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn the_published_test_suite() {
        let check = |method, path, query, fields: &[(&str, &str)], body, expected: &str| {
            assert_eq!(signature(method, path, query, fields, body), expected, "{path}?{query}");
        };
        // get-vanilla
        check(
            "GET",
            "/",
            "",
            &[],
            "",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        );
        // get-vanilla-query-order-key-case
        check(
            "GET",
            "/",
            "Param2=value2&Param1=value1",
            &[],
            "",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        );
        // get-vanilla-query-unreserved
        check(
            "GET",
            "/",
            "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            &[],
            "",
            "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
        );
        // post-vanilla
        check(
            "POST",
            "/",
            "",
            &[],
            "",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        );
        // post-x-www-form-urlencoded
        check(
            "POST",
            "/",
            "",
            &[("content-type", "application/x-www-form-urlencoded")],
            "Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        );
    }

    #[test]
    fn what_the_guest_signed_with_is_gone() {
        let mut headers = HeaderMap::new();
        headers
            .insert(AUTHORIZATION, HeaderValue::from_static("AWS4-HMAC-SHA256 Credential=GUEST"));
        headers.insert(TOKEN, HeaderValue::from_static("guest"));
        headers.insert(DATE, HeaderValue::from_static("19700101T000000Z"));
        let (host, path, query) = ("bucket.s3.amazonaws.com", "/a%20b", "");
        let mut request = Signed { method: "PUT", host, path, query, headers: &mut headers };
        let keys = Keys::parse("AK:SK:SESSION").unwrap();
        let scope = Scope { region: "eu-west-1", service: "s3" };
        sign(&mut request, &keys, &scope, Payload::Unsigned, UNIX_EPOCH + NOW).unwrap();
        assert_eq!(headers[CONTENT], UNSIGNED);
        assert_eq!(headers[TOKEN], "SESSION");
        assert_eq!(headers[DATE], "20150830T123600Z");
        let value = headers[AUTHORIZATION].to_str().unwrap();
        assert!(
            value.starts_with("AWS4-HMAC-SHA256 Credential=AK/20150830/eu-west-1/s3/aws4_request,")
        );
        assert!(
            value.contains(
                "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"
            )
        );
        assert!(!format!("{headers:?}").contains("SESSION"), "a token does not print itself");
    }

    #[test]
    fn keys_have_two_or_three_parts() {
        assert!(Keys::parse("AK:SK").is_some_and(|keys| keys.session.is_none()));
        assert!(Keys::parse("AK:SK:a:b").is_some_and(|keys| keys.session == Some("a:b")));
        for bad in ["", "AK", "AK:", ":SK"] {
            assert!(Keys::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn times() {
        let check = |seconds, expected: &str| {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        };
        check(0, "19700101T000000Z");
        check(951_782_400, "20000229T000000Z");
        check(1_709_251_199, "20240229T235959Z");
        check(1_440_938_160, "20150830T123600Z");
    }
}
