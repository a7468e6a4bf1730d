//! Puts secrets into the head of a request, and says what must happen to its body and to the reply.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use belljar_policy::SecretValue;
use belljar_policy::document::{Credential, Injection, OnGuestHeader, Place};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use super::forms;
use super::rewrite::Replacements;
use super::sigv4;

const CONTENT_HASH: &str = "x-amz-content-sha256";

/// The head of a request on its way out.
pub(crate) struct Head<'a> {
    pub(crate) headers: &'a mut HeaderMap,
    /// Without its question mark.
    pub(crate) query: &'a mut Option<String>,
}

/// What a request was given.
#[derive(Default)]
pub(crate) struct Injected {
    /// What must not come back.
    pub(crate) hide: Replacements,
    /// What is replaced in the body of the request.
    pub(crate) in_body: Replacements,
    pub(crate) sign: Option<Signing>,
    /// The reply must come as a whole: in a part of it, what must not come back may be cut in two and not be recognised.
    pub(crate) whole: bool,
}

/// A request that is signed once its body is known.
pub(crate) struct Signing {
    keys: SecretValue,
    region: String,
    service: String,
}

/// Why a request does not get its credential; it is not sent then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotInjected {
    #[error("the sandbox sent its own `{0}`, which the credential refuses")]
    GuestHeader(HeaderName),
    #[error("the secret of credential `{0}` cannot be sent in a request")]
    Unusable(String),
    #[error("a body that was signed in pieces cannot be signed again")]
    SignedInPieces,
}

/// Puts each credential's secret into the head. What a program has `given` to it already is not to come back either.
pub(crate) fn inject(
    head: &mut Head<'_>,
    credentials: &[(&Credential, SecretValue)],
    given: &[HeaderValue],
) -> Result<Injected, NotInjected> {
    let (mut hide, mut in_body, mut sign) = (Vec::new(), Vec::new(), None);
    for value in given {
        hide_header(value.as_bytes(), &mut hide);
    }
    let parts = |(credential, _): &(&Credential, SecretValue)| {
        credential.ranges || !credential.sends_secret()
    };
    let whole = !given.is_empty() || !credentials.iter().all(parts);
    let mut set: Vec<HeaderName> = Vec::new();
    for (credential, secret) in credentials {
        let unusable = || NotInjected::Unusable(credential.name.clone());
        let value = secret.expose();
        hide.extend(forms::of(value.as_bytes()));
        let header = match &credential.inject {
            Injection::Bearer => Some((AUTHORIZATION, format!("Bearer {value}"))),
            Injection::Basic { user } => {
                let pair = BASE64.encode(format!("{user}:{value}"));
                hide.push(pair.clone().into_bytes());
                Some((AUTHORIZATION, format!("Basic {pair}")))
            }
            Injection::Header { name, template } => {
                let name = HeaderName::try_from(name.as_str()).map_err(|_| unusable())?;
                Some((name, template.replace("{secret}", value)))
            }
            Injection::Placeholder { text, places } => {
                for place in places {
                    match place {
                        Place::Header => {
                            in_headers(head.headers, text, value).map_err(|_| unusable())?
                        }
                        Place::Query => in_query(head.query, text, value),
                        Place::Body => {
                            let by = as_in(head.headers, value);
                            in_body.push((text.clone().into_bytes(), by));
                        }
                    }
                }
                None
            }
            Injection::Sigv4 { region, service } => {
                guest_header(head.headers, &AUTHORIZATION, credential)?;
                let keys = sigv4::Keys::parse(value).ok_or_else(unusable)?;
                hide.extend(forms::of(keys.secret.as_bytes()));
                hide.extend(forms::of(keys.session.unwrap_or_default().as_bytes()));
                if in_pieces(head.headers) {
                    return Err(NotInjected::SignedInPieces);
                }
                let (keys, region, service) = (secret.clone(), region.clone(), service.clone());
                sign = Some(Signing { keys, region, service });
                None
            }
        };
        let Some((name, text)) = header else { continue };
        // Of two credentials for one header the first is meant.
        if set.contains(&name) {
            continue;
        }
        guest_header(head.headers, &name, credential)?;
        let mut value = HeaderValue::from_str(&text).map_err(|_| unusable())?;
        value.set_sensitive(true);
        head.headers.insert(&name, value);
        set.push(name);
    }
    let (hide, in_body) = (Replacements::masking(hide), Replacements::new(in_body));
    Ok(Injected { hide, in_body, sign, whole })
}

