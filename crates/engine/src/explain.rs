//! What a request would give, without giving it.

use belljar_backend::{Enforcement, IsolationClass, RuntimeChoice};

use crate::engine::Inner;
use crate::plan::{Plan, network_enforcement};
use crate::{BackendChoice, CreateRequest, Result, policy, volume};
use belljar_policy::TenantId;

/// Every decision about a sandbox with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub requested_backend: String,
    pub chosen_backend: String,
    /// What runs in it, where it has several.
    pub runtime: Option<RuntimeChoice>,
    pub reason: String,
    pub class: IsolationClass,
    pub network_mode: String,
    pub network_enforcement: String,
    pub writable_paths: Vec<String>,
    pub timeout_secs: u64,
    /// Every rule with the mechanism that enforces it.
    pub rules: Vec<Enforcement>,
    pub template: String,
    pub template_reason: String,
    pub stripped_environment: Vec<String>,
}

pub(crate) async fn explain(
    inner: &Inner,
    tenant: &TenantId,
    request: &CreateRequest,
) -> Result<Explanation> {
    // Nothing is made, not even a volume's directory.
    let volume = request.volume.as_ref().map(volume::rule);
    let request = policy::govern(inner, tenant, request).await?;
    let request = &CreateRequest { volume: None, ..request };
    let plan = Plan::new(inner, tenant, request).await?;
    let mut rules = plan.backend.plan(&plan.spec).await?;
    rules.extend(volume);
    Ok(Explanation {
        requested_backend: match &request.backend {
            BackendChoice::Auto => "auto".to_owned(),
            BackendChoice::Named(name) => name.clone(),
        },
        chosen_backend: plan.backend.name().to_owned(),
        runtime: plan.spec.runtime,
        reason: plan.backend_reason,
        class: plan.class,
        network_mode: plan.spec.network.as_str().to_owned(),
        network_enforcement: network_enforcement(&rules),
        writable_paths: plan.writable_paths,
        timeout_secs: plan.timeout.as_secs(),
        rules,
        template: plan.template,
        template_reason: plan.template_reason,
        stripped_environment: plan.stripped_environment,
    })
}
