//! One connection to an agent, as far as tools are concerned.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxId, TenantId};
use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::rate::Rate;
use super::{MAX_TOOL_ARGUMENTS, MAX_TOOL_RESULT, ToolCall, ToolFailure};
use crate::agent::Connection;
use crate::engine::Inner;
use crate::store::{State, Which};

/// Calls of one sandbox at the same time. The agent has as many callers.
const MAX_CALLS: usize = 64;
/// Calls of one sandbox in a second.
const CALLS_PER_SECOND: u32 = 2000;
/// What was said and not looked at yet.
const WAITING: usize = 4 * MAX_CALLS;

/// What an agent says about tools.
#[derive(Debug)]
pub(crate) enum Told {
    Call(v1::ToolCall),
    Cancel(u64),
}

pub(crate) type Sender = mpsc::Sender<Told>;

pub(crate) fn channel() -> (Sender, mpsc::Receiver<Told>) {
    mpsc::channel(WAITING)
}

/// Whether a sandbox has tools. Where that cannot be found out it has none now; the next look finds out.
pub(crate) async fn exist(inner: &Inner, id: &SandboxId) -> bool {
    let governed = inner.policies.of(inner, id).await;
    governed.ok().flatten().is_some_and(|governed| governed.policy.has_tools())
}

/// Answers what comes over `connection`, for as long as it lasts.
pub(crate) fn attend(
    inner: &Arc<Inner>,
    id: &SandboxId,
    tenant: &TenantId,
    connection: &Arc<Connection>,
    mut told: mpsc::Receiver<Told>,
) {
    serve(inner, connection);
    let mut attendant = Attendant {
        // Weak, both: neither engine nor connection lasts for the sake of calls.
        inner: Arc::downgrade(inner),
        connection: Arc::downgrade(connection),
        sandbox: id.clone(),
        tenant: tenant.clone(),
        rate: Rate::new(CALLS_PER_SECOND, Instant::now()),
        calls: JoinSet::new(),
        handles: HashMap::new(),
    };
    tokio::spawn(async move {
        // Ends with the connection, and so do all calls that are under way.
        while let Some(told) = told.recv().await {
            attendant.take(told);
        }
    });
}

/// Says that calls are answered here, if somebody answers.
fn serve(inner: &Inner, connection: &Connection) {
    if inner.tool_host.get().is_some() {
        // One that is gone is found out by whoever uses it next.
        let _ = connection.serve_tools();
    }
}

/// Makes sure that every sandbox with tools can call them: after a restart, and where a connection broke.
pub(crate) async fn reach_all(inner: &Arc<Inner>) {
    if inner.tool_host.get().is_none() {
        return;
    }
    let Ok(records) = inner.store.sandboxes(Which::Live).await else { return };
    for record in records {
        if record.state != State::Ready
            || record.details.policy.is_none()
            || !exist(inner, &record.id).await
        {
            continue;
        }
        let reached = match inner.live(&record.id).await {
            Ok(live) => live.connection(inner).await,
            Err(error) => Err(error),
        };
        match reached {
            // It may have been connected before anybody answered.
            Ok(connection) => serve(inner, &connection),
            Err(error) => {
                tracing::debug!(%error, sandbox = %record.id, "its tools cannot be called now");
            }
        }
    }
}

struct Attendant {
    inner: Weak<Inner>,
    connection: Weak<Connection>,
    sandbox: SandboxId,
    tenant: TenantId,
    rate: Rate,
    calls: JoinSet<u64>,
    handles: HashMap<u64, AbortHandle>,
}

impl Attendant {
    fn take(&mut self, told: Told) {
        while let Some(ended) = self.calls.try_join_next() {
            if let Ok(number) = ended {
                self.handles.remove(&number);
            }
        }
        match told {
            Told::Cancel(number) => {
                if let Some(handle) = self.handles.remove(&number) {
                    handle.abort();
                }
            }
            Told::Call(call) => self.answer(call),
        }
    }

