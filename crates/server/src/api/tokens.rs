//! Tokens for one sandbox.

use std::time::{Duration, SystemTime};

use belljar_api::v1;
use belljar_codes::Code;

use super::Api;
use crate::action;
use crate::call::Call;
use crate::caller::{Caller, Proof};
use crate::convert::{required, seconds, timestamp};
use crate::problem::{Problem, Result};
use crate::token::{Audience, LONGEST};

/// How long a token is valid unless told otherwise.
const DEFAULT: Duration = Duration::from_secs(3600);

impl Api {
    pub async fn issue_token(
        &self,
        call: &Call,
        request: v1::IssueTokenRequest,
    ) -> Result<v1::IssueTokenResponse> {
        let work = async {
            // Whoever got in for an hour must not be able to stay for ever.
            if call.caller.proof == Proof::Token {
                return Err(Problem::new(Code::PermissionDenied, "a token makes no other tokens")
                    .with_remedy("use a key"));
            }
            let audience = request.audience.as_deref().unwrap_or(Audience::Api.as_str());
            let audience = Audience::parse(audience).ok_or_else(|| {
                Problem::invalid(format!("`{}` is no audience", belljar_policy::shown(audience)))
                    .with_remedy("use `api`, `egress` or `preview`")
            })?;
            let valid = lifetime(&call.caller, request.expires_in_secs)?;
            let reference = required("sandbox", &request.sandbox)?;
            let sandbox = self.engine(call).inspect(reference).await?;
            call.concerns(&sandbox.id, &sandbox.tenant);
            call.note("audience", audience.as_str());
            let (scopes, maker) = (&call.caller.permissions, call.caller.maker());
            let (tenant, id) = (&sandbox.tenant, &sandbox.id);
            let issued = self.tokens.issue(tenant, id, audience, valid, scopes, maker);
            let (token, expires_at) = issued?;
            Ok(v1::IssueTokenResponse { token, expires_at: Some(timestamp(expires_at)) })
        };
        self.act(call, action::ISSUE_TOKEN, &request.sandbox, work).await
    }
}

/// How long a token is valid that this caller asks for: not longer than the caller's own key.
pub(super) fn lifetime(caller: &Caller, asked: Option<f64>) -> Result<Duration> {
    let asked = asked.map(|given| seconds("expires_in_secs", given)).transpose()?;
    let valid = asked.unwrap_or(DEFAULT);
    if valid > LONGEST || valid < Duration::from_secs(1) {
        return Err(Problem::invalid("a token is valid for 1 second to a day").with_remedy(
            "give `--expires` up to `24h`; in the API, `expires_in_secs` from 1 to 86400",
        ));
    }
    let left = caller.expires_at.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
    Ok(left.map_or(valid, |left| valid.min(left)))
}
