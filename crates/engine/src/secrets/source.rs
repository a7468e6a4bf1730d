//! Opens secrets, wherever a policy says they come from.
//!
//! Every request asks anew, so that a value that was rotated is used from the next request on; only commands are
//! remembered, for as long as their document says. A source of the host (environment, file, command) belongs to
//! whoever runs the server: which callers may name one is decided before a document is taken. A program that is connected
//! gives what it gives to its own sandbox only.

use std::io::Read;
use std::sync::Arc;

use async_trait::async_trait;
use belljar_codes::Code;
use belljar_egress::{Decider as _, Identity, SecretError};
use belljar_policy::document::Source;
use belljar_policy::{SecretName, SecretValue, TenantId};

use super::command::Commands;
use super::{Sealed, Vault, not_found};
use crate::network::decider::Deciding;
use crate::store::Store;
use crate::{Engine, Error, Result};

/// One more than the longest secret with its line end.
const MAX_BYTES: u64 = (64 << 10) + 2;

/// Gives whoever sends requests for sandboxes the secrets that documents name. Cheap to clone; nobody else has one.
#[derive(Clone)]
pub struct SecretSources {
    store: Arc<dyn Store>,
    vault: Arc<Vault>,
    commands: Arc<Commands>,
    programs: Deciding,
}

impl Engine {
    /// For the part that sends requests. Only an engine that sees everything has it.
    pub fn secret_sources(&self) -> Result<SecretSources> {
        self.scope.administers()?;
        let (store, vault) = (Arc::clone(&self.inner.store), Arc::clone(&self.inner.vault));
        Ok(SecretSources::new(store, vault, self.inner.deciding.clone()))
    }
}

impl SecretSources {
    pub(crate) fn new(store: Arc<dyn Store>, vault: Arc<Vault>, programs: Deciding) -> Self {
        Self { store, vault, commands: Arc::default(), programs }
    }

    /// The secret as it is now.
    pub async fn get(&self, tenant: &TenantId, source: &Source) -> Result<SecretValue> {
        match source {
            Source::Store(name) => self.stored(tenant, &SecretName::parse(name)?).await,
            Source::Environment(variable) => {
                let unavailable = |why| unavailable(format!("variable `{variable}` {why}"));
                let text = std::env::var(variable).map_err(|error| match error {
                    std::env::VarError::NotPresent => unavailable("is not set"),
                    std::env::VarError::NotUnicode(_) => unavailable("is not text"),
                })?;
                value_of(text.into_bytes()).map_err(unavailable)
            }
            Source::File(path) => {
                let read = || {
                    let mut bytes = Vec::new();
                    let file = std::fs::File::open(path)?;
                    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
                    Ok::<_, std::io::Error>(bytes)
                };
                let bytes = read()
                    .map_err(|source| unavailable(format!("file `{path}`")).with_source(source))?;
                value_of(bytes).map_err(|why| unavailable(format!("file `{path}` {why}")))
            }
            Source::Command(command) => self.commands.get(command).await,
            Source::Callback(name) => Err(unavailable(format!(
                "`{}` is given to the requests of a sandbox only",
                belljar_policy::shown(name)
            ))),
        }
    }

    async fn stored(&self, tenant: &TenantId, name: &SecretName) -> Result<SecretValue> {
        let sealed = self.store.secret(tenant, name).await?;
        self.vault.open(Sealed::Secret(tenant, name), &sealed.ok_or_else(|| not_found(name))?)
    }
}

#[async_trait]
impl belljar_egress::Secrets for SecretSources {
    async fn get(&self, identity: &Identity, source: &Source) -> Result<SecretValue, SecretError> {
        if let Source::Callback(name) = source {
            return self.programs.secret(identity, name).await;
        }
        let found = Self::get(self, &identity.tenant, source).await;
        found.map_err(|error| match error.code() {
            Code::SecretNotFound => SecretError::NotFound,
            _ => SecretError::Failed(error.to_string()),
        })
    }
}

/// Text without the line end that editors and programs put after it.
pub(super) fn value_of(bytes: Vec<u8>) -> Result<SecretValue, &'static str> {
    let text = String::from_utf8(bytes).map_err(|_| "is not text")?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    SecretValue::new(text).map_err(|_| "is empty or longer than 64 KiB")
}

fn unavailable(what: String) -> Error {
    Error::new(Code::SecretUnavailable, what)
}
