//! Questions with the answers that a document is meant to give: its tests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sections::Method;
use super::syntax::{Check, checked_list};
use super::{
    Context, Flow, FlowDecision, FlowRules, Format, Looks, Policy, Refusal, Transport, Value, read,
};
use crate::{Invalid, shown};
use belljar_codes::Code;

/// A file of cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    #[serde(deserialize_with = "checked_list")]
    pub cases: Vec<Case>,
}

/// One question: a `context` for the rules, or a `flow` for the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(default)]
    pub context: Option<Value>,
    #[serde(default)]
    pub flow: Option<FlowCase>,
    pub expect: Expected,
    /// The rule that is meant to decide; without the field, any.
    #[serde(default)]
    pub rule: Option<String>,
}

/// A flow as people write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowCase {
    pub host: String,
    #[serde(default = "https")]
    pub port: u16,
    #[serde(default)]
    pub transport: Transport,
    #[serde(default)]
    pub method: Option<Method>,
    #[serde(default)]
    pub path: Option<String>,
}

/// A verdict of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    Allow,
    Deny,
    Audit,
    Block,
    Ask,
}

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub passed: bool,
    pub expected: Expected,
    pub found: String,
    pub rule: Option<String>,
}

fn https() -> u16 {
    443
}

impl Check for Case {
    fn check(&self, _: &mut Looks) -> Result<(), Invalid> {
        let reason = match (&self.context, &self.flow) {
            (Some(Value::Map(_)), None) if self.expect == Expected::Ask => {
                "expects `ask`, which only flows are answered with"
            }
            (None, Some(_)) if matches!(self.expect, Expected::Audit | Expected::Block) => {
                "expects what no flow is answered with"
            }
            (Some(Value::Map(_)), None) | (None, Some(_)) => return Ok(()),
            _ => "needs either a `context` (a map of fields) or a `flow`",
        };
        Err(Invalid::new(
            Code::InvalidPolicy,
            format!("case `{}` {reason}", shown(&self.name)),
            "write one question with its answer",
        ))
    }
}

impl Cases {
    /// # Errors
    /// As [`super::Document::parse`].
    pub fn parse(text: &str, format: Format) -> Result<Self, Refusal> {
        read(text, format)
    }

    /// Asks all of them, in order.
    #[must_use]
    pub fn run(&self, policy: &Policy, flows: &FlowRules) -> Vec<CaseResult> {
        self.cases.iter().map(|case| case.run(policy, flows)).collect()
    }
}

impl Case {
    fn run(&self, policy: &Policy, flows: &FlowRules) -> CaseResult {
        let (found, rule) = match (&self.flow, &self.context) {
            (Some(flow), _) => flow.ask(flows),
            (None, context) => {
                let decision = policy.decide(&fields(context.as_ref()));
                (decision.verdict.as_str(), decision.rule)
            }
        };
        let rule_fits = self.rule.is_none() || self.rule == rule;
        CaseResult {
            name: self.name.clone(),
            passed: found == self.expect.as_str() && rule_fits,
            expected: self.expect,
            found: found.to_owned(),
            rule,
        }
    }
}

/// Every field by its name, and what is inside maps by dotted names.
fn fields(context: Option<&Value>) -> Context {
    let mut found = Context::new();
    if let Some(Value::Map(entries)) = context {
        for (name, value) in entries {
            found.nest(name, value.clone());
        }
    }
    found
}

impl FlowCase {
    /// The verdict as a word and the rule's name, or what stands in for it.
    #[must_use]
    pub fn ask(&self, flows: &FlowRules) -> (&'static str, Option<String>) {
        let method = self.method.as_ref().map(Method::as_str);
        let request = match (method, self.path.as_deref()) {
            (None, None) => None,
            (method, path) => Some((method.unwrap_or("GET"), path.unwrap_or("/"))),
        };
        let flow = Flow { host: &self.host, port: self.port, transport: self.transport, request };
        // Before there is a request, a rule that needs one has not allowed anything.
        let decision = match flows.judge(&flow) {
            FlowDecision::Inspect => flows.judge(&Flow { request: Some(("GET", "/")), ..flow }),
            decision => decision,
        };
        let rule = match decision {
            FlowDecision::Rule(rule) => {
                Some(rule.name.clone().unwrap_or_else(|| rule.host.to_string()))
            }
            FlowDecision::Listed(pattern) => Some(pattern.to_string()),
            FlowDecision::Inspect | FlowDecision::Default(_) => None,
        };
        (decision.verdict().map_or("deny", |verdict| verdict.as_str()), rule)
    }
}

impl Expected {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Audit => "audit",
            Self::Block => "block",
            Self::Ask => "ask",
        }
    }
}
