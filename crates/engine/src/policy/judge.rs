//! One question, one answer, one record.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::ProcessId;
use belljar_policy::document::{Action, Context, Decision, Reason, Value};

use super::redact::{Snapshot, snapshot};
use super::{Governed, SandboxPolicy};
use crate::audit::{AuditEntry, AuditLog};
use crate::{Error, Result, aside_if};

/// What of a rule's message is told.
const MAX_MESSAGE: usize = 500;

/// What a question is about. The words are what documents call `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuestionKind {
    /// A sandbox to be made.
    Create,
    /// A command.
    Exec,
    /// A program text in some language.
    Code,
    /// A call of a tool of the host.
    Tool,
    /// A connection or request.
    Network,
    /// A change to a file through the API.
    FileWrite,
}

impl QuestionKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Exec => "exec",
            Self::Code => "code",
            Self::Tool => "tool",
            Self::Network => "network",
            Self::FileWrite => "file-write",
        }
    }

    /// What the audit log calls it.
    #[must_use]
    pub fn audit_action(self) -> String {
        format!("policy.{}", self.as_str())
    }
}

/// Something that a sandbox, or its caller, is about to do.
#[derive(Clone, Debug)]
pub struct Question {
    pub kind: QuestionKind,
    /// Its fields. `action`, `tenant` and the sandbox's `agent_id` are added.
    pub context: Context,
    /// Texts that must not appear on record.
    pub secrets: Vec<String>,
    pub process: Option<ProcessId>,
}

impl Question {
    #[must_use]
    pub fn new(kind: QuestionKind, context: Context) -> Self {
        Self { kind, context, secrets: Vec::new(), process: None }
    }
}

/// Who asks, for the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// As in [`AuditEntry::actor`]; empty: the sandbox itself.
    pub actor: String,
    pub request_id: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub verdict: Action,
    /// The rule that decided; `None` for the default and for errors.
    pub rule: Option<String>,
    /// The rule's own words for people; possibly empty.
    pub message: String,
    /// Of the policy that was asked; empty where the sandbox has none.
    pub digest: String,
    /// The refusal in words; empty where it is none.
    refusal: String,
}

impl Judged {
    /// Of a sandbox without a policy.
    pub(crate) fn ungoverned() -> Self {
        Self {
            verdict: Action::Allow,
            rule: None,
            message: String::new(),
            digest: String::new(),
            refusal: String::new(),
        }
    }

    #[must_use]
    pub fn permits(&self) -> bool {
        self.verdict.permits()
    }

    /// A refusal as an error.
    ///
    /// # Errors
    /// `policy-denied`, with the rule and its message.
    pub fn permitted(self) -> Result<Self> {
        if self.permits() {
            return Ok(self);
        }
        Err(Error::new(Code::PolicyDenied, self.refusal.clone())
            .with_remedy("ask for what the policy allows, or have it changed")
            .with_decision(self))
    }
}

/// Asks, and puts the answer on record.
pub(crate) async fn judge(
    audit: &AuditLog,
    governed: &Arc<Governed>,
    asker: &Asker,
    question: Question,
) -> Result<Judged> {
    let Question { kind, context, secrets, process } = question;
    let context = completed(governed, kind, context);
    let (by, long) = (Arc::clone(governed), is_long(&governed.policy, &context));
    let (judged, detail) = aside_if(long, move || {
        let decision = decide(&by.policy, kind, &context);
        let detail = detail(&by.policy, &decision, snapshot(&context, &secrets));
        (judged(&by.policy, &decision), detail)
    })
    .await?;
    let sandbox = governed.sandbox.as_str();
    let made = kind != QuestionKind::Create || judged.permits();
    let entry = AuditEntry {
        actor: match asker.actor.as_str() {
            "" => format!("sandbox:{sandbox}"),
            actor => actor.to_owned(),
        },
        tenant: governed.tenant.to_string(),
        action: kind.audit_action(),
        sandbox: made.then(|| sandbox.to_owned()),
        process: process.map(|process| process.to_string()),
        outcome: match judged.permits() {
            true => "ok".to_owned(),
            false => Code::PolicyDenied.as_str().to_owned(),
        },
        detail,
        request_id: asker.request_id.clone(),
    };
    // Who asks from outside is limited where requests come in, and nothing is inside of what is yet to be made.
    match asker.actor.is_empty() && kind != QuestionKind::Create {
        true => audit.record_from_inside(&governed.sandbox, &governed.tenant, entry),
        false => audit.record(entry),
    }
    Ok(judged)
}