    fn answer(&mut self, call: v1::ToolCall) {
        let (inner, connection) = (self.inner.clone(), self.connection.clone());
        let number = call.call;
        let checked = self.check(call);
        let handle = self.calls.spawn(async move {
            let result = match (checked, inner.upgrade()) {
                (Ok(call), Some(inner)) => ask(&inner, call).await,
                (Err(failure), _) => Err(failure),
                (Ok(_), None) => Err(ToolFailure::new(Code::ToolUnavailable, "the server ends")),
            };
            if let Some(connection) = connection.upgrade() {
                pass_back(&connection, number, result).await;
            }
            number
        });
        self.handles.insert(number, handle);
    }

    fn check(&mut self, call: v1::ToolCall) -> Result<ToolCall, ToolFailure> {
        if !self.rate.take(Instant::now()) {
            return Err(ToolFailure::new(Code::RateLimited, "tools are called too often"));
        }
        if self.handles.len() >= MAX_CALLS {
            return Err(ToolFailure::new(Code::ToolUnavailable, "too many calls are under way"));
        }
        if call.arguments.len() > MAX_TOOL_ARGUMENTS {
            return Err(ToolFailure::new(Code::RequestTooLarge, "the arguments are too large"));
        }
        let text = |bytes| {
            String::from_utf8(bytes)
                .map_err(|_| ToolFailure::new(Code::InvalidArgument, "the call is not UTF-8"))
        };
        Ok(ToolCall {
            sandbox: self.sandbox.clone(),
            tenant: self.tenant.clone(),
            name: text(call.name)?,
            arguments: text(call.arguments)?,
            process: ProcessId::parse(&call.process).ok(),
        })
    }
}

async fn ask(inner: &Arc<Inner>, call: ToolCall) -> Result<String, ToolFailure> {
    let Some(host) = inner.tool_host.get() else {
        return Err(ToolFailure::new(Code::ToolUnavailable, "nobody answers for tools here"));
    };
    let engine = super::engine(inner);
    let result = match call.name.as_str() {
        "" => host.list(&engine, &call.sandbox).await?,
        _ => {
            let process = own(inner, &call).await;
            host.call(&engine, ToolCall { process, ..call }).await?
        }
    };
    if result.len() > MAX_TOOL_RESULT {
        return Err(ToolFailure::new(Code::ToolFailed, "the result is too large"));
    }
    Ok(result)
}

/// The process that calls, if it is one of this sandbox: an agent says what it likes.
async fn own(inner: &Inner, call: &ToolCall) -> Option<ProcessId> {
    let process = call.process.as_ref()?;
    // Those that this engine attends to, which are nearly all, need no look into the store.
    let sandbox = match inner.attended.get(process) {
        Some(attended) => attended.sandbox.clone(),
        None => inner.store.process(process).await.ok()??.sandbox,
    };
    (sandbox == call.sandbox).then(|| process.clone())
}

/// In pieces that fit into frames.
async fn pass_back(connection: &Connection, call: u64, result: Result<String, ToolFailure>) {
    let (code, text) = match result {
        // Outside of strings a line feed is nothing, and inside there is none.
        Ok(json) => (String::new(), json.replace(['\n', '\r'], " ")),
        Err(failure) => (failure.code.as_str().to_owned(), shortened(failure.message)),
    };
    let mut pieces = text.as_bytes().chunks(MAX_CHUNK).peekable();
    loop {
        let data = pieces.next().unwrap_or_default().to_vec();
        let more = pieces.peek().is_some();
        let answer = v1::ToolAnswer { call, data, more, code: code.clone() };
        if connection.answer_tool(answer).await.is_err() || !more {
            return;
        }
    }
}

/// Words for people; more than a frame of them is no message.
fn shortened(mut message: String) -> String {
    const MAX: usize = 8 << 10;
    if message.len() > MAX {
        let end = (0..=MAX).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
    }
    message
}
