//! Policies as callers send and see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{KeptPolicy, PolicyChoice, PolicyName, PolicyRef, SandboxPolicy, aside};
use belljar_policy::document::{Document, Format, Layer, Value, read, to_yaml};
use belljar_policy::{Invalid, shown};
use serde::de::IgnoredAny;

use super::timestamp;
use crate::caller::Caller;
use crate::problem::{Problem, Result};

/// A handful of words about a command, not a document.
const MAX_CONTEXT: usize = 64 << 10;

/// What the caller wants a sandbox to run under.
pub(super) async fn choice(caller: &Caller, spec: &v1::PolicySpec) -> Result<PolicyChoice> {
    let given = [
        ("document", spec.document.is_some()),
        ("name", spec.name.is_some()),
        ("documents", !spec.documents.is_empty()),
        ("record", spec.record),
    ];
    let names: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    match names.as_slice() {
        ["record"] => Ok(PolicyChoice::Record),
        ["name"] => Ok(PolicyChoice::Kept(policy_name(spec.name.as_deref().unwrap_or_default())?)),
        ["documents"] => {
            Ok(PolicyChoice::Documents(policy_layers(caller, spec.documents.clone()).await?))
        }
        ["document"] => {
            let text = spec.document.clone().unwrap_or_default();
            let document = v1::PolicyDocument { origin: String::new(), text };
            Ok(PolicyChoice::Documents(policy_layers(caller, vec![document]).await?))
        }
        [] => Err(Problem::invalid("`policy` names nothing")
            .with_remedy("give one of `document`, `documents`, `name` and `record`")),
        several => {
            let names = several.join("`, `");
            Err(Problem::new(
                Code::ConflictingOptions,
                format!("`{names}` of `policy` cannot be given together"),
            )
            .with_remedy("give one of them"))
        }
    }
}

pub(crate) fn policy_name(text: &str) -> Result<PolicyName> {
    Ok(text.parse()?)
}

/// Documents that a caller sent. What they use of the host is the operator's to give.
pub(crate) async fn policy_layers(
    caller: &Caller,
    documents: Vec<v1::PolicyDocument>,
) -> Result<Arc<SandboxPolicy>> {
    if documents.is_empty() {
        return Err(Problem::invalid("`documents` is empty").with_remedy("send at least one"));
    }
    let read = move || {
        let layers = documents.iter().map(layer).collect::<Result<Vec<_>>>()?;
        Ok::<_, Problem>(Arc::new(SandboxPolicy::new(layers)?))
    };
    let policy = aside(read).await??;
    match policy.uses_of_host() {
        Some(what) if !caller.is_admin() => Err(Problem::new(
            Code::PermissionDenied,
            format!("the policy uses {what}, which needs the role `admin`"),
        )
        .with_remedy("have the operator keep the policy for you, and use it by name")),
        _ => Ok(policy),
    }
}

fn layer(wire: &v1::PolicyDocument) -> Result<Layer> {
    let refused = |refusal| {
        let invalid = Invalid::from(refusal);
        let message = match wire.origin.as_str() {
            "" => invalid.message,
            origin => format!("{}: {}", shown(origin), invalid.message),
        };
        Problem::new(invalid.code, message).with_remedy(invalid.remedy)
    };
    // A map of YAML may begin as an object of JSON does.
    let is_json = serde_json::from_str::<IgnoredAny>(&wire.text).is_ok();
    let format = if is_json { Format::Json } else { Format::Yaml };
    let document = Document::parse_one_of_many(&wire.text, format).map_err(refused)?;
    let origin = match wire.origin.as_str() {
        "" => document.name.clone(),
        origin => origin.chars().take(1024).collect(),
    };
    Ok(Layer { origin, document })
}

/// What the caller tells about a command.
pub(super) fn context(text: &str) -> Result<BTreeMap<String, Value>> {
    if text.len() > MAX_CONTEXT {
        return Err(Problem::invalid(format!("`context` is longer than {MAX_CONTEXT} bytes")));
    }
    let wrong = |refusal| {
        let invalid = Invalid::from(refusal);
        Problem::invalid(format!("`context` is no JSON object: {}", invalid.message))
            .with_remedy("send an object such as `{\"ticket\": 7}`, as text")
    };
    read(text, Format::Json).map_err(wrong)
}

pub(super) fn reference(policy: &PolicyRef) -> v1::SandboxPolicy {
    v1::SandboxPolicy {
        name: policy.name.clone(),
        version: policy.version,
        digest: policy.digest.clone(),
        recording: policy.recording,
    }
}

/// One version with its documents.
pub(crate) async fn whole_policy(
    kept: KeptPolicy,
    policy: Arc<SandboxPolicy>,
) -> Result<v1::Policy> {
    Ok(aside(move || kept_policy(&kept, Some(&policy))).await?)
}

/// One version; with its documents where they are given.
pub(crate) fn kept_policy(kept: &KeptPolicy, policy: Option<&SandboxPolicy>) -> v1::Policy {
    let layers = policy.map_or(&[][..], SandboxPolicy::layers);
    let document = |layer: &Layer| v1::PolicyDocument {
        origin: layer.origin.clone(),
        text: to_yaml(&layer.document),
    };
    v1::Policy {
        name: kept.name.clone(),
        version: kept.version,
        digest: kept.digest.clone(),
        created_at: Some(timestamp(kept.created_at)),
        tenant: kept.tenant.to_string(),
        documents: layers.iter().map(document).collect(),
        effective: policy.map(|policy| to_yaml(&policy.document)).unwrap_or_default(),
    }
}
