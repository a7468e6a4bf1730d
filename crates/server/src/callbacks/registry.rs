//! Who answers for what.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::SandboxId;

use super::verdict::{self, shorten};
use super::{CallError, Client, Declaration, MAX_CLIENTS, MAX_RESULT, Offer, check_json};
use crate::problem::{Problem, Result};

/// All clients that are connected, by sandbox. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Callbacks(Arc<Mutex<HashMap<SandboxId, Served>>>);

/// The clients of one sandbox. At most one answers for each thing.
#[derive(Debug, Default)]
struct Served {
    clients: Vec<Arc<Client>>,
    tools: BTreeMap<String, (Arc<Client>, Arc<Declaration>)>,
    connections: Option<Arc<Client>>,
    requests: Option<Arc<Client>>,
    secrets: BTreeMap<String, Arc<Client>>,
}

/// A client's place in the registry, until dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    callbacks: Callbacks,
    sandbox: SandboxId,
    client: Arc<Client>,
}

impl Callbacks {
    /// From here on `client` is asked.
    pub(crate) fn register(
        &self,
        sandbox: &SandboxId,
        client: &Arc<Client>,
        offer: Offer,
    ) -> Result<Registered> {
        let registered = Registered {
            callbacks: self.clone(),
            sandbox: sandbox.clone(),
            client: Arc::clone(client),
        };
        {
            let mut sandboxes = self.lock();
            let served = sandboxes.entry(sandbox.clone()).or_default();
            if served.clients.len() >= MAX_CLIENTS {
                return Err(Problem::new(
                    Code::QuotaExceeded,
                    format!("sandbox `{sandbox}` has {MAX_CLIENTS} clients already"),
                )
                .with_remedy("let one client answer for more"));
            }
            served.clients.push(Arc::clone(client));
            served.take_up(sandbox, client, offer)?;
        }
        Ok(registered)
    }

    /// Asks the client that declared the tool; the arguments are a JSON object that fits its schema.
    ///
    /// # Errors
    /// Where there is no such client, or no result.
    pub async fn tool(
        &self,
        sandbox: &SandboxId,
        call: v1::ToolCall,
        deadline: Duration,
    ) -> std::result::Result<String, CallError> {
        let client = self.find(sandbox, |served| Some(&served.tools.get(&call.name)?.0))?;
        let call = v1::CallbackCall { tool: Some(call), ..asked(sandbox) };
        let answer = client.ask(call, deadline).await?;
        match answer {
            v1::CallbackAnswer { tool_result: Some(result), .. } => {
                match check_json(&result.json, MAX_RESULT) {
                    Ok(()) => Ok(result.json),
                    Err(reason) => Err(CallError::Malformed(format!("the result {reason}"))),
                }
            }
            other => Err(no_answer(other)),
        }
    }

    /// Asks whether the sandbox may make a connection.
    ///
    /// # Errors
    /// Where there is no verdict, which means no.
    pub async fn connection(
        &self,
        sandbox: &SandboxId,
        call: v1::ConnectionCall,
        deadline: Duration,
    ) -> std::result::Result<v1::ConnectionVerdict, CallError> {
        let client = self.find(sandbox, |served| served.connections.as_ref())?;
        let call = v1::CallbackCall { connection: Some(call), ..asked(sandbox) };
        match client.decide(call, deadline).await? {
            v1::CallbackAnswer { connection: Some(verdict), .. } => verdict::connection(verdict),
            other => Err(no_answer(other)),
        }
    }

    /// Asks what becomes of an HTTP request.
    ///
    /// # Errors
    /// Where there is no verdict, which means no.
    pub async fn request(
        &self,
        sandbox: &SandboxId,
        call: v1::RequestCall,
        deadline: Duration,
    ) -> std::result::Result<v1::RequestVerdict, CallError> {
        let client = self.find(sandbox, |served| served.requests.as_ref())?;
        let call = v1::CallbackCall { request: Some(call), ..asked(sandbox) };
        match client.decide(call, deadline).await? {
            v1::CallbackAnswer { request: Some(verdict), .. } => verdict::request(verdict),
            other => Err(no_answer(other)),
        }
    }

    /// Asks for a secret that requests of the sandbox get.
    ///
    /// # Errors
    /// Where nobody gives it.
    pub async fn secret(
        &self,
        sandbox: &SandboxId,
        name: &str,
        deadline: Duration,
    ) -> std::result::Result<String, CallError> {
        let client = self.find(sandbox, |served| served.secrets.get(name))?;
        let secret = Some(v1::SecretCall { name: name.to_owned() });
        let call = v1::CallbackCall { secret, ..asked(sandbox) };
        match client.decide(call, deadline).await? {
            v1::CallbackAnswer { secret: Some(secret), .. } => Ok(secret.value),
            other => Err(no_answer(other)),
        }
    }