impl Signing {
    /// Whether the body must be known before the request can be signed.
    pub(crate) fn needs_body(&self) -> bool {
        !self.scope().takes_unsigned()
    }

    /// Signs. `body` is `None` where it is not known and need not be.
    pub(crate) fn sign(
        &self,
        method: &str,
        host: &str,
        path: &str,
        query: &str,
        headers: &mut HeaderMap,
        body: Option<&[u8]>,
    ) -> Result<(), NotInjected> {
        let unusable = || NotInjected::Unusable("sigv4".to_owned());
        let keys = sigv4::Keys::parse(self.keys.expose()).ok_or_else(unusable)?;
        let payload = body.map_or(sigv4::Payload::Unsigned, sigv4::Payload::Whole);
        let mut request = sigv4::Signed { method, host, path, query, headers };
        sigv4::sign(&mut request, &keys, &self.scope(), payload, SystemTime::now())
            .map_err(|_| unusable())
    }

    fn scope(&self) -> sigv4::Scope<'_> {
        sigv4::Scope { region: &self.region, service: &self.service }
    }
}

/// A header that the sandbox sent itself is never sent along with ours.
fn guest_header(
    headers: &mut HeaderMap,
    name: &HeaderName,
    credential: &Credential,
) -> Result<(), NotInjected> {
    if headers.contains_key(name) && credential.guest_header == OnGuestHeader::Refuse {
        return Err(NotInjected::GuestHeader(name.clone()));
    }
    headers.remove(name);
    Ok(())
}

/// What a program put into a header: as a whole, and the part after a scheme (`Bearer …`). Short words are no secrets, and
/// would be found everywhere.
fn hide_header(value: &[u8], hide: &mut Vec<Vec<u8>>) {
    const SHORTEST: usize = 8;
    let last = value.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    for form in [value, last] {
        if form.len() >= SHORTEST {
            hide.extend(forms::of(form));
        }
    }
}

fn in_headers(
    headers: &mut HeaderMap,
    text: &str,
    value: &str,
) -> Result<(), http::header::InvalidHeaderValue> {
    let replacements = Replacements::new([(text.as_bytes().to_vec(), value.as_bytes().to_vec())]);
    for held in headers.values_mut() {
        let new = match basic(held) {
            // `https://user:PLACEHOLDER@host/` becomes such a header.
            Some(pair) => replacements
                .apply(&pair)
                .map(|pair| format!("Basic {}", BASE64.encode(pair)).into_bytes()),
            None => replacements.apply(held.as_bytes()),
        };
        if let Some(new) = new {
            *held = HeaderValue::from_bytes(&new)?;
            held.set_sensitive(true);
        }
    }
    Ok(())
}

/// What the value of a basic authorization says.
fn basic(value: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, pair) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    BASE64.decode(pair.trim()).ok()
}

fn in_query(query: &mut Option<String>, text: &str, value: &str) {
    let Some(held) = query else { return };
    let escaped = |text: &str| percent_encode(text.as_bytes(), NON_ALPHANUMERIC).to_string();
    let value = escaped(value).into_bytes();
    let places = [text.to_owned(), escaped(text)].map(|text| (text.into_bytes(), value.clone()));
    if let Some(new) = Replacements::new(places).apply(held.as_bytes()) {
        *held = String::from_utf8(new).expect("text with escapes in it is text");
    }
}

/// The secret as the body's type writes texts.
fn as_in(headers: &HeaderMap, value: &str) -> Vec<u8> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        percent_encode(value.as_bytes(), NON_ALPHANUMERIC).to_string().into_bytes()
    } else if kind == "application/json" || kind.ends_with("+json") {
        forms::in_json(value.as_bytes())
    } else {
        value.as_bytes().to_vec()
    }
}

