//! Tokens that hold, and all the ways in which they do not.

use std::os::unix::fs::PermissionsExt;

use super::keys::SIGNS;
use super::*;
use crate::own_keys::OwnKeys;

const HOUR: Duration = Duration::from_secs(3600);

struct Fixture {
    directory: tempfile::TempDir,
    tokens: Tokens,
    sandbox: SandboxId,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::of(directory.path());
        Self { directory, tokens, sandbox: SandboxId::parse("n001abcdefgh").unwrap() }
    }

    fn issue(&self, audience: Audience) -> String {
        let tenant = TenantId::default();
        self.tokens.issue(&tenant, &self.sandbox, audience, HOUR, &[], None).unwrap().0
    }

    /// Signs anything with a key of ours.
    fn sign(&self, header: &Header, claims: &serde_json::Value) -> String {
        let key = self.tokens.ring.signing(now()).unwrap();
        let header = Header { kid: Some(key.id), ..header.clone() };
        jsonwebtoken::encode(&header, claims, &EncodingKey::from_secret(&key.secret)).unwrap()
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T>) {
    let problem = result.unwrap_err();
    assert_eq!((problem.code, problem.http_status().as_u16()), (Code::TokenInvalid, 401));
}

#[test]
fn a_token_opens_its_sandbox_and_nothing_else() {
    let fixture = Fixture::new();
    let caller = fixture.tokens.caller(&fixture.issue(Audience::Api)).unwrap();
    let expected = Scope::Sandbox { tenant: TenantId::default(), id: fixture.sandbox.clone() };
    assert_eq!(caller.scope, expected);
    assert_eq!(caller.role(), "sandbox");
    let egress = fixture.issue(Audience::Egress);
    assert_eq!(fixture.tokens.verify(&egress, Audience::Egress).unwrap().aud, "egress");
    refused(fixture.tokens.caller(&egress));
    refused(fixture.tokens.verify(&egress, Audience::Preview));
}

#[test]
fn any_changed_character_is_refused() {
    let fixture = Fixture::new();
    let token = fixture.issue(Audience::Api);
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        // The last character of a part may carry bits that stand for nothing.
        if let Ok(claims) = fixture.tokens.verify(&changed, Audience::Api) {
            assert_eq!(claims, fixture.tokens.verify(&token, Audience::Api).unwrap());
        }
    }
    for nonsense in ["", "..", "a.b.c", &"x".repeat(5000)] {
        refused(fixture.tokens.verify(nonsense, Audience::Api));
    }
}

#[test]
fn tokens_expire_and_none_lives_longer_than_a_day() {
    let fixture = Fixture::new();
    let token = fixture.issue(Audience::Api);
    let now = now();
    assert!(fixture.tokens.verify_at(&token, Audience::Api, now + 3590).is_ok());
    refused(fixture.tokens.verify_at(&token, Audience::Api, now + 3601));
    // Made in the future.
    refused(fixture.tokens.verify_at(&token, Audience::Api, now - 60));
    let year = Duration::from_secs(365 * 24 * 3600);
    let tenant = TenantId::default();
    let issued = fixture.tokens.issue(&tenant, &fixture.sandbox, Audience::Api, year, &[], None);
    let valid = issued.unwrap().1.duration_since(SystemTime::now()).unwrap();
    assert!(valid <= LONGEST);
}

#[test]
fn what_is_missing_or_signed_otherwise_is_refused() {
    let fixture = Fixture::new();
    let good = serde_json::json!({
        "sub": "n001abcdefgh", "tenant": "default", "aud": "api", "jti": "x",
        "iat": now(), "exp": now() + 60,
    });
    let ours = Header::new(Algorithm::HS256);
    fixture.tokens.caller(&fixture.sign(&ours, &good)).unwrap();
    for name in ["sub", "tenant", "aud", "jti", "iat", "exp"] {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        refused(fixture.tokens.caller(&fixture.sign(&ours, &claims)));
    }
    for (name, value) in [
        ("sub", serde_json::json!("../x")),
        ("tenant", serde_json::json!("NOT A TENANT")),
        ("aud", serde_json::json!(["api", "egress"])),
        ("exp", serde_json::json!(now() + 3 * 24 * 3600)),
        ("jti", serde_json::json!("")),
        ("role", serde_json::json!("admin")),
    ] {
        let mut claims = good.clone();
        claims[name] = value;
        refused(fixture.tokens.caller(&fixture.sign(&ours, &claims)));
    }
    refused(fixture.tokens.caller(&fixture.sign(&Header::new(Algorithm::HS512), &good)));
    // `none`, which some libraries take for an answer.
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.e30.";
    refused(fixture.tokens.caller(none));
}

#[test]
fn another_directory_has_other_keys() {
    let (one, other) = (Fixture::new(), Fixture::new());
    let _ = other.issue(Audience::Api);
    refused(other.tokens.caller(&one.issue(Audience::Api)));
    // The same directory, another process.
    let token = one.issue(Audience::Api);
    assert!(Tokens::of(one.directory.path()).caller(&token).is_ok());
}

#[test]
fn keys_change_and_old_tokens_hold_until_they_expire() {
    let fixture = Fixture::new();
    let ring = &fixture.tokens.ring;
    let now = now();
    let first = ring.signing(now).unwrap();
    assert_eq!(ring.signing(now + SIGNS - 1).unwrap().id, first.id);
    let second = ring.signing(now + SIGNS).unwrap();
    assert_ne!(second.id, first.id);
    assert!(ring.find(&first.id, now + SIGNS + LONGEST.as_secs()).unwrap().is_some());
    assert!(ring.find(&first.id, now + SIGNS + LONGEST.as_secs() + 3600).unwrap().is_none());
    // With the third, the first is gone from the file too.
    let third = ring.signing(now + 2 * SIGNS).unwrap();
    let path = fixture.directory.path().join("tokens.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(&third.id) && text.contains(&second.id) && !text.contains(&first.id));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn only_this_directory_knows_which_key_of_ones_own_a_token_names() {
    const SECRET: &str = "0123456789abcdef";
    let mut own = OwnKeys::default();
    own.add(SECRET, "the test").unwrap();
    let mut others = OwnKeys::default();
    others.add("fedcba9876543210", "the test").unwrap();
    let (one, other) = (Fixture::new(), Fixture::new());
    let named = |fixture: &Fixture| {
        let maker = own.caller(SECRET).unwrap();
        let (tenant, id) = (TenantId::default(), &fixture.sandbox);
        let issued =
            fixture.tokens.issue(&tenant, id, Audience::Api, HOUR, &[], maker.maker()).unwrap();
        let caller = fixture.tokens.caller(&issued.0).unwrap();
        assert_eq!(caller.wire().key_id, None, "it is no id");
        caller.key.unwrap()
    };
    let name = named(&one);
    assert!(one.tokens.is_made_with(&name, own.fingerprints()).unwrap());
    assert!(!one.tokens.is_made_with(&name, others.fingerprints()).unwrap());
    assert!(!other.tokens.is_made_with(&name, own.fingerprints()).unwrap());
    assert_ne!(name.rsplit(':').next(), named(&other).rsplit(':').next());
}
