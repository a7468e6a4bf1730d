//! Signed tokens that open exactly one sandbox for a time: identity that is carried by value.
//!
//! A token is a JWT, signed with HS256 by a key that only this state directory has and that changes every week. It says
//! which sandbox it is for, what it may be shown to, and until when. Anything missing, wrong, expired or meant for
//! somebody else is refused with one and the same code.

mod keys;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_codes::Code;
use belljar_engine::Scope;
use belljar_policy::{SandboxId, TenantId};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::caller::{Caller, Proof};
use crate::own_keys::Fingerprint;
use crate::problem::{Problem, Result};
use keys::{Key, Ring};

/// The longest time that a token can be valid for.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Clocks of one machine agree, but not to the second.
const LEEWAY: u64 = 5;

/// A longer one was not made by us.
const MAX_TOKEN: usize = 2048;

/// Begins the name that a token has for a key of the operator's own. Ids of other keys have no colon.
const OWN: &str = "own:";

/// What a token may be shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// This server's API.
    Api,
    /// The explicit egress proxy.
    Egress,
    /// Addresses that show a port of the sandbox.
    Preview,
}

impl Audience {
    pub(crate) const ALL: [Self; 3] = [Self::Api, Self::Egress, Self::Preview];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Egress => "egress",
            Self::Preview => "preview",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|audience| audience.as_str() == text)
    }
}

/// The key that a token is made with. What it made ends with it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Maker<'a> {
    /// By its id.
    Key(&'a str),
    /// One of the operator's own.
    Own(&'a Fingerprint),
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    /// The sandbox's id.
    pub(crate) sub: String,
    pub(crate) tenant: String,
    pub(crate) aud: String,
    pub(crate) iat: u64,
    pub(crate) exp: u64,
    pub(crate) jti: String,
    /// What the maker's key was limited to. Empty: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<String>,
    /// The key of the maker, by its id or as [`own_name`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

/// Makes and checks tokens of a state directory.
#[derive(Debug)]
pub(crate) struct Tokens {
    ring: Ring,
}

impl Tokens {
    /// Nothing is read or made before the first token is.
    pub(crate) fn of(state_dir: &Path) -> Self {
        Self { ring: Ring::new(state_dir) }
    }

    /// Makes a token that is valid from now on.
    pub(crate) fn issue(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        audience: Audience,
        valid: Duration,
        scopes: &[String],
        maker: Option<Maker<'_>>,
    ) -> Result<(String, SystemTime)> {
        let now = now();
        let exp = now + valid.min(LONGEST).as_secs();
        let key = self.ring.signing(now)?;
        let maker = maker.map(|maker| match maker {
            Maker::Key(id) => id.to_owned(),
            Maker::Own(own) => own_name(&key, own),
        });
        let claims = Claims {
            sub: sandbox.as_str().to_owned(),
            tenant: tenant.to_string(),
            aud: audience.as_str().to_owned(),
            iat: now,
            exp,
            jti: crate::random::id(),
            scopes: scopes.to_vec(),
            key: maker,
        };
        let header = Header { kid: Some(key.id), ..Header::new(Algorithm::HS256) };
        let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&key.secret))
            .map_err(|error| {
                Problem::new(Code::Internal, "a token was not signed").caused_by(&error)
            })?;
        Ok((token, UNIX_EPOCH + Duration::from_secs(exp)))
    }

    /// Whether a token's maker is one of these keys of the operator's own.
    pub(crate) fn is_made_with<'a>(
        &self,
        maker: &str,
        mut own: impl Iterator<Item = &'a Fingerprint>,
    ) -> Result<bool> {
        let kid = maker.strip_prefix(OWN).and_then(|name| name.split(':').next());
        let key = kid.map(|kid| self.ring.find(kid, now())).transpose()?.flatten();
        Ok(key.is_some_and(|key| own.any(|own| own_name(&key, own) == maker)))
    }

    /// What a token says, if it is ours, still valid, and meant for this audience.
    pub(crate) fn verify(&self, token: &str, audience: Audience) -> Result<Claims> {
        self.verify_at(token, audience, now())
    }

    fn verify_at(&self, token: &str, audience: Audience, now: u64) -> Result<Claims> {
        let claims = self.read(token, now)?;
        if claims.aud == audience.as_str() { Ok(claims) } else { Err(invalid()) }
    }

    /// What a token says, if it is ours and still valid, whatever it is for.
    fn read(&self, token: &str, now: u64) -> Result<Claims> {
        if token.len() > MAX_TOKEN {
            return Err(invalid());
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| invalid())?;
        let (Algorithm::HS256, Some(kid)) = (header.alg, header.kid) else { return Err(invalid()) };
        let key = self.ring.find(&kid, now)?.ok_or_else(invalid)?;
        let mut validation = Validation::new(Algorithm::HS256);
        // Times are compared below, with the clock that is given, and what it is for by who asks.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        let secret = DecodingKey::from_secret(&key.secret);
        let claims = jsonwebtoken::decode::<Claims>(token, &secret, &validation)
            .map_err(|_| invalid())?
            .claims;
        let timely = claims.iat <= now + LEEWAY
            && now < claims.exp
            && claims.exp.saturating_sub(claims.iat) <= LONGEST.as_secs();
        if timely && !claims.jti.is_empty() { Ok(claims) } else { Err(invalid()) }
    }

    /// Whether this is a token of ours that is still valid, whatever it is for.
    pub(crate) fn is_ours(&self, text: &str) -> Result<bool> {
        if !is_one(text) {
            return Ok(false);
        }
        match self.read(text, now()) {
            Ok(_) => Ok(true),
            Err(problem) if problem.code == Code::TokenInvalid => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// Who a token for the API makes its bearer.
    pub(crate) fn caller(&self, token: &str) -> Result<Caller> {
        let claims = self.verify(token, Audience::Api)?;
        let id = SandboxId::parse(&claims.sub).map_err(|_| invalid())?;
        let tenant = TenantId::parse(&claims.tenant).map_err(|_| invalid())?;
        Ok(Caller {
            scope: Scope::Sandbox { tenant, id },
            actor: format!("token:{}", claims.jti),
            key: claims.key,
            own_key: None,
            expires_at: Some(UNIX_EPOCH + Duration::from_secs(claims.exp)),
            permissions: claims.scopes,
            proof: Proof::Token,
        })
    }
}

/// Whether this has the form of a token.
pub(crate) fn is_one(text: &str) -> bool {
    text.matches('.').count() == 2
}

/// Whether a key that a token names is one of the operator's own.
pub(crate) fn is_own(maker: &str) -> bool {
    maker.starts_with(OWN)
}

/// What a token calls a key of the operator's own. Everybody can read a token: only who has the key that signs them can try
/// guesses against this.
fn own_name(signing: &Key, own: &Fingerprint) -> String {
    let Key { id, secret, .. } = signing;
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    // No token begins like that.
    context.update(b"own key ");
    context.update(own.as_bytes());
    format!("{OWN}{id}:{}", URL_SAFE_NO_PAD.encode(context.sign()))
}

/// One answer for everything that can be wrong, so that nobody learns what was right.
pub(crate) fn invalid() -> Problem {
    Problem::new(
        Code::TokenInvalid,
        "the token is not one of this server's, has expired, is for something else, or its sandbox or key has ended",
    )
    .with_remedy("ask for a new one; `belljar token` makes it")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
