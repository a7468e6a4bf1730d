//! What was begun and must not be left half done: a path that is removed unless it is kept.

use std::sync::Arc;

use belljar_protocol::v1::Remove;
use belljar_protocol::v1::frame::Body;

use crate::agent::Connection;

/// A file that is not finished yet. Dropping it asks the agent to remove it, without waiting: giving up at any point
/// leaves nothing behind.
#[derive(Debug)]
pub(super) struct Partial {
    connection: Arc<Connection>,
    /// Empty once it is kept.
    path: Vec<u8>,
}

impl Partial {
    pub(super) fn new(connection: &Arc<Connection>, path: Vec<u8>) -> Self {
        Self { connection: Arc::clone(connection), path }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) fn keep(&mut self) {
        self.path.clear();
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.path.is_empty() {
            let path = std::mem::take(&mut self.path);
            // With the connection the sandbox is gone too, or another engine's business.
            let _ = self.connection.tell(Body::Remove(Remove { path, recursive: false }));
        }
    }
}
