//! Secrets that requests of sandboxes are given. There is no way to read one.

use belljar_api::v1;
use belljar_engine::{SecretInfo, TenantId};
use belljar_policy::{SecretName, SecretValue};

use super::Api;
use crate::action;
use crate::call::Call;
use crate::convert::{required, timestamp};
use crate::problem::Result;

impl Api {
    /// Neither the audit log nor an error repeats the value.
    pub async fn set_secret(
        &self,
        call: &Call,
        request: v1::SetSecretRequest,
    ) -> Result<v1::Secret> {
        let work = async {
            let name = SecretName::parse(required("name", &request.name)?)?;
            let value = SecretValue::new(request.value.as_str())?;
            let tenant = tenant(call, request.tenant.as_deref())?;
            let set = self.engine(call).secrets().set(tenant, &name, &value).await?;
            Ok(wire(&set))
        };
        self.act(call, action::SET_SECRET, &request.name, work).await
    }

    pub async fn list_secrets(
        &self,
        call: &Call,
        _request: v1::ListSecretsRequest,
    ) -> Result<v1::ListSecretsResponse> {
        let work = async {
            let secrets = self.engine(call).secrets().list().await?;
            Ok(v1::ListSecretsResponse { secrets: secrets.iter().map(wire).collect() })
        };
        self.act(call, action::LIST_SECRETS, "", work).await
    }

    pub async fn remove_secret(
        &self,
        call: &Call,
        request: v1::RemoveSecretRequest,
    ) -> Result<v1::RemoveSecretResponse> {
        let work = async {
            let name = SecretName::parse(required("name", &request.name)?)?;
            let tenant = tenant(call, request.tenant.as_deref())?;
            self.engine(call).secrets().remove(tenant, &name).await?;
            Ok(v1::RemoveSecretResponse {})
        };
        self.act(call, action::REMOVE_SECRET, &request.name, work).await
    }
}

fn tenant(call: &Call, text: Option<&str>) -> Result<Option<TenantId>> {
    let tenant = text.map(TenantId::parse).transpose()?;
    if let Some(tenant) = &tenant {
        call.belongs_to(tenant);
    }
    Ok(tenant)
}

fn wire(secret: &SecretInfo) -> v1::Secret {
    v1::Secret {
        name: secret.name.to_string(),
        tenant: secret.tenant.to_string(),
        created_at: Some(timestamp(secret.created_at)),
        changed_at: Some(timestamp(secret.changed_at)),
    }
}
