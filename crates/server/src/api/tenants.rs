//! Tenants: who shares this server, and how much of it each may use.

use belljar_api::v1;
use belljar_engine::{Quotas, Tenant, TenantUsage};
use belljar_policy::TenantId;

use super::Api;
use crate::action;
use crate::call::Call;
use crate::convert::{required, timestamp};
use crate::problem::{Problem, Result};

impl Api {
    pub async fn create_tenant(
        &self,
        call: &Call,
        request: v1::CreateTenantRequest,
    ) -> Result<v1::Tenant> {
        let work = async {
            let id = TenantId::parse(required("tenant", &request.tenant)?)?;
            call.belongs_to(&id);
            let quotas = quotas(request.quotas.as_ref());
            Ok(tenant(&self.engine.tenants().create(id, quotas).await?, TenantUsage::default()))
        };
        self.act(call, action::CREATE_TENANT, &request.tenant, work).await
    }

    /// A tenant may look at itself; to look at others is the administrator's.
    pub async fn get_tenant(
        &self,
        call: &Call,
        request: v1::GetTenantRequest,
    ) -> Result<v1::Tenant> {
        let work = async {
            let asked = required("tenant", &request.tenant)?;
            let scope = call.caller.scope_for(Some(asked))?;
            let id = scope.tenant();
            self.described(&self.engine.scoped(scope).tenants().get(&id).await?).await
        };
        self.act(call, action::LOOK_AT_TENANTS, &request.tenant, work).await
    }

    pub async fn list_tenants(
        &self,
        call: &Call,
        _request: v1::ListTenantsRequest,
    ) -> Result<v1::ListTenantsResponse> {
        let work = async {
            let mut tenants = Vec::new();
            for found in self.engine.tenants().list().await? {
                tenants.push(self.described(&found).await?);
            }
            Ok(v1::ListTenantsResponse { tenants })
        };
        self.act(call, action::LIST_TENANTS, "", work).await
    }

    pub async fn set_quotas(
        &self,
        call: &Call,
        request: v1::SetQuotasRequest,
    ) -> Result<v1::Tenant> {
        let work = async {
            let id = TenantId::parse(required("tenant", &request.tenant)?)?;
            call.belongs_to(&id);
            let quotas = quotas(request.quotas.as_ref());
            self.described(&self.engine.tenants().set(&id, quotas).await?).await
        };
        self.act(call, action::CHANGE_TENANT, &request.tenant, work).await
    }

    pub async fn remove_tenant(
        &self,
        call: &Call,
        request: v1::RemoveTenantRequest,
    ) -> Result<v1::RemoveTenantResponse> {
        let work = async {
            let id = TenantId::parse(required("tenant", &request.tenant)?)?;
            call.belongs_to(&id);
            self.engine.tenants().remove(&id).await?;
            Ok::<_, Problem>(v1::RemoveTenantResponse {})
        };
        self.act(call, action::REMOVE_TENANT, &request.tenant, work).await
    }

    async fn described(&self, found: &Tenant) -> Result<v1::Tenant> {
        Ok(tenant(found, self.engine.tenants().usage(&found.id).await?))
    }
}

fn quotas(wire: Option<&v1::Quotas>) -> Quotas {
    let wire = wire.copied().unwrap_or_default();
    Quotas {
        sandboxes: wire.sandboxes,
        memory_bytes: wire.memory_bytes,
        milli_cpus: wire.milli_cpus,
        disk_bytes: wire.disk_bytes,
        processes: wire.processes,
        requests_per_second: wire.requests_per_second,
    }
}

fn tenant(tenant: &Tenant, usage: TenantUsage) -> v1::Tenant {
    let quotas = &tenant.quotas;
    v1::Tenant {
        tenant: tenant.id.to_string(),
        quotas: Some(v1::Quotas {
            sandboxes: quotas.sandboxes,
            memory_bytes: quotas.memory_bytes,
            milli_cpus: quotas.milli_cpus,
            disk_bytes: quotas.disk_bytes,
            processes: quotas.processes,
            requests_per_second: quotas.requests_per_second,
        }),
        usage: Some(v1::Quotas {
            sandboxes: Some(usage.sandboxes),
            memory_bytes: Some(usage.memory_bytes),
            milli_cpus: Some(usage.milli_cpus),
            disk_bytes: Some(usage.disk_bytes),
            processes: Some(usage.processes),
            requests_per_second: None,
        }),
        created_at: Some(timestamp(tenant.created_at)),
    }
}
