//! Which policy a new sandbox runs under.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::{SandboxName, TenantId, shown};

use super::narrow::narrow;
use super::{PolicyRef, SandboxPolicy};
use crate::engine::Inner;
use crate::{CreateRequest, Error, Result, aside, store};

/// What a caller asks for.
#[derive(Clone, Debug)]
pub enum PolicyChoice {
    /// These documents.
    Documents(Arc<SandboxPolicy>),
    /// One that is kept for the tenant.
    Kept(PolicyName),
    /// None that denies: everything is permitted and put on record, for learning a policy from it.
    Record,
}

/// The name of a kept policy, and possibly which version of it: `name` or `name@3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyName {
    pub name: String,
    /// `None`: the newest.
    pub version: Option<u32>,
}

impl FromStr for PolicyName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let number = version.parse().ok().filter(|number| *number > 0);
                let number = number.ok_or_else(|| {
                    let message = format!("`{}` is no version of a policy", shown(version));
                    Error::new(Code::InvalidArgument, message)
                        .with_remedy("versions are numbers from 1 on, as in `name@3`")
                })?;
                (name, Some(number))
            }
        };
        SandboxName::parse(name).map_err(|_| {
            let message = format!("`{}` is no name of a policy", shown(name));
            Error::new(Code::InvalidArgument, message).with_remedy(
                "use letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
            )
        })?;
        Ok(Self { name: name.to_owned(), version })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.version {
            None => Ok(()),
            Some(version) => write!(f, "@{version}"),
        }
    }
}

/// A request for a sandbox under its policy: with the policy found, and bounded by it.
pub(crate) async fn govern(
    inner: &Inner,
    tenant: &TenantId,
    request: &CreateRequest,
) -> Result<CreateRequest> {
    let mut request = request.clone();
    if let Some(choice) = &request.policy {
        let policy = find(inner, tenant, choice).await?;
        narrow(&policy, &mut request)?;
        request.policy = Some(PolicyChoice::Documents(policy));
    }
    Ok(request)
}

/// The policy of a request that was governed.
pub(crate) fn resolved(request: &CreateRequest) -> Option<&Arc<SandboxPolicy>> {
    match &request.policy {
        Some(PolicyChoice::Documents(policy)) => Some(policy),
        Some(PolicyChoice::Kept(_) | PolicyChoice::Record) | None => None,
    }
}

async fn find(
    inner: &Inner,
    tenant: &TenantId,
    choice: &PolicyChoice,
) -> Result<Arc<SandboxPolicy>> {
    match choice {
        PolicyChoice::Documents(policy) => Ok(Arc::clone(policy)),
        PolicyChoice::Record => Ok(Arc::new(SandboxPolicy::recording())),
        PolicyChoice::Kept(name) => {
            let kept = inner.store.kept_policy(tenant, &name.name, name.version).await?;
            let kept = kept.ok_or_else(|| not_found(name))?;
            let reference = PolicyRef {
                name: kept.name,
                version: Some(kept.version),
                digest: kept.digest,
                recording: false,
            };
            inner.policies.find(inner, &reference).await
        }
    }
}

/// The documents of a request that was governed, as they are kept.
pub(crate) async fn written(request: &CreateRequest) -> Result<Option<String>> {
    match resolved(request) {
        Some(policy) => written_layers(policy).await.map(Some),
        None => Ok(None),
    }
}

pub(super) async fn written_layers(policy: &Arc<SandboxPolicy>) -> Result<String> {
    let policy = Arc::clone(policy);
    aside(move || store::written_layers(policy.layers())).await?
}

pub(super) fn not_found(name: &PolicyName) -> Error {
    Error::new(Code::PolicyNotFound, format!("there is no policy `{name}`"))
        .with_remedy("`belljar policy list` shows the policies that are kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_a_version() {
        let check = |text: &str, name: &str, version: Option<u32>| {
            let parsed: PolicyName = text.parse().unwrap();
            assert_eq!(parsed, PolicyName { name: name.to_owned(), version });
            assert_eq!(parsed.to_string(), text);
        };
        check("web", "web", None);
        check("web@12", "web", Some(12));
        for text in ["", "@1", "web@", "web@0", "web@-1", "web@x", "we b", "a/b", "web@1@2"] {
            assert!(text.parse::<PolicyName>().is_err(), "{text}");
        }
    }
}
