//! `belljar create`: a sandbox that stays.

use belljar_api::v1;

use super::{Done, fetch};
use crate::args::CreateArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{SandboxShape, note, print, print_explanation, print_json};
use crate::request;

pub(crate) async fn create(context: &Context, args: CreateArgs) -> Result<Done, Failure> {
    let name = args.name.as_deref();
    let request = v1::CreateSandboxRequest {
        get_or_create: args.get_or_create,
        metadata: request::metadata(&args.metadata)?,
        idempotency_key: args.idempotency_key.clone(),
        tenant: args.tenant.clone(),
        ..request::create_request(&context.settings, name, &args.options, Vec::new())?
    };
    let (explain, sandbox) = context
        .with_client(async |mut client| {
            let explain = match args.explain {
                true => {
                    let create = Some(request.clone());
                    let wanted = v1::ExplainSandboxRequest { create, sandbox: None };
                    Some(client.sandboxes.explain_sandbox(wanted).await?.into_inner())
                }
                false => None,
            };
            fetch::watch(&client, &request, context.quiet).await;
            Ok((explain, client.sandboxes.create_sandbox(request).await?.into_inner()))
        })
        .await?;
    for name in &sandbox.stripped_environment {
        note(context.quiet, &format!("environment variable `{name}` was not passed on"));
    }
    if args.json {
        print_json(&SandboxShape { sandbox, explain })?;
    } else {
        if let Some(explain) = &explain {
            print_explanation(explain);
        }
        print(&format!("{}\n", sandbox.sandbox_id))?;
    }
    Ok(Done::Success)
}
