//! API keys. A secret is in the answer to its creation and nowhere else.

use std::time::SystemTime;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{KeyInfo, KeyScope, NewKey, Role};
use belljar_policy::{TenantId, shown};

use super::Api;
use crate::action;
use crate::call::Call;
use crate::caller::Caller;
use crate::convert::{required, seconds, timestamp};
use crate::problem::{Problem, Result};

impl Api {
    pub async fn create_key(
        &self,
        call: &Call,
        request: v1::CreateKeyRequest,
    ) -> Result<v1::CreateKeyResponse> {
        let work = async {
            let new = self.new_key(call, &request).await?;
            call.belongs_to(&new.tenant);
            let (info, secret) = self.engine(call).keys().create(new).await?;
            call.note("key", &info.id);
            Ok(v1::CreateKeyResponse { key: Some(key(&info)), secret: secret.expose().to_owned() })
        };
        self.act(call, action::CREATE_KEY, &request.name, work).await
    }

    pub async fn list_keys(
        &self,
        call: &Call,
        request: v1::ListKeysRequest,
    ) -> Result<v1::ListKeysResponse> {
        let work = async {
            let wanted = |info: &&KeyInfo| {
                request.tenant.as_deref().is_none_or(|tenant| info.tenant.as_str() == tenant)
            };
            let keys = self.engine(call).keys().list().await?;
            Ok(v1::ListKeysResponse { keys: keys.iter().filter(wanted).map(key).collect() })
        };
        self.act(call, action::LIST_KEYS, "", work).await
    }

    pub async fn revoke_key(&self, call: &Call, request: v1::RevokeKeyRequest) -> Result<v1::Key> {
        let work = async {
            let id = required("key_id", &request.key_id)?;
            let revoked = self.engine(call).keys().revoke(id).await?;
            call.belongs_to(&revoked.tenant);
            Ok(key(&revoked))
        };
        self.act(call, action::REVOKE_KEY, &request.key_id, work).await
    }

    async fn new_key(&self, call: &Call, request: &v1::CreateKeyRequest) -> Result<NewKey> {
        let caller = &call.caller;
        let mut tenant = request.tenant.as_deref().map(TenantId::parse).transpose()?;
        refuse_more(caller, &request.scopes)?;
        let role = match (request.role.as_deref().unwrap_or("tenant"), &request.sandbox) {
            ("admin", None) => Role::Admin,
            ("tenant", None) => Role::Tenant,
            ("sandbox", Some(sandbox)) => {
                let scope = caller.scope_for(request.tenant.as_deref())?;
                let found = self.engine.scoped(scope).inspect(sandbox).await?;
                tenant = Some(found.tenant);
                Role::Sandbox(found.id)
            }
            ("sandbox", None) => {
                return Err(Problem::invalid("a key of the role `sandbox` opens one sandbox")
                    .with_remedy("name it with `sandbox`"));
            }
            ("admin" | "tenant", Some(_)) => {
                return Err(Problem::new(
                    Code::ConflictingOptions,
                    "only a key of the role `sandbox` is for one sandbox",
                )
                .with_remedy("leave out `sandbox`, or use the role `sandbox`"));
            }
            (other, _) => {
                return Err(Problem::invalid(format!("role `{}` is not known", shown(other)))
                    .with_remedy("use `admin`, `tenant` or `sandbox`"));
            }
        };
        let expires = request.expires_in_secs.map(|value| seconds("expires_in_secs", value));
        let expires_at = expires.transpose()?.map(|after| SystemTime::now() + after);
        Ok(NewKey {
            name: request.name.clone(),
            tenant: tenant.unwrap_or_else(|| caller.tenant()),
            role,
            scopes: request.scopes.iter().map(|word| scope(word)).collect::<Result<_>>()?,
            expires_at: ends(caller, expires_at)?,
        })
    }
}

/// A key cannot make one that may do more than itself.
fn refuse_more(caller: &Caller, scopes: &[String]) -> Result<()> {
    let limited = !caller.permissions.is_empty();
    let inside =
        !scopes.is_empty() && scopes.iter().all(|scope| caller.permissions.contains(scope));
    if limited && !inside {
        return Err(Problem::new(
            Code::PermissionDenied,
            "the new key would have scopes that this one does not have",
        )
        .with_remedy(format!("ask for scopes among `{}`", caller.permissions.join("`, `"))));
    }
    Ok(())
}

/// Nor one that lasts longer. Where nothing was said, the new key ends with the one that makes it.
fn ends(caller: &Caller, asked: Option<SystemTime>) -> Result<Option<SystemTime>> {
    match (asked, caller.expires_at) {
        (Some(asked), Some(own)) if asked > own => Err(Problem::new(
            Code::PermissionDenied,
            "the new key would be valid for longer than this one",
        )
        .with_remedy("ask for less, or say nothing: it then ends with this one")),
        (asked, own) => Ok(asked.or(own)),
    }
}

fn scope(word: &str) -> Result<KeyScope> {
    KeyScope::parse(word).ok_or_else(|| {
        let known = KeyScope::ALL.iter().map(|scope| format!("`{}`", scope.as_str()));
        Problem::invalid(format!("scope `{}` is not known", shown(word)))
            .with_remedy(format!("use {}", known.collect::<Vec<_>>().join(", ")))
    })
}

fn key(info: &KeyInfo) -> v1::Key {
    let (role, sandbox_id) = match &info.role {
        Role::Admin => ("admin", None),
        Role::Tenant => ("tenant", None),
        Role::Sandbox(id) => ("sandbox", Some(id.as_str().to_owned())),
    };
    v1::Key {
        key_id: info.id.clone(),
        name: info.name.clone(),
        tenant: info.tenant.to_string(),
        role: role.to_owned(),
        sandbox_id,
        scopes: info.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        created_at: Some(timestamp(info.created_at)),
        expires_at: info.expires_at.map(timestamp),
        last_used_at: info.last_used_at.map(timestamp),
        revoked_at: info.revoked_at.map(timestamp),
    }
}
