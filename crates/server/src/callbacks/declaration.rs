//! What a client says it answers for, checked.

use std::collections::BTreeMap;

use belljar_api::v1;
use belljar_codes::Code;

use super::{MAX_TOOLS, MAX_WORDS, check_json};
use crate::problem::{Problem, Result};

const MAX_NAME: usize = 64;
const MAX_SCHEMA: usize = 64 << 10;

/// A tool of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    pub name: String,
    pub description: String,
    /// JSON text of an object.
    pub input_schema: String,
}

/// All that a client answers for.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(super) tools: BTreeMap<String, Declaration>,
    pub(super) connections: bool,
    pub(super) requests: bool,
}

impl Offer {
    pub(crate) fn new(hello: v1::CallbackHello) -> Result<Self> {
        if hello.tools.len() > MAX_TOOLS {
            let count = hello.tools.len();
            return Err(refused(format!("there are {count} tools, more than {MAX_TOOLS}")));
        }
        let mut tools = BTreeMap::new();
        for tool in hello.tools {
            let tool = Declaration::new(tool)?;
            if let Some(twin) = tools.insert(tool.name.clone(), tool) {
                return Err(refused(format!("tool `{}` is declared twice", twin.name)));
            }
        }
        let (connections, requests) = (hello.decides_connections, hello.handles_requests);
        Ok(Self { tools, connections, requests })
    }
}

impl Declaration {
    fn new(tool: v1::ToolDeclaration) -> Result<Self> {
        let v1::ToolDeclaration { name, description, mut input_schema } = tool;
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(known) {
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
        if !input_schema.trim_start().starts_with('{') {
            return Err(refused(format!("the input schema of tool `{name}` is not an object")));
        }
        Ok(Self { name, description, input_schema })
    }
}

fn refused(message: String) -> Problem {
    Problem::invalid(message).with_remedy("see docs/guides/tools.md for what can be declared")
}