/// Whether the body itself is made of signatures of the guest's keys.
fn in_pieces(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_HASH)
        .is_some_and(|hash| hash.as_bytes().starts_with(b"STREAMING-AWS4-HMAC-SHA256"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_policy::document::{Document, Format};

    fn credential(inject: &str, rest: &str) -> Credential {
        let text = format!(
            "version: '1.0'\nname: t\ncredentials:\n  - name: c\n    source: {{store: s}}\n    host: a.example\n    inject: {inject}\n{rest}"
        );
        Document::parse(&text, Format::Yaml).unwrap().credentials.remove(0)
    }

    struct Out {
        headers: HeaderMap,
        query: Option<String>,
        injected: Result<Injected, NotInjected>,
    }

    fn run(credential: &Credential, secret: &str, fields: &[(&str, &str)], query: &str) -> Out {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let mut query = Some(query.to_owned());
        let injected = {
            let mut head = Head { headers: &mut headers, query: &mut query };
            inject(&mut head, &[(credential, SecretValue::new(secret).unwrap())], &[])
        };
        Out { headers, query, injected }
    }

    #[test]
    fn headers_by_template() {
        let bearer = run(&credential("bearer", ""), "s3cret", &[("authorization", "guest's")], "");
        assert_eq!(bearer.headers.get_all(AUTHORIZATION).iter().count(), 1);
        assert_eq!(bearer.headers[AUTHORIZATION], "Bearer s3cret");
        assert!(!format!("{:?}", bearer.headers).contains("s3cret"));
        let basic = run(&credential("{basic: {user: me}}", ""), "s3cret", &[], "");
        assert_eq!(basic.headers[AUTHORIZATION], "Basic bWU6czNjcmV0");
        let custom = credential("{header: {name: X-Api-Key, template: 'key={secret}'}}", "");
        assert_eq!(run(&custom, "s3cret", &[], "").headers["x-api-key"], "key=s3cret");
        let broken = run(&custom, "a\r\nevil: 1", &[], "");
        assert_eq!(broken.injected.err(), Some(NotInjected::Unusable("c".to_owned())));
        let refusing = credential("bearer", "    guest_header: refuse\n");
        let refused = run(&refusing, "s3cret", &[("authorization", "x")], "").injected.err();
        assert_eq!(refused, Some(NotInjected::GuestHeader(AUTHORIZATION)));
        assert!(run(&refusing, "s3cret", &[], "").injected.is_ok());
    }

    #[test]
    fn placeholders_wherever_they_may_stand() {
        let anywhere =
            credential("{placeholder: {text: PLACEHOLDER, in: [header, query, body]}}", "");
        let basic = format!("Basic {}", BASE64.encode("me:PLACEHOLDER"));
        let fields = [("x-key", "a PLACEHOLDER"), ("authorization", &basic)];
        let out = run(&anywhere, "s&3", &fields, "k=PLACEHOLDER&x=1");
        assert_eq!(out.headers["x-key"], "a s&3");
        assert_eq!(out.headers[AUTHORIZATION], format!("Basic {}", BASE64.encode("me:s&3")));
        assert_eq!(out.query.as_deref(), Some("k=s%263&x=1"));
        let json =
            run(&anywhere, "a\"b", &[("content-type", "application/json; charset=utf-8")], "");
        let body = json.injected.unwrap().in_body.apply(br#"{"k":"PLACEHOLDER"}"#).unwrap();
        assert_eq!(body, br#"{"k":"a\"b"}"#);
        let elsewhere = credential("{placeholder: {text: PLACEHOLDER, in: [query]}}", "");
        let out = run(&elsewhere, "s3", &[("x-key", "PLACEHOLDER")], "");
        assert_eq!(out.headers["x-key"], "PLACEHOLDER");
    }

    #[test]
    fn what_is_hidden() {
        let out =
            run(&credential("{basic: {user: me}}", ""), "s3 \"cret", &[], "").injected.unwrap();
        for form in ["s3 \"cret", "s3 \\\"cret", "s3%20%22cret", "bWU6czMgImNyZXQ="] {
            assert!(out.hide.apply(form.as_bytes()).is_some(), "{form}");
        }
        assert!(out.hide.apply(b"harmless").is_none());
    }

    #[test]
    fn signing_needs_keys_and_a_whole_body() {
        let aws = credential("{sigv4: {region: eu-west-1, service: sqs}}", "");
        assert!(run(&aws, "only-one-part", &[], "").injected.is_err());
        let pieces = [("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")];
        assert_eq!(
            run(&aws, "AK:SK", &pieces, "").injected.err(),
            Some(NotInjected::SignedInPieces)
        );
        let sign = run(&aws, "AK:SECRETKEY", &[], "").injected.unwrap().sign.unwrap();
        assert!(sign.needs_body());
        let mut headers = HeaderMap::new();
        sign.sign("POST", "sqs.eu-west-1.amazonaws.com", "/", "", &mut headers, Some(b"x"))
            .unwrap();
        assert!(headers[AUTHORIZATION].to_str().unwrap().contains("Credential=AK/"));
    }
}
