//! The conversation with a client that answers for a sandbox.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::{
    EventKind, Events, Network, NetworkCallback, Sandbox, SandboxId, SandboxState, aside_if,
};
use futures_util::{Stream, StreamExt, stream};
use prost::Message;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{Answers, Api, stopping};
use crate::action;
use crate::call::Call;
use crate::callbacks::{Client, MAX_CALLS, Offer, Registered};
use crate::patience::FIRST_WORD;
use crate::problem::{Problem, Result};

/// Schemas of more bytes together are looked through aside, and any that may have patterns, which are read then.
const SHORT: usize = 8 << 10;

/// A hello that the quota has no room for waits for so long: to refuse it ends the conversation, and with it everything that
/// the client has answered for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Hellos that wait, and their bytes, the last one not counted. Behind more, answers would have to wait as well.
const MAX_WAITING: usize = 16;
const MAX_WAITING_BYTES: usize = 1 << 20;

impl Api {
    /// Talks with a client until one side ends it. What comes out is to be sent to it; dropping that ends it too.
    pub fn serve_callbacks(
        &self,
        call: &Call,
        incoming: impl Stream<Item = Result<v1::ClientCallback>> + Send + 'static,
    ) -> Answers<v1::ServerCallback> {
        let (client, outgoing) = Client::new();
        let conversation = Conversation {
            api: self.clone(),
            call: call.clone(),
            client,
            served: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            let_in: Box::pin(std::future::pending()),
            end: Box::pin(silence()),
        };
        let talk = tokio::spawn(conversation.talk(Box::pin(incoming)));
        told(outgoing, AbortOnDropHandle::new(talk))
    }
}

/// What is sent to the client, and in the end why it ended.
fn told(
    outgoing: mpsc::Receiver<v1::ServerCallback>,
    talk: AbortOnDropHandle<Result<()>>,
) -> Answers<v1::ServerCallback> {
    Box::pin(stream::unfold(Some((outgoing, talk)), async |state| {
        let (mut outgoing, mut talk) = state?;
        tokio::select! {
            biased;
            Some(message) = outgoing.recv() => Some((Ok(message), Some((outgoing, talk)))),
            ended = &mut talk => match ended {
                Ok(Ok(())) => None,
                Ok(Err(problem)) => Some((Err(problem), None)),
                Err(error) => {
                    let problem = Problem::new(Code::Internal, "the conversation failed");
                    Some((Err(problem.caused_by(&error)), None))
                }
            },
        }
    }))
}

struct Conversation {
    api: Api,
    call: Call,
    client: Arc<Client>,
    served: Option<Registered>,
    /// Later hellos. Those who wait for answers do not wait for them.
    waiting: VecDeque<v1::CallbackHello>,
    waiting_bytes: usize,
    /// Comes when the first of them may be taken up.
    let_in: Pin<Box<dyn Future<Output = Result<()>> + Send>>,
    /// Comes when there is nothing more to talk about.
    end: Pin<Box<dyn Future<Output = Problem> + Send>>,
}

impl Conversation {
    async fn talk(
        mut self,
        mut incoming: impl Stream<Item = Result<v1::ClientCallback>> + Unpin,
    ) -> Result<()> {
        let status = Arc::clone(&self.api.status);
        loop {
            let room = self.waiting.len() < MAX_WAITING && self.waiting_bytes < MAX_WAITING_BYTES;
            let message = tokio::select! {
                message = incoming.next(), if room => message,
                let_in = &mut self.let_in => {
                    let_in?;
                    self.next_hello().await?;
                    continue;
                }
                () = status.stopped() => return Err(stopping()),
                problem = &mut self.end => return Err(problem),
            };
            let Some(message) = message.transpose()? else { return Ok(()) };
            match (message.hello, message.answer) {
                (Some(hello), None) if self.served.is_some() => {
                    self.waiting_bytes += hello.encoded_len();
                    self.waiting.push_back(hello);
                    if self.waiting.len() == 1 {
                        self.ask();
                    }
                }
                // It came with the request, which was counted.
                (Some(hello), None) => {
                    self.api.still_let_in(&self.call).await?;
                    self.hello(hello).await?;
                }
                (None, Some(answer)) if self.served.is_some() => self.client.answer(answer),
                (None, Some(_)) => {
                    return Err(Problem::invalid("the first message is not a hello")
                        .with_remedy("say first which sandbox is served"));
                }
                (Some(_), Some(_)) | (None, None) => {
                    return Err(Problem::invalid("a message is a hello or an answer")
                        .with_remedy("send exactly one of `hello` and `answer`"));
                }
            }
        }
    }

    /// Asks to be let in with the first hello that waits.
    fn ask(&mut self) {
        let (api, call) = (self.api.clone(), self.call.clone());
        self.let_in = Box::pin(async move { api.ask_before_long(&call, PATIENCE).await });
    }

