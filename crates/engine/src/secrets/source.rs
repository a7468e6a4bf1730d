//! Opens secrets, wherever a policy says they come from.
//!
//! Every request asks anew, so that a value that was rotated is used from the next request on; only commands are
//! remembered, for as long as their document says. A source of the host (environment, file, command) belongs to
//! whoever runs the server: which callers may name one is decided before a document is taken.

use std::io::Read;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use belljar_codes::Code;
use belljar_egress::SecretError;
use belljar_policy::document::{Document, Source};
use belljar_policy::{SecretName, SecretValue, TenantId};

use super::command::Commands;
use super::not_found;
use crate::engine::Inner;
use crate::{Engine, Error, Result, Scope};

/// One more than the longest secret with its line end.
const MAX_BYTES: u64 = (64 << 10) + 2;

/// Gives whoever sends requests for sandboxes the secrets that documents name. Cheap to clone; nobody else has one.
#[derive(Clone)]
pub struct SecretSources {
    inner: Arc<Inner>,
    commands: Arc<Commands>,
}

impl Engine {
    /// For the part that sends requests. Only an engine that sees everything has it.
    pub fn secret_sources(&self) -> Result<SecretSources> {
        self.scope.administers()?;
        Ok(SecretSources { inner: Arc::clone(&self.inner), commands: Arc::default() })
    }
}

impl Scope {
    /// Refuses a document whose credentials come from the host, unless the caller administers the host.
    pub fn may_use_sources(&self, document: &Document) -> Result<()> {
        let of_host = document.credentials.iter().find(|credential| {
            matches!(
                credential.source,
                Source::Environment(_) | Source::File(_) | Source::Command(_)
            )
        });
        match (self, of_host) {
            (Self::All, _) | (_, None) => Ok(()),
            (_, Some(credential)) => Err(Error::new(
                Code::PermissionDenied,
                format!(
                    "credential `{}` comes from the server's environment, files or programs",
                    belljar_policy::shown(&credential.name)
                ),
            )
            .with_remedy(
                "keep the secret with `belljar secrets set` and use `source: {store: NAME}`",
            )),
        }
    }
}

impl SecretSources {
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
                "no program is connected that answers for `{}`",
                belljar_policy::shown(name)
            ))),
        }
    }

    async fn stored(&self, tenant: &TenantId, name: &SecretName) -> Result<SecretValue> {
        let sealed = self.inner.store.secret(tenant, name).await?;
        self.inner.vault.open(tenant, name, &sealed.ok_or_else(|| not_found(name))?)
    }
}

/// The sources of an engine that is still being put together. Holds no engine alive.
#[derive(Default)]
pub(crate) struct LateSources {
    inner: OnceLock<Weak<Inner>>,
    commands: Arc<Commands>,
}

impl LateSources {
    pub(crate) fn belong_to(&self, inner: &Arc<Inner>) {
        // Set once, by who puts the engine together.
        let _ = self.inner.set(Arc::downgrade(inner));
    }
}

#[async_trait]
impl belljar_egress::Secrets for LateSources {
    async fn get(
        &self,
        identity: &belljar_egress::Identity,
        source: &Source,
    ) -> Result<SecretValue, SecretError> {
        let inner = self.inner.get().and_then(Weak::upgrade);
        let inner = inner.ok_or_else(|| SecretError::Failed("the engine ended".to_owned()))?;
        let sources = SecretSources { inner, commands: Arc::clone(&self.commands) };
        sources.get(&identity.tenant, source).await.map_err(|error| match error.code() {
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
