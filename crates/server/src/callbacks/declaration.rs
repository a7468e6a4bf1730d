//! What a client says it answers for, checked.

use std::collections::{BTreeMap, BTreeSet};

use belljar_api::v1;
use belljar_codes::Code;
use belljar_policy::SecretName;
use belljar_policy::document::Tool;
use belljar_policy::json_schema::{Reading, Schema};
use serde_json::Value;

use super::{MAX_SECRETS, MAX_TOOLS, MAX_WORDS, check_json};
use crate::problem::{Problem, Result};

const MAX_SCHEMA: usize = 64 << 10;

/// A tool of a client.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub name: String,
    pub description: String,
    pub schema: Schema,
}

/// All that a client answers for.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(super) tools: BTreeMap<String, Declaration>,
    pub(super) connections: bool,
    pub(super) requests: bool,
    pub(super) secrets: BTreeSet<String>,
}

impl Offer {
    pub(crate) fn new(hello: v1::CallbackHello) -> Result<Self> {
        if hello.tools.len() > MAX_TOOLS {
            let count = hello.tools.len();
            return Err(refused(format!("there are {count} tools, more than {MAX_TOOLS}")));
        }
        let mut tools = BTreeMap::new();
        let mut reading = Reading::default();
        for tool in hello.tools {
            let tool = Declaration::new(tool, &mut reading)?;
            if let Some(twin) = tools.insert(tool.name.clone(), tool) {
                return Err(refused(format!("tool `{}` is declared twice", twin.name)));
            }
        }
        let (connections, requests) = (hello.decides_connections, hello.handles_requests);
        if hello.secrets.len() > MAX_SECRETS {
            let count = hello.secrets.len();
            return Err(refused(format!("there are {count} secrets, more than {MAX_SECRETS}")));
        }
        for name in &hello.secrets {
            SecretName::parse(name)?;
        }
        let secrets = hello.secrets.into_iter().collect();
        Ok(Self { tools, connections, requests, secrets })
    }
}

impl Declaration {
    fn new(tool: v1::ToolDeclaration, reading: &mut Reading) -> Result<Self> {
        let v1::ToolDeclaration { name, description, mut input_schema } = tool;
        if !Tool::is_name(&name) {
            return Err(Problem::new(
                Code::InvalidName,
                format!("tool `{}` has no name that tools can have", belljar_policy::shown(&name)),
            )
            .with_remedy("use letters, digits, `_`, `-` and `.`, 64 at most"));
        }
        if description.len() > MAX_WORDS {
            return Err(refused(format!("the description of tool `{name}` is too long")));
        }
        if input_schema.is_empty() {
            input_schema.push_str(r#"{"type":"object"}"#);
        }
        if let Err(reason) = check_json(&input_schema, MAX_SCHEMA) {
            return Err(refused(format!("the input schema of tool `{name}` {reason}")));
        }
        let schema: Value = serde_json::from_str(&input_schema)
            .map_err(|error| refused(format!("the input schema of tool `{name}`: {error}")))?;
        if !schema.is_object() {
            return Err(refused(format!("the input schema of tool `{name}` is not an object")));
        }
        let schema = Schema::new(schema, reading).map_err(|reason| {
            refused(format!("the input schema of tool `{name}` cannot be checked: {reason}"))
        })?;
        Ok(Self { name, description, schema })
    }
}

fn refused(message: String) -> Problem {
    Problem::invalid(message).with_remedy("see docs/guides/tools.md for what can be declared")
}
