//! The networks of sandboxes: what may be reached, what was, and who is asked.

use belljar_api::v1;
use belljar_engine::{NetworkLog, NetworkQuery};
use futures_util::{Stream, stream};

use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::convert::{self, required};
use crate::problem::Result;

impl Api {
    pub async fn get_network(
        &self,
        call: &Call,
        request: v1::GetNetworkRequest,
    ) -> Result<v1::SandboxNetwork> {
        let work = async {
            let engine = self.engine(call);
            let id = self.subject(call, &request.sandbox).await?;
            Ok(convert::sandbox_network(&id, &engine.network(id.as_str()).await?))
        };
        self.act(call, action::GET_NETWORK, &request.sandbox, work).await
    }

    pub async fn change_network(
        &self,
        call: &Call,
        request: v1::ChangeNetworkRequest,
    ) -> Result<v1::SandboxNetwork> {
        let work = async {
            let engine = self.engine(call);
            let id = self.subject(call, &request.sandbox).await?;
            let change = convert::network_change(&call.caller, &request)?;
            Ok(convert::sandbox_network(&id, &engine.change_network(id.as_str(), change).await?))
        };
        self.act(call, action::CHANGE_NETWORK, &request.sandbox, work).await
    }

    pub async fn read_network_log(
        &self,
        call: &Call,
        request: v1::ReadNetworkLogRequest,
    ) -> Result<Answers<v1::NetworkDecision>> {
        let work = async {
            let reference = required("sandbox", &request.sandbox)?;
            let query =
                NetworkQuery { denied: request.denied, last: request.last, follow: request.follow };
            let log = self.engine(call).network_log(reference, query).await?;
            Ok(self.until_stopped(decisions(log)))
        };
        self.act(call, action::READ_NETWORK_LOG, &request.sandbox, work).await
    }

    pub async fn list_approvals(
        &self,
        call: &Call,
        request: v1::ListApprovalsRequest,
    ) -> Result<v1::ListApprovalsResponse> {
        let work = async {
            let engine = self.engine(call);
            let sandbox = match &request.sandbox {
                Some(reference) => Some(engine.identify(reference).await?),
                None => None,
            };
            let waiting = engine.approvals(sandbox.as_ref());
            let approvals = waiting.iter().map(convert::approval).collect();
            Ok(v1::ListApprovalsResponse { approvals })
        };
        self.act(call, action::LIST_APPROVALS, "", work).await
    }

    pub async fn answer_approval(
        &self,
        call: &Call,
        request: v1::AnswerApprovalRequest,
    ) -> Result<v1::Approval> {
        let work = async {
            let id = required("approval_id", &request.approval_id)?;
            let answer = convert::approval_answer(&request.answer)?;
            let answered = self.engine(call).answer_approval(id, answer).await?;
            call.concerns(&answered.sandbox, &answered.tenant);
            Ok(convert::approval(&answered))
        };
        self.act(call, action::ANSWER_APPROVAL, &request.approval_id, work).await
    }
}

fn decisions(log: NetworkLog) -> impl Stream<Item = Result<v1::NetworkDecision>> + Send {
    stream::unfold(Some(log), async |log| {
        let mut log = log?;
        match log.next().await {
            Ok(Some(entry)) => Some((Ok(convert::network_decision(&entry)), Some(log))),
            Ok(None) => None,
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}
