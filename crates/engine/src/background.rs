//! Work that nobody waits for until the engine closes.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::{Error, Result};
use belljar_codes::Code;

#[derive(Debug, Default)]
pub(crate) struct Background {
    tasks: Mutex<JoinSet<()>>,
}

impl Background {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are let go, so that a long life does not collect them.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Waits for everything, also for what is added meanwhile, up to `patience`.
    pub(crate) async fn finish(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.finish_all()).await;
    }

    async fn finish_all(&self) {
        loop {
            let mut tasks =
                std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// Runs something to its end even if the caller stops waiting: a transition is never left half done by a client that
/// disconnects.
///
/// What is to be done is boxed at once: otherwise it would be part of every future around it, twice where one is handed on,
/// and be copied with each of them.
pub(crate) fn to_the_end<T: Send + 'static>(
    act: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    let act = Box::pin(act);
    async move {
        tokio::spawn(act).await.map_err(|source| {
            Error::new(Code::Internal, "a task of the engine ended").with_source(source)
        })?
    }
}