    async fn next_hello(&mut self) -> Result<()> {
        if let Some(hello) = self.waiting.pop_front() {
            self.waiting_bytes -= hello.encoded_len();
            self.hello(hello).await?;
        }
        match self.waiting.is_empty() {
            true => self.let_in = Box::pin(std::future::pending()),
            false => self.ask(),
        }
        Ok(())
    }

    async fn hello(&mut self, hello: v1::CallbackHello) -> Result<()> {
        let target = hello.sandbox_id.clone();
        let (api, call) = (self.api.clone(), self.call.clone());
        let work = self.take_up(hello);
        api.act(&call, action::SERVE_CALLBACKS, &target, work).await
    }

    /// The client answers for what it says, if the sandbox is the caller's.
    async fn take_up(&mut self, hello: v1::CallbackHello) -> Result<()> {
        let engine = self.api.engine(&self.call);
        let sandbox = engine.inspect(&hello.sandbox_id).await?;
        let id = &sandbox.id;
        self.call.concerns(id, &sandbox.tenant);
        let tools: Vec<_> = hello.tools.iter().map(|tool| tool.name.as_str()).collect();
        self.call.note("tools", belljar_policy::shown(&tools.join(" ")));
        self.call.note("decides_connections", hello.decides_connections.to_string());
        self.call.note("handles_requests", hello.handles_requests.to_string());
        self.call.note("secrets", belljar_policy::shown(&hello.secrets.join(" ")));
        askable(&sandbox, &engine.network(id.as_str()).await?, &hello)?;
        let long = takes_long(&hello);
        let offer = aside_if(long, || Offer::new(hello)).await??;
        match &self.served {
            None => {
                // Its end must not slip by between the look at its state and the first event.
                let events = engine.events(None);
                let state = engine.inspect(id.as_str()).await?.state;
                if matches!(
                    state,
                    SandboxState::Destroying | SandboxState::Destroyed | SandboxState::Failed
                ) {
                    return Err(gone(id.as_str()));
                }
                let registered = self.api.callbacks.register(id, &self.client, offer)?;
                self.served = Some(registered);
                self.end = Box::pin(sandbox_end(events, id.clone()));
            }
            Some(registered) if registered.sandbox() == id => registered.change(offer)?,
            Some(registered) => {
                return Err(Problem::invalid(format!(
                    "this conversation is about sandbox `{}`",
                    registered.sandbox()
                ))
                .with_remedy("open another one for another sandbox"));
            }
        }
        let ready = v1::CallbackReady { sandbox_id: id.as_str().to_owned(), max_calls: MAX_CALLS };
        let ready = v1::ServerCallback { ready: Some(ready), ..Default::default() };
        self.client.tell(ready).map_err(|error| {
            Problem::new(Code::Interrupted, "the client takes no messages").caused_by(&error)
        })
    }
}

/// Refuses to answer for what nobody will ever ask about: whoever relied on it would be mistaken.
fn askable(sandbox: &Sandbox, network: &Network, hello: &v1::CallbackHello) -> Result<()> {
    let NetworkCallback { connections, requests } = network.callback;
    // The rules of a policy may ask.
    let asks = connections || network.ask.is_some() || sandbox.policy.is_some();
    let never = |what: &str, option: &str| {
        let message = format!("sandbox `{}` was made without {what}", sandbox.id);
        Err(Problem::invalid(message).with_remedy(format!("create one with `network.{option}`")))
    };
    if hello.decides_connections && !asks {
        return never("decisions about connections", "callback_connections");
    }
    if hello.handles_requests && !asks && !requests {
        return never("a look into its requests", "callback_requests");
    }
    Ok(())
}

fn takes_long(hello: &v1::CallbackHello) -> bool {
    let mut schemas = hello.tools.iter().map(|tool| tool.input_schema.as_str());
    let bytes: usize = schemas.clone().map(str::len).sum();
    // The word may be written with escapes.
    bytes > SHORT || schemas.any(|schema| schema.contains("pattern") || schema.contains('\\'))
}

/// Nobody says hello.
async fn silence() -> Problem {
    tokio::time::sleep(FIRST_WORD).await;
    Problem::new(Code::RequestTimedOut, "no hello came")
        .with_remedy("say first which sandbox is served")
}

async fn sandbox_end(mut events: Events, sandbox: SandboxId) -> Problem {
    loop {
        match events.next().await {
            Ok(event) if event.sandbox == sandbox => {
                if matches!(event.kind, EventKind::SandboxDestroyed | EventKind::SandboxFailed) {
                    return gone(sandbox.as_str());
                }
            }
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

fn gone(sandbox: &str) -> Problem {
    Problem::new(Code::SandboxGone, format!("sandbox `{sandbox}` has ended"))
        .with_remedy("serve another sandbox")
}
