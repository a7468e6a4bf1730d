//! Tools of the host: found, checked, judged, run, recorded.
//!
//! Only names in `tool_allowlist` of the sandbox's policy exist. A tool is run by the host itself, where the policy
//! declares it as a command or an address, or by a client that is connected and answers for it. Arguments fit the
//! declared schema before the policy is asked, and nothing runs before the policy has said yes. What is told inside about
//! a failure says what the caller can do about it and nothing about the host.

mod command;
mod http;
mod rates;
mod schemas;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_codes::Code;
use belljar_engine::{
    AuditEntry, Engine, Question, QuestionKind, SandboxId, SandboxPolicy, ToolCall, ToolFailure,
    ToolHost, aside_if,
};
use belljar_policy::document::{Context, Tool, Value};
use belljar_policy::json_schema::Schema;
use belljar_policy::shown;

use crate::callbacks::{CallError, Callbacks, Declaration, check_json};
use rates::Rates;
use schemas::Schemas;

/// How long a client may take for one call.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of more bytes are read aside.
const SHORT: usize = 8 << 10;

type Result<T> = std::result::Result<T, ToolFailure>;

/// Answers calls from inside sandboxes.
pub(crate) struct Tools {
    callbacks: Callbacks,
    schemas: Schemas,
    rates: Rates,
    poster: http::Poster,
    commands: command::Commands,
}

/// Who runs a tool.
enum Runner<'a> {
    Host(&'a Tool, Schema),
    Client(Arc<Declaration>),
}

impl Runner<'_> {
    fn schema(&self) -> &Schema {
        match self {
            Self::Host(_, schema) => schema,
            Self::Client(declaration) => &declaration.schema,
        }
    }

    /// For the record.
    fn by(&self) -> &'static str {
        match self {
            Self::Host(tool, _) if tool.http.is_some() => "http",
            Self::Host(..) => "command",
            Self::Client(_) => "client",
        }
    }
}

impl Tools {
    pub(crate) fn new(callbacks: Callbacks) -> Self {
        Self {
            callbacks,
            schemas: Schemas::default(),
            rates: Rates::default(),
            poster: http::Poster::default(),
            commands: command::Commands::default(),
        }
    }

    async fn answer(
        &self,
        engine: &Engine,
        call: &ToolCall,
        by: &mut &'static str,
    ) -> Result<String> {
        let missing = || {
            let name = shown(&call.name);
            ToolFailure::new(Code::ToolNotFound, format!("there is no tool `{name}` here"))
        };
        let policy = engine.policy(&call.sandbox).await?.ok_or_else(missing)?;
        if !policy.document.tool_allowlist.contains(&call.name) {
            return Err(missing());
        }
        let runner = self.runner(&policy, call).await?;
        *by = runner.by();
        let arguments = arguments(call, runner.schema()).await?;
        if let Runner::Host(tool, _) = &runner
            && let Some(rate) = tool.calls_per_second
            && !self.rates.take(&call.sandbox, &tool.name, rate)
        {
            let message = format!("tool `{}` may be called {rate} times a second", tool.name);
            return Err(ToolFailure::new(Code::RateLimited, message));
        }
        let mut context = Context::new().with("tool", call.name.as_str());
        context.nest("arguments", arguments);
        let mut question = Question::new(QuestionKind::Tool, context);
        question.process.clone_from(&call.process);
        engine.judge(&call.sandbox, question).await?.permitted()?;
        match runner {
            Runner::Host(tool, _) => match &tool.http {
                Some(http) => self.poster.post(tool, &http.url, call).await,
                None => self.commands.run(tool, call).await,
            },
            Runner::Client(declaration) => self.ask_client(&declaration.name, call).await,
        }
    }

