//! Tokens by which a sandbox says who it is, where no link of its own tells: there one proxy serves many.
//!
//! A token is the sandbox's id and a signature of it. It is good for as long as the sandbox has a gate: ids are never used
//! again, so that nothing has to be remembered about tokens, and closing the gate is revoking.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use belljar_policy::SandboxId;
use ring::hmac;

use crate::flow::Judge;

/// What a token begins with: the form that follows.
const FORM: &str = "bj1";
/// Keeps signatures for anything else that the same secret may sign apart from these.
const PURPOSE: &[u8] = b"belljar proxy token\0";
/// Longer ones are no tokens, and do not fit a password of SOCKS5.
const MAX_TOKEN: usize = 255;

/// Signs and checks tokens. The secret stays on the host.
#[derive(Clone)]
pub struct ProxyKey(hmac::Key);

impl fmt::Debug for ProxyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyKey")
    }
}

impl ProxyKey {
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// What a sandbox's programs give as the password of their proxy.
    #[must_use]
    pub fn token(&self, sandbox: &SandboxId) -> String {
        let signature = hmac::sign(&self.0, &signed(sandbox.as_str()));
        format!("{FORM}.{sandbox}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Whose token it is; none where it is nobody's.
    pub(crate) fn sandbox(&self, token: &str) -> Option<SandboxId> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let mut parts = token.split('.');
        let (Some(FORM), Some(id), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Takes as long for a wrong signature as for a right one.
        hmac::verify(&self.0, &signed(id), &signature).ok()?;
        SandboxId::parse(id).ok()
    }
}

fn signed(id: &str) -> Vec<u8> {
    [PURPOSE, id.as_bytes()].concat()
}

/// The gates that are open, by sandbox.
#[derive(Default)]
pub(crate) struct Registry(Mutex<HashMap<SandboxId, Weak<Judge>>>);

impl Registry {
    pub(crate) fn add(&self, judge: &Arc<Judge>) {
        self.lock().insert(judge.identity().sandbox.clone(), Arc::downgrade(judge));
    }

    /// Forgets a gate, unless another was opened for the same sandbox since.
    pub(crate) fn remove(&self, judge: &Arc<Judge>) {
        let mut judges = self.lock();
        let sandbox = &judge.identity().sandbox;
        if judges.get(sandbox).is_some_and(|known| known.ptr_eq(&Arc::downgrade(judge))) {
            judges.remove(sandbox);
        }
    }

    fn find(&self, sandbox: &SandboxId) -> Option<Arc<Judge>> {
        let judge = self.lock().get(sandbox).and_then(Weak::upgrade)?;
        (!judge.live().closed().is_cancelled()).then_some(judge)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Weak<Judge>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a proxy knows whom it serves.
#[derive(Clone)]
pub(crate) enum Access {
    /// The socket tells: it is in that sandbox's gateway.
    Own(Arc<Judge>),
    /// Each connection says so, and proves it.
    Shared { key: ProxyKey, gates: Arc<Registry> },
}

impl Access {
    /// Whom the head of a request to a proxy is from.
    pub(super) fn by_head(&self, head: &[u8]) -> Option<Arc<Judge>> {
        match self {
            Self::Own(judge) => Some(Arc::clone(judge)),
            Self::Shared { .. } => self.by_token(&token_in(head)?),
        }
    }

    pub(super) fn by_token(&self, token: &str) -> Option<Arc<Judge>> {
        match self {
            Self::Own(judge) => Some(Arc::clone(judge)),
            Self::Shared { key, gates } => gates.find(&key.sandbox(token)?),
        }
    }

    /// The only one it can be, without asking.
    pub(super) fn own(&self) -> Option<&Arc<Judge>> {
        match self {
            Self::Own(judge) => Some(judge),
            Self::Shared { .. } => None,
        }
    }
}

/// The token in the one `Proxy-Authorization` of a head: as bearer, or as a password, whatever the user is called.
fn token_in(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case("proxy-authorization"));
    let ((_, value), None) = (found.next()?, found.next()) else { return None };
    let (scheme, rest) = value.trim().split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    pair.split_once(':').map(|(_, token)| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> SandboxId {
        SandboxId::from_random("nod1", &[number; 16]).unwrap()
    }

    #[test]
    fn a_token_is_one_sandboxs_and_one_keys() {
        let (key, other) = (ProxyKey::new(&[1; 32]), ProxyKey::new(&[2; 32]));
        let token = key.token(&id(7));
        assert!(token.len() <= MAX_TOKEN);
        assert_eq!(key.sandbox(&token), Some(id(7)));
        assert_eq!(other.sandbox(&token), None);
        let signature = token.rsplit_once('.').unwrap().1;
        let forged = format!("bj1.{}.{signature}", id(8));
        let cut = &token[..token.len() - 1];
        let longer = format!("{token}.x");
        for wrong in [&forged, cut, &longer, "", "bj1", "bj1..", &token.replace("bj1", "bj2")] {
            assert_eq!(key.sandbox(wrong), None, "{wrong}");
        }
        assert_eq!(key.sandbox(&format!("bj1.{}.{}", id(7), "A".repeat(400))), None);
        assert_eq!(format!("{key:?}"), "ProxyKey");
    }

    #[test]
    fn a_head_has_one_token_or_none() {
        let check = |fields: &str, expected: Option<&str>| {
            let head = format!("CONNECT a.example:443 HTTP/1.1\r\nhost: a\r\n{fields}");
            assert_eq!(token_in(head.as_bytes()).as_deref(), expected, "{fields}");
        };
        let basic = STANDARD.encode("anyone:t");
        check("Proxy-Authorization: Bearer t", Some("t"));
        check(&format!("proxy-authorization: basic {basic}"), Some("t"));
        check("", None);
        check("proxy-authorization: digest t", None);
        check("proxy-authorization: basic %%%", None);
        check("proxy-authorization: bearer t\r\nproxy-authorization: bearer t", None);
        check("authorization: bearer t", None);
    }
}
