//! Seals secrets for the database.
//!
//! ChaCha20-Poly1305 with a random nonce; tenant and name are authenticated with the value, so that a row cannot be
//! passed off as another one. The key is 32 random bytes in a file that only its owner may read, made when the first
//! secret is kept. Where sealed secrets are there and the key is not, nothing is guessed: that is an error.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_policy::{SandboxId, SecretName, SecretValue, TenantId};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::{Error, Result, random};

/// The first byte of what is kept: how the rest was made.
const VERSION: u8 = 1;

const KEY_LENGTH: usize = 32;

/// What is sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sealed<'a> {
    Secret(&'a TenantId, &'a SecretName),
    /// The key of a sandbox's certificate authority.
    Authority(&'a SandboxId),
}

pub(crate) struct Vault {
    path: PathBuf,
}

impl Vault {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// `may_make_key`: nothing is sealed yet, so that a missing key is one that was never made.
    pub(crate) fn seal(
        &self,
        what: Sealed<'_>,
        value: &SecretValue,
        may_make_key: bool,
    ) -> Result<Vec<u8>> {
        if may_make_key {
            self.make_key().map_err(|source| Error::state("make", &self.path, source))?;
        }
        let key = self.key()?;
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the kernel gives random bytes once it has booted");
        let mut sealed = value.expose().as_bytes().to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(what.bound()),
            &mut sealed,
        )
        .expect("a secret is far shorter than what the cipher takes");
        Ok([&[VERSION][..], &nonce, &sealed].concat())
    }

    pub(crate) fn open(&self, what: Sealed<'_>, sealed: &[u8]) -> Result<SecretValue> {
        let key = self.key()?;
        let opened = (|| {
            let (version, rest) = sealed.split_first()?;
            let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
            let mut sealed = (*version == VERSION).then(|| sealed.to_vec())?;
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let opened = key.open_in_place(nonce, Aad::from(what.bound()), &mut sealed).ok()?;
            SecretValue::new(str::from_utf8(opened).ok()?).ok()
        })();
        opened.ok_or_else(|| {
            Error::new(Code::StateFailed, format!("{what} does not open with this key"))
                .with_remedy(format!(
                    "put back the key file `{}` that it was kept with, or make it anew",
                    self.path.display()
                ))
        })
    }

    fn key(&self) -> Result<LessSafeKey> {
        let fail = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => Error::new(
                Code::StateFailed,
                format!("the key file `{}` of the secrets is missing", self.path.display()),
            )
            .with_remedy("put it back, or remove all secrets and set them again"),
            _ => Error::state("read", &self.path, source),
        };
        let mut file = File::open(&self.path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        let me = rustix::process::geteuid().as_raw();
        if metadata.mode() & 0o077 != 0 || (metadata.uid() != me && metadata.uid() != 0) {
            let path = self.path.display();
            return Err(Error::new(
                Code::StateFailed,
                format!("others may read or own the key file `{path}`"),
            )
            .with_remedy(format!("`chmod 600 {path}`, and set the secrets again")));
        }
        let mut bytes = Vec::with_capacity(KEY_LENGTH + 1);
        (&mut file).take(KEY_LENGTH as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
        UnboundKey::new(&CHACHA20_POLY1305, &bytes).map(LessSafeKey::new).map_err(|_| {
            Error::new(
                Code::StateFailed,
                format!("the key file `{}` has not {KEY_LENGTH} bytes", self.path.display()),
            )
            .with_remedy("put back the file that the secrets were kept with")
        })
    }

    /// Makes the key unless there is one. Of several that try at once, all use the first.
    fn make_key(&self) -> io::Result<()> {
        if self.path.exists() {
            return Ok(());
        }
        let mut bytes = [0; KEY_LENGTH];
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
        let new = self.path.with_extension(format!("{}.new", random::token()));
        let made =
            write_new(&new, &bytes).and_then(|()| match std::fs::hard_link(&new, &self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            });
        let removed = std::fs::remove_file(&new);
        made.and(removed)
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // A key that is lost in a power cut takes every secret with it.
    file.sync_all()
}

impl Sealed<'_> {
    /// What a sealed value is bound to. No part can have a zero byte.
    fn bound(self) -> Vec<u8> {
        match self {
            Self::Secret(tenant, name) => {
                ["belljar-secret", tenant.as_str(), name.as_str()].join("\0").into_bytes()
            }
            Self::Authority(sandbox) => {
                ["belljar-authority", sandbox.as_str()].join("\0").into_bytes()
            }
        }
    }
}

impl fmt::Display for Sealed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(_, name) => write!(f, "secret `{name}`"),
            Self::Authority(sandbox) => write!(f, "the authority of sandbox `{sandbox}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn name(text: &str) -> SecretName {
        SecretName::parse(text).unwrap()
    }

    fn value(text: &str) -> SecretValue {
        SecretValue::new(text).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_only_as_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let vault = Vault::new(directory.path().join("key"));
        let (mine, other) = (TenantId::default(), TenantId::parse("other").unwrap());
        let sealed =
            vault.seal(Sealed::Secret(&mine, &name("a")), &value("hunter2"), true).unwrap();
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(
            vault.open(Sealed::Secret(&mine, &name("a")), &sealed).unwrap(),
            value("hunter2")
        );
        assert_ne!(
            sealed,
            vault.seal(Sealed::Secret(&mine, &name("a")), &value("hunter2"), false).unwrap()
        );
        for opened in [
            vault.open(Sealed::Secret(&mine, &name("b")), &sealed),
            vault.open(Sealed::Secret(&other, &name("a")), &sealed),
            vault.open(Sealed::Secret(&mine, &name("a")), &sealed[..sealed.len() - 1]),
            vault.open(Sealed::Secret(&mine, &name("a")), &sealed[..5]),
            vault.open(Sealed::Secret(&mine, &name("a")), b""),
        ] {
            assert_eq!(opened.unwrap_err().code(), Code::StateFailed);
        }
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(vault.open(Sealed::Secret(&mine, &name("a")), &changed).is_err());
    }

    #[test]
    fn the_key_is_private_made_once_and_missed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let vault = Vault::new(path.clone());
        let tenant = TenantId::default();
        let seal = |first| vault.seal(Sealed::Secret(&tenant, &name("a")), &value("x"), first);
        assert_eq!(seal(false).unwrap_err().code(), Code::StateFailed, "there is no key");
        let sealed = seal(true).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        seal(true).unwrap();
        assert!(
            vault.open(Sealed::Secret(&tenant, &name("a")), &sealed).is_ok(),
            "the key is the first one"
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            vault.open(Sealed::Secret(&tenant, &name("a")), &sealed).is_err(),
            "others could read it"
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, [7; KEY_LENGTH]).unwrap();
        assert!(vault.open(Sealed::Secret(&tenant, &name("a")), &sealed).is_err(), "another key");
        std::fs::write(&path, [7; KEY_LENGTH + 1]).unwrap();
        assert!(vault.open(Sealed::Secret(&tenant, &name("a")), &sealed).is_err(), "no key");
    }
}
