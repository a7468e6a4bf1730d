//! Images, fetched ahead of the sandboxes that start from them.

use belljar_api::v1;
use belljar_backend::{FetchState, FetchStep};
use belljar_codes::Code;
use futures_util::{Stream, stream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Answers, Api};
use crate::action;
use crate::call::Call;
use crate::convert::{self, required};
use crate::problem::{Problem, Result};

/// Steps that wait for a slow reader; what comes meanwhile is left out.
const WAITING: usize = 64;

impl Api {
    pub async fn fetch_template(
        &self,
        call: &Call,
        request: v1::FetchTemplateRequest,
    ) -> Result<Answers<v1::FetchStep>> {
        let work = async {
            let template = required("template", &request.template)?.to_owned();
            let wanted = v1::CreateSandboxRequest {
                template: Some(template),
                backend: request.backend.clone(),
                ..v1::CreateSandboxRequest::default()
            };
            let wanted = convert::create_request(&call.caller, &wanted).await?;
            let engine = self.engine(call);
            let (sender, receiver) = mpsc::channel(WAITING);
            // It goes on when nobody watches any more: whoever asked is about to need it.
            let fetching = tokio::spawn(async move {
                engine.fetch_template(&wanted, &sender).await.map_err(Problem::from)
            });
            Ok(self.until_stopped(steps(receiver, fetching)))
        };
        self.act(call, action::FETCH_TEMPLATE, &request.template, work).await
    }
}

fn steps(
    receiver: mpsc::Receiver<FetchStep>,
    fetching: JoinHandle<Result<()>>,
) -> impl Stream<Item = Result<v1::FetchStep>> + Send {
    stream::unfold(Some((receiver, fetching)), async |state| {
        let (mut receiver, fetching) = state?;
        if let Some(step) = receiver.recv().await {
            return Some((Ok(message(step)), Some((receiver, fetching))));
        }
        let ended = fetching.await;
        let ended = ended.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "fetching ended")));
        ended.err().map(|problem| (Err(problem), None))
    })
}

fn message(step: FetchStep) -> v1::FetchStep {
    let state = match step.state {
        FetchState::Waiting => v1::FetchState::Waiting,
        FetchState::Coming => v1::FetchState::Coming,
        FetchState::Unpacking => v1::FetchState::Unpacking,
        FetchState::Done => v1::FetchState::Done,
    };
    v1::FetchStep { part: step.part, state: state.into(), bytes: step.bytes, of: step.of }
}
