//! Policies that a server keeps, and those that are learned from what sandboxes did there.

use belljar_api::v1;
use belljar_codes::Code;

use super::{Done, inert};
use crate::args::{PolicyArgs, PolicyCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, note, print, print_json};
use crate::request;

pub(crate) async fn kept(context: &Context, args: PolicyArgs) -> Result<Done, Failure> {
    match args.command {
        PolicyCommand::Put { name, place, tenant, json } => {
            let documents = request::documents(&place)?;
            put(context, v1::PutPolicyRequest { name, documents, tenant }, json).await
        }
        PolicyCommand::Get { name, tenant, json } => {
            get(context, v1::GetPolicyRequest { name, tenant }, json).await
        }
        PolicyCommand::List { name, tenant, json } => {
            list(context, v1::ListPoliciesRequest { name, tenant }, json).await
        }
        PolicyCommand::Rm { name, tenant, json } => {
            remove(context, v1::RemovePolicyRequest { name, tenant }, json).await
        }
        PolicyCommand::Learn { sandbox, json } => learn(context, sandbox, json).await,
        _ => Err(Failure::new(Code::Internal, "this part of `policy` needs no server")),
    }
}

async fn put(
    context: &Context,
    request: v1::PutPolicyRequest,
    json: bool,
) -> Result<Done, Failure> {
    let policy = context
        .with_client(async |mut client| Ok(client.policies.put_policy(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&policy)?;
    } else {
        print(&format!("{}@{}\n", policy.name, policy.version))?;
    }
    Ok(Done::Success)
}

async fn get(
    context: &Context,
    request: v1::GetPolicyRequest,
    json: bool,
) -> Result<Done, Failure> {
    let policy = context
        .with_client(async |mut client| Ok(client.policies.get_policy(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&policy)?;
        return Ok(Done::Success);
    }
    let mut text = format!("# {}@{}\n", policy.name, policy.version);
    for document in &policy.documents {
        text.push_str(&format!("# from {}\n", inert(&document.origin).replace('\n', " ")));
    }
    text.push_str(&format!("# digest {}\n{}", policy.digest, policy.effective));
    print(&text)?;
    Ok(Done::Success)
}

async fn list(
    context: &Context,
    request: v1::ListPoliciesRequest,
    json: bool,
) -> Result<Done, Failure> {
    let policies = context
        .with_client(async |mut client| Ok(client.policies.list_policies(request).await?))
        .await?
        .into_inner()
        .policies;
    if json {
        print_json(&policies)?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["NAME", "VERSION", "DIGEST", "AGE"]);
    for policy in &policies {
        table.row([
            policy.name.as_str(),
            &policy.version.to_string(),
            policy.digest.get(..12).unwrap_or(&policy.digest),
            &age(policy.created_at.as_ref()),
        ]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

async fn remove(
    context: &Context,
    request: v1::RemovePolicyRequest,
    json: bool,
) -> Result<Done, Failure> {
    let name = request.name.clone();
    context
        .with_client(async |mut client| Ok(client.policies.remove_policy(request).await?))
        .await?;
    if json {
        print_json(&serde_json::json!({ "removed": name }))?;
    }
    Ok(Done::Success)
}

async fn learn(context: &Context, sandbox: String, json: bool) -> Result<Done, Failure> {
    let request = v1::LearnPolicyRequest { sandbox };
    let learned = context
        .with_client(async |mut client| Ok(client.policies.learn_policy(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&learned)?;
        return Ok(Done::Success);
    }
    for text in &learned.notes {
        note(context.quiet, &inert(text));
    }
    print(&learned.document)?;
    Ok(Done::Success)
}
