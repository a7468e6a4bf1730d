//! Keys that the operator brings along, from files or the environment. They are kept in memory only: taken out of the
//! file, they open nothing after the next start.
//!
//! A file has a key per line, and after it, if the key is not the administrator's, the tenant that it is for. Empty
//! lines and lines that begin with `#` mean nothing.

use std::path::Path;

use belljar_codes::Code;
use belljar_engine::Scope;
use belljar_policy::TenantId;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::caller::{Caller, Proof};
use crate::problem::{Problem, Result};

/// Shorter ones can be guessed.
const SHORTEST: usize = 16;

/// Longer files are no key files.
const LONGEST_FILE: u64 = 1 << 20;

/// Keys of the operator's own.
#[derive(Clone, Default)]
pub struct OwnKeys {
    keys: Vec<OwnKey>,
}

#[derive(Clone)]
struct OwnKey {
    hash: Fingerprint,
    scope: Scope,
}

/// What is known of a key: enough to tell it from others, and to try guesses against it. It stays here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fingerprint(…)")
    }
}

impl OwnKeys {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds the keys of a file.
    ///
    /// # Errors
    /// Where it cannot be read, or has a line that is no key.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        let unreadable = |error: &std::io::Error| {
            let name = path.display();
            Problem::new(Code::InvalidConfiguration, format!("key file `{name}` cannot be read"))
                .caused_by(error)
                .with_remedy("name a file that the server may read, with a key in each line")
        };
        let size = std::fs::metadata(path).map_err(|error| unreadable(&error))?.len();
        if size > LONGEST_FILE {
            return Err(unreadable(&std::io::Error::other("it is too large for a key file")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
        self.add(&text, &format!("key file `{}`", path.display()))
    }

    /// Adds the keys of a text; `origin` is named where one of them is unusable.
    ///
    /// # Errors
    /// Where a line is no key, or none is there.
    pub fn add(&mut self, text: &str, origin: &str) -> Result<()> {
        let before = self.keys.len();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The key itself is never part of a message.
            let refuse = |why: &str| {
                let line = number + 1;
                Problem::new(Code::InvalidConfiguration, format!("{origin}, line {line}: {why}"))
                    .with_remedy("write a key of at least 16 visible characters, and a tenant after it if it is for one")
            };
            let mut words = line.split_ascii_whitespace();
            let secret = words.next().unwrap_or_default();
            if secret.len() < SHORTEST || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(refuse("the key is too short, or has characters that no key has"));
            }
            let scope = match (words.next(), words.next()) {
                (None, _) => Scope::All,
                (Some(tenant), None) => Scope::Tenant(
                    TenantId::parse(tenant).map_err(|invalid| refuse(&invalid.message))?,
                ),
                (Some(_), Some(_)) => return Err(refuse("there is more than a key and a tenant")),
            };
            self.keys.push(OwnKey { hash: hash(secret), scope });
        }
        if self.keys.len() == before {
            let message = format!("{origin} has no key in it");
            return Err(Problem::new(Code::InvalidConfiguration, message).with_remedy(
                "write a key of at least 16 visible characters in a line of its own",
            ));
        }
        Ok(())
    }

    /// Who sends this secret. Takes as long for a wrong one as for a right one.
    pub(crate) fn caller(&self, secret: &str) -> Option<Caller> {
        let hash = hash(secret);
        let mut found = None;
        for (number, key) in self.keys.iter().enumerate() {
            if bool::from(key.hash.0.ct_eq(&hash.0)) {
                found = Some((number, key));
            }
        }
        found.map(|(number, key)| Caller {
            scope: key.scope.clone(),
            actor: format!("own-key:{}", number + 1),
            key: None,
            own_key: Some(key.hash),
            expires_at: None,
            permissions: Vec::new(),
            proof: Proof::Key,
        })
    }

    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = &Fingerprint> {
        self.keys.iter().map(|key| &key.hash)
    }
}

fn hash(secret: &str) -> Fingerprint {
    Fingerprint(Sha256::digest(secret).into())
}

impl std::fmt::Debug for OwnKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnKeys").field("count", &self.keys.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_and_tenants() {
        let mut keys = OwnKeys::default();
        keys.add("# ours\n0123456789abcdef\n\nfedcba9876543210 acme\n", "x").unwrap();
        assert!(keys.caller("0123456789abcdef").unwrap().is_admin());
        let tenant = keys.caller("fedcba9876543210").unwrap();
        assert_eq!((tenant.is_admin(), tenant.tenant().as_str()), (false, "acme"));
        assert!(keys.caller("0123456789abcdeX").is_none());
        assert!(keys.caller("").is_none());
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        for text in ["short", "0123456789abcdef acme more", "0123456789abcdef UPPER", "", "# only"]
        {
            let problem = OwnKeys::default().add(text, "the file").unwrap_err();
            assert_eq!(problem.code, Code::InvalidConfiguration, "{text}");
            assert!(!format!("{problem:?}").contains("0123456789abcdef"), "{problem:?}");
            assert!(problem.remedy.is_some(), "{text}");
        }
        let missing = OwnKeys::default().add_file(Path::new("/nonesuch")).unwrap_err();
        assert!(missing.remedy.is_some());
    }
}
