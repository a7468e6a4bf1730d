//! `belljar approvals`: answering for connections that wait to be allowed.

use belljar_api::v1;

use super::Done;
use crate::args::{ApprovalsArgs, ApprovalsCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, print, print_json};

pub(crate) async fn approvals(context: &Context, args: ApprovalsArgs) -> Result<Done, Failure> {
    match args.command {
        ApprovalsCommand::List { sandbox, json } => list(context, sandbox, json).await,
        ApprovalsCommand::Allow { approval, how, json } => {
            answer(context, approval, how, json).await
        }
        ApprovalsCommand::Deny { approval, json } => {
            answer(context, approval, "deny".to_owned(), json).await
        }
    }
}

async fn list(context: &Context, sandbox: Option<String>, json: bool) -> Result<Done, Failure> {
    let request = v1::ListApprovalsRequest { sandbox };
    let approvals = context
        .with_client(async |mut client| Ok(client.networks.list_approvals(request).await?))
        .await?
        .into_inner()
        .approvals;
    if json {
        print_json(&approvals)?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["ID", "SANDBOX", "WANTS", "REQUEST", "SINCE"]);
    for approval in &approvals {
        let request = match (&approval.method, &approval.path) {
            (Some(method), Some(path)) => format!("{method} {path}"),
            _ => String::new(),
        };
        table.row([
            approval.approval_id.as_str(),
            &approval.sandbox_id,
            &format!("{}:{}/{}", approval.host, approval.port, approval.transport),
            &request,
            &age(approval.asked_at.as_ref()),
        ]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

async fn answer(
    context: &Context,
    approval_id: String,
    answer: String,
    json: bool,
) -> Result<Done, Failure> {
    let request = v1::AnswerApprovalRequest { approval_id, answer };
    let approval = context
        .with_client(async |mut client| Ok(client.networks.answer_approval(request).await?))
        .await?
        .into_inner();
    if json {
        print_json(&approval)?;
    }
    Ok(Done::Success)
}
