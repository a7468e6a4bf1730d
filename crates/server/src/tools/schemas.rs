//! Schemas of policy documents, compiled once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_codes::Code;
use belljar_engine::ToolFailure;
use belljar_policy::document::Tool;
use belljar_policy::json_schema::Schema;

/// Beyond, they are compiled again.
const MAX_READY: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Schemas(Mutex<HashMap<(String, String), Arc<Schema>>>);

impl Schemas {
    /// The schema of a tool of the policy with that digest.
    pub(super) fn of(&self, digest: &str, tool: &Tool) -> Result<Arc<Schema>, ToolFailure> {
        let key = (digest.to_owned(), tool.name.clone());
        let mut ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = ready.get(&key) {
            return Ok(Arc::clone(schema));
        }
        // Documents are refused when they are read if this cannot be.
        let schema = Schema::new(tool.schema()).map_err(|reason| {
            ToolFailure::new(
                Code::Internal,
                format!("tool `{}` cannot be checked: {reason}", tool.name),
            )
        })?;
        if ready.len() >= MAX_READY {
            ready.clear();
        }
        Ok(Arc::clone(ready.entry(key).or_insert(Arc::new(schema))))
    }
}
