//! Schemas of policy documents, compiled once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_codes::Code;
use belljar_engine::{ToolFailure, aside};
use belljar_policy::document::Tool;
use belljar_policy::json_schema::Schema;

/// Beyond, they are compiled again.
const MAX_READY: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Schemas(Mutex<HashMap<(String, String), Schema>>);

impl Schemas {
    /// The schema of a tool of the policy with that digest.
    pub(super) async fn of(&self, digest: &str, tool: &Tool) -> Result<Schema, ToolFailure> {
        let key = (digest.to_owned(), tool.name.clone());
        if let Some(schema) = self.lock().get(&key) {
            return Ok(schema.clone());
        }
        let written = tool.schema();
        // Documents are refused when they are read if this cannot be.
        let schema = aside(move || Schema::kept(written)).await?.map_err(|reason| {
            ToolFailure::new(
                Code::Internal,
                format!("tool `{}` cannot be checked: {reason}", tool.name),
            )
        })?;
        let mut ready = self.lock();
        if ready.len() >= MAX_READY {
            ready.clear();
        }
        // Who was faster has one whose patterns may be built already.
        Ok(ready.entry(key).or_insert(schema).clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Schema>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
