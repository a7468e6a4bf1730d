//! Policies that are kept by name, and those that are learned from what sandboxes did.

use belljar_api::v1;
use belljar_policy::document::to_yaml;

use super::Api;
use crate::action;
use crate::call::Call;
use crate::convert::{self, required};
use crate::problem::Result;

impl Api {
    pub async fn put_policy(
        &self,
        call: &Call,
        mut request: v1::PutPolicyRequest,
    ) -> Result<v1::Policy> {
        let documents = std::mem::take(&mut request.documents);
        let work = async {
            let name = convert::policy_name(required("name", &request.name)?)?;
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            call.belongs_to(&scope.tenant());
            let policy = convert::policy_layers(&call.caller, documents).await?;
            let kept = self.engine.scoped(scope).policies().put(&name, &policy).await?;
            convert::whole_policy(kept, policy).await
        };
        self.act(call, action::PUT_POLICY, &request.name, work).await
    }

    pub async fn get_policy(
        &self,
        call: &Call,
        request: v1::GetPolicyRequest,
    ) -> Result<v1::Policy> {
        let work = async {
            let name = convert::policy_name(required("name", &request.name)?)?;
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            let (kept, policy) = self.engine.scoped(scope).policies().get(&name).await?;
            convert::whole_policy(kept, policy).await
        };
        self.act(call, action::GET_POLICY, &request.name, work).await
    }

    pub async fn list_policies(
        &self,
        call: &Call,
        request: v1::ListPoliciesRequest,
    ) -> Result<v1::ListPoliciesResponse> {
        let work = async {
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            let policies = self.engine.scoped(scope).policies();
            let found = policies.list(request.name.as_deref()).await?;
            let policies = found.iter().map(|kept| convert::kept_policy(kept, None)).collect();
            Ok(v1::ListPoliciesResponse { policies })
        };
        self.act(call, action::LIST_POLICIES, "", work).await
    }

    pub async fn remove_policy(
        &self,
        call: &Call,
        request: v1::RemovePolicyRequest,
    ) -> Result<v1::RemovePolicyResponse> {
        let work = async {
            let name = convert::policy_name(required("name", &request.name)?)?;
            let scope = call.caller.scope_for(request.tenant.as_deref())?;
            call.belongs_to(&scope.tenant());
            self.engine.scoped(scope).policies().remove(&name).await?;
            Ok(v1::RemovePolicyResponse {})
        };
        self.act(call, action::REMOVE_POLICY, &request.name, work).await
    }

    pub async fn learn_policy(
        &self,
        call: &Call,
        request: v1::LearnPolicyRequest,
    ) -> Result<v1::LearnPolicyResponse> {
        let work = async {
            let learned = self.engine(call).learn(required("sandbox", &request.sandbox)?).await?;
            let document = to_yaml(&learned.document);
            Ok(v1::LearnPolicyResponse { document, notes: learned.notes })
        };
        self.act(call, action::LEARN_POLICY, &request.sandbox, work).await
    }
}