    async fn runner<'a>(&self, policy: &'a SandboxPolicy, call: &ToolCall) -> Result<Runner<'a>> {
        if let Some(tool) = policy.document.tools.iter().find(|tool| tool.name == call.name) {
            return Ok(Runner::Host(tool, self.schemas.of(&policy.digest, tool).await?));
        }
        let declaration = self.callbacks.declaration(&call.sandbox, &call.name);
        declaration.map(Runner::Client).ok_or_else(|| unavailable(&call.name, &CallError::Absent))
    }

    async fn ask_client(&self, name: &str, call: &ToolCall) -> Result<String> {
        let asked = belljar_api::v1::ToolCall {
            name: name.to_owned(),
            arguments: object_text(&call.arguments).to_owned(),
            process_id: call.process.as_ref().map(ToString::to_string),
        };
        let answer = self.callbacks.tool(&call.sandbox, asked, CLIENT_PATIENCE).await;
        answer.map_err(|error| match error {
            CallError::TimedOut => too_slow(name, CLIENT_PATIENCE),
            CallError::Failed(message) => ToolFailure::new(Code::ToolFailed, message),
            error @ CallError::Malformed(_) => {
                ToolFailure::new(Code::ToolFailed, format!("tool `{name}`: {error}"))
            }
            error @ (CallError::Absent | CallError::Vanished | CallError::Busy) => {
                unavailable(name, &error)
            }
        })
    }
}

#[async_trait]
impl ToolHost for Tools {
    async fn call(&self, engine: &Engine, call: ToolCall) -> Result<String> {
        let begun = Instant::now();
        let mut by = "nobody";
        let result = self.answer(engine, &call, &mut by).await;
        let outcome = result.as_ref().map_or_else(|failure| failure.code.as_str(), |_| "ok");
        let detail = [
            ("tool", shown(&call.name).to_string()),
            ("by", by.to_owned()),
            ("ms", begun.elapsed().as_millis().to_string()),
        ];
        let entry = AuditEntry {
            actor: format!("sandbox:{}", call.sandbox),
            action: "tool.call".to_owned(),
            process: call.process.map(|process| process.to_string()),
            outcome: outcome.to_owned(),
            detail: detail.map(|(name, value)| (name.to_owned(), value)).into(),
            ..AuditEntry::default()
        };
        engine.audit().record_from_inside(&call.sandbox, &call.tenant, entry);
        result
    }

    async fn list(&self, engine: &Engine, sandbox: &SandboxId) -> Result<String> {
        let Some(policy) = engine.policy(sandbox).await? else { return Ok("[]".to_owned()) };
        let clients = self.callbacks.tools(sandbox);
        let names = policy.document.tool_allowlist.iter();
        let tools = names.filter_map(|name| {
            if let Some(tool) = policy.document.tools.iter().find(|tool| tool.name == *name) {
                return Some(described(name, &tool.description, &tool.schema()));
            }
            let tool = clients.iter().find(|tool| tool.name == *name)?;
            Some(described(name, &tool.description, tool.schema.as_value()))
        });
        Ok(serde_json::Value::Array(tools.collect()).to_string())
    }
}

fn described(name: &str, description: &str, schema: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({"name": name, "description": description, "input_schema": schema})
}

/// No arguments are an empty object.
fn object_text(text: &str) -> &str {
    if text.trim().is_empty() { "{}" } else { text }
}

/// The arguments as rules see them, if they are what the schema wants.
async fn arguments(call: &ToolCall, schema: &Schema) -> Result<Value> {
    let (text, schema) = (object_text(&call.arguments).to_owned(), schema.clone());
    let long = text.len() > SHORT || schema.takes_long(text.len());
    aside_if(long, move || fitting(&text, &schema)).await?.map_err(|reason| {
        let name = &call.name;
        ToolFailure::new(Code::InvalidArgument, format!("arguments of tool `{name}`: {reason}"))
    })
}

fn fitting(text: &str, schema: &Schema) -> std::result::Result<Value, String> {
    check_json(text, belljar_engine::MAX_TOOL_ARGUMENTS)
        .map_err(|reason| format!("the text {reason}"))?;
    let not_json = |error: serde_json::Error| format!("the text is not JSON: {error}");
    let json: serde_json::Value = serde_json::from_str(text).map_err(not_json)?;
    if !json.is_object() {
        return Err("they are not an object".to_owned());
    }
    schema.check(&json)?;
    serde_json::from_str(text).map_err(not_json)
}

