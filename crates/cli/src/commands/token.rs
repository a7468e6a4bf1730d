//! `belljar token`.

use belljar_api::v1;

use super::Done;
use crate::args::TokenArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{note, print, print_json, time};
use crate::request;

pub(crate) async fn token(context: &Context, args: &TokenArgs) -> Result<Done, Failure> {
    let request = v1::IssueTokenRequest {
        sandbox: args.sandbox.clone(),
        audience: args.audience.clone(),
        expires_in_secs: request::duration("--expires", args.expires.as_deref())?,
    };
    let issued = context
        .with_client(async |mut client| Ok(client.system.issue_token(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&issued)?;
    } else {
        print(&format!("{}\n", issued.token))?;
        note(context.quiet, &format!("it ends at {}", time(issued.expires_at.as_ref())));
    }
    Ok(Done::Success)
}