/// Asks without a record, for one of many like it.
pub(crate) async fn judge_unrecorded(
    governed: &Arc<Governed>,
    question: Question,
) -> Result<Judged> {
    let context = completed(governed, question.kind, question.context);
    let (by, long) = (Arc::clone(governed), is_long(&governed.policy, &context));
    let decide = move || judged(&by.policy, &decide(&by.policy, question.kind, &context));
    aside_if(long, decide).await
}

/// Whether an answer may take long. What matters is what rules do with a text, and how long that is.
fn is_long(policy: &SandboxPolicy, context: &Context) -> bool {
    const SHORT_TEXTS: usize = 16 << 10;
    !policy.is_quick()
        || context.iter().map(|(_, value)| length(value)).sum::<usize>() > SHORT_TEXTS
}

/// As so many bytes of text: rules may ask for what is inside a value, compare all of it, and look for patterns there.
fn length(value: &Value) -> usize {
    const ANY: usize = 8;
    ANY + match value {
        Value::Text(text) => text.len(),
        Value::List(values) => values.iter().map(length).sum(),
        Value::Map(entries) => entries.iter().map(|(name, value)| name.len() + length(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
    }
}

/// With what every question has.
fn completed(governed: &Governed, kind: QuestionKind, mut context: Context) -> Context {
    context.set("action", kind.as_str());
    context.set("tenant", governed.tenant.as_str());
    if let Some(agent) = &governed.agent_id {
        context.set("agent_id", agent.as_str());
    }
    context
}

fn decide(policy: &SandboxPolicy, kind: QuestionKind, context: &Context) -> Decision {
    let decision = policy.policy.decide(context);
    // Whoever names a policy at creation wants a sandbox that lives under it: its default is about what happens
    // inside. A creation is refused by a rule, or where a rule cannot be evaluated.
    if kind == QuestionKind::Create && decision.reason == Reason::Default {
        return Decision { verdict: Action::Allow, ..decision };
    }
    decision
}

fn judged(policy: &SandboxPolicy, decision: &Decision) -> Judged {
    let refusal = match decision.permits() {
        true => String::new(),
        false => refusal(policy, decision),
    };
    Judged {
        verdict: decision.verdict,
        rule: decision.rule.clone(),
        message: decision.message.clone(),
        digest: decision.digest.to_string(),
        refusal,
    }
}

fn refusal(policy: &SandboxPolicy, decision: &Decision) -> String {
    let name = belljar_policy::shown(&policy.name);
    let why = match (&decision.rule, &decision.reason) {
        (_, Reason::Error(error)) => format!("a rule cannot be evaluated: {error}"),
        (Some(rule), _) => format!("rule `{}`", belljar_policy::shown(rule)),
        (None, _) => "no rule allows it".to_owned(),
    };
    let message = inert(&decision.message);
    match message.is_empty() {
        true => format!("policy `{name}` denies this: {why}"),
        false => format!("policy `{name}` denies this: {why}: {message}"),
    }
}

/// A rule's message as a terminal may show it.
fn inert(text: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_debug().collect(),
        false => String::from(c),
    };
    text.chars().take(MAX_MESSAGE).map(shown).collect()
}

fn detail(
    policy: &SandboxPolicy,
    decision: &Decision,
    snapshot: Snapshot,
) -> BTreeMap<String, String> {
    let mut detail = BTreeMap::new();
    let mut add = |key: &str, value: String| {
        if !value.is_empty() {
            detail.insert(key.to_owned(), value);
        }
    };
    add("policy", policy.digest.clone());
    add("policy_name", policy.reference().to_string());
    add("verdict", decision.verdict.to_string());
    add("rule", decision.rule.clone().unwrap_or_default());
    add("message", decision.message.clone());
    add("reason", decision.reason.to_string());
    add("context", snapshot.json);
    if snapshot.shortened {
        add("context_shortened", "true".to_owned());
    }
    detail
}

impl std::fmt::Display for super::PolicyRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        match self.version {
            None => Ok(()),
            Some(version) => write!(f, "@{version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_values_counts() {
        let policy = SandboxPolicy::recording();
        let is_long = |arguments: Value| {
            let mut context = Context::new();
            context.nest("arguments", arguments);
            is_long(&policy, &context)
        };
        let text = |length: usize| Value::from("x".repeat(length));
        let inside = |length| Value::List(vec![Value::Map(vec![("a".to_owned(), text(length))])]);
        assert_eq!([text(10), inside(10)].map(is_long), [false, false]);
        assert_eq!([text(20 << 10), inside(20 << 10)].map(is_long), [true, true]);
        assert!(is_long(Value::Map(vec![("x".repeat(20 << 10), Value::Null)])), "and names");
        assert!(is_long(Value::List(vec![Value::Null; 2 << 10])), "and how many there are");
    }
}