fn unavailable(name: &str, error: &CallError) -> ToolFailure {
    ToolFailure::new(Code::ToolUnavailable, format!("tool `{}`: {error}", shown(name)))
}

fn too_slow(name: &str, patience: Duration) -> ToolFailure {
    let message = format!("tool `{name}` did not answer within {} s", patience.as_secs());
    ToolFailure::new(Code::TimedOut, message)
}

/// What a program or an address gave, as a result: JSON as it is, anything else as text.
fn result_of(name: &str, output: Vec<u8>) -> Result<String> {
    let failed = |what: &str| ToolFailure::new(Code::ToolFailed, format!("tool `{name}` {what}"));
    if output.len() > belljar_engine::MAX_TOOL_RESULT {
        return Err(failed("gave a result that is too large"));
    }
    let text = String::from_utf8(output).map_err(|_| failed("gave a result that is not UTF-8"))?;
    let text = text.trim();
    if check_json(text, belljar_engine::MAX_TOOL_RESULT).is_ok() {
        return Ok(text.to_owned());
    }
    Ok(serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests {
    use belljar_engine::{AuditQuery, EngineOptions, TenantId};

    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall {
            sandbox: SandboxId::parse("n001abcdefgh").unwrap(),
            tenant: TenantId::parse("a").unwrap(),
            name: "nothing".to_owned(),
            arguments: arguments.to_owned(),
            process: None,
        }
    }

    /// The only thread for long work is kept busy, so who needs it waits, and who does not has its answer at once.
    #[test]
    fn patterns_and_long_texts_hold_up_nobody_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (go_on, told) = std::sync::mpsc::channel();
            let busy = tokio::task::spawn_blocking(move || told.recv().unwrap());
            let schema = |pattern: &str| {
                let a = serde_json::json!({"type": "string", "pattern": pattern});
                Schema::kept(serde_json::json!({"properties": {"a": a}})).unwrap()
            };
            let long = format!(r#"{{"a": "b", "b": "{}"}}"#, "b".repeat(SHORT));
            let mut waiting = Vec::new();
            for (text, pattern, waits) in [
                (r#"{"a": "b"}"#, "^[bc]$", true),
                (r#"{"a": "d"}"#, "^[bc]$", true),
                (long.as_str(), "b", true),
                (r#"{"a": "b"}"#, "b", false),
                (r#"{"a": "d"}"#, "b", false),
            ] {
                let (call, schema) = (call(text), schema(pattern));
                let mut checked = Box::pin(async move { arguments(&call, &schema).await });
                let fits = !text.contains('d');
                let mut once = std::task::Context::from_waker(std::task::Waker::noop());
                match checked.as_mut().poll(&mut once) {
                    std::task::Poll::Pending if waits => waiting.push((checked, fits)),
                    std::task::Poll::Ready(found) if !waits => assert_eq!(found.is_ok(), fits),
                    other => panic!("{text} {pattern}: {other:?}"),
                }
            }
            go_on.send(()).unwrap();
            busy.await.unwrap();
            for (checked, fits) in waiting {
                assert_eq!(checked.await.is_ok(), fits);
            }
        });
    }

    #[tokio::test]
    async fn calls_have_a_share_of_the_audit_log() {
        const FLOOD: usize = 4000;
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(EngineOptions::new(directory.path(), Vec::new())).await.unwrap();
        let tools = Tools::new(Callbacks::default());
        for _ in 0..FLOOD {
            tools.call(&engine, call("")).await.unwrap_err();
        }
        let mut reader = engine.audit().query(AuditQuery::default()).await;
        let mut records = Vec::new();
        while let Some(record) = reader.next().await.unwrap() {
            records.push(record.entry);
        }
        assert!((1..FLOOD).contains(&records.len()), "{}", records.len());
        let first = &records[0];
        assert_eq!((first.action.as_str(), first.tenant.as_str()), ("tool.call", "a"));
        assert_eq!(first.sandbox.as_deref(), Some("n001abcdefgh"));
    }
}