    /// The tools that clients answer for now.
    #[must_use]
    pub fn tools(&self, sandbox: &SandboxId) -> Vec<Arc<Declaration>> {
        let sandboxes = self.lock();
        let tools = sandboxes.get(sandbox).into_iter().flat_map(|served| served.tools.values());
        tools.map(|(_, declaration)| Arc::clone(declaration)).collect()
    }

    /// The tool of that name, if a client answers for it now.
    #[must_use]
    pub fn declaration(&self, sandbox: &SandboxId, tool: &str) -> Option<Arc<Declaration>> {
        let sandboxes = self.lock();
        sandboxes.get(sandbox)?.tools.get(tool).map(|(_, declaration)| Arc::clone(declaration))
    }

    /// Whether somebody decides about connections of the sandbox, and whether somebody handles its requests.
    #[must_use]
    pub fn decides(&self, sandbox: &SandboxId) -> (bool, bool) {
        let sandboxes = self.lock();
        sandboxes.get(sandbox).map_or((false, false), |served| {
            (served.connections.is_some(), served.requests.is_some())
        })
    }

    fn find(
        &self,
        sandbox: &SandboxId,
        pick: impl FnOnce(&Served) -> Option<&Arc<Client>>,
    ) -> std::result::Result<Arc<Client>, CallError> {
        self.lock().get(sandbox).and_then(pick).cloned().ok_or(CallError::Absent)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn asked(sandbox: &SandboxId) -> v1::CallbackCall {
    v1::CallbackCall { sandbox_id: sandbox.as_str().to_owned(), ..Default::default() }
}

/// Why an answer that is not of the right kind is none.
fn no_answer(answer: v1::CallbackAnswer) -> CallError {
    match answer.tool_error {
        Some(v1::ToolError { mut message }) => {
            shorten(&mut message);
            CallError::Failed(message)
        }
        None => CallError::Malformed("it is not of the kind of the call".to_owned()),
    }
}

impl Served {
    /// Puts `offer` in place of what `client` answered for before, unless another client is in the way.
    fn take_up(&mut self, sandbox: &SandboxId, client: &Arc<Client>, offer: Offer) -> Result<()> {
        let others = |held: &Arc<Client>| !Arc::ptr_eq(held, client);
        let taken = |what: String| {
            Problem::new(
                Code::CallbackExists,
                format!("another client {what} of sandbox `{sandbox}`"),
            )
            .with_remedy("end the other client first")
        };
        for name in offer.tools.keys() {
            if self.tools.get(name).is_some_and(|(held, _)| others(held)) {
                return Err(taken(format!("answers for tool `{name}`")));
            }
        }
        if offer.connections && self.connections.as_ref().is_some_and(others) {
            return Err(taken("decides about connections".to_owned()));
        }
        if offer.requests && self.requests.as_ref().is_some_and(others) {
            return Err(taken("handles requests".to_owned()));
        }
        for name in &offer.secrets {
            if self.secrets.get(name).is_some_and(others) {
                return Err(taken(format!("gives secret `{name}`")));
            }
        }
        self.give_up(client);
        for (name, declaration) in offer.tools {
            self.tools.insert(name, (Arc::clone(client), Arc::new(declaration)));
        }
        if offer.connections {
            self.connections = Some(Arc::clone(client));
        }
        if offer.requests {
            self.requests = Some(Arc::clone(client));
        }
        for name in offer.secrets {
            self.secrets.insert(name, Arc::clone(client));
        }
        Ok(())
    }

    fn give_up(&mut self, client: &Arc<Client>) {
        self.tools.retain(|_, (held, _)| !Arc::ptr_eq(held, client));
        self.connections.take_if(|held| Arc::ptr_eq(held, client));
        self.requests.take_if(|held| Arc::ptr_eq(held, client));
        self.secrets.retain(|_, held| !Arc::ptr_eq(held, client));
    }
}

impl Registered {
    /// Answers for something else from here on.
    pub(crate) fn change(&self, offer: Offer) -> Result<()> {
        let mut sandboxes = self.callbacks.lock();
        let served = sandboxes.entry(self.sandbox.clone()).or_default();
        served.take_up(&self.sandbox, &self.client, offer)
    }

    pub(crate) fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut sandboxes = self.callbacks.lock();
        if let Some(served) = sandboxes.get_mut(&self.sandbox) {
            served.give_up(&self.client);
            served.clients.retain(|held| !Arc::ptr_eq(held, &self.client));
            if served.clients.is_empty() {
                sandboxes.remove(&self.sandbox);
            }
        }
        drop(sandboxes);
        self.client.leave();
    }
}
