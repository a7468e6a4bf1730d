//! Waiting for the server before this one to let go of the state directory.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use belljar_codes::Code;
use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;

/// A server that was asked to end gives the requests under way ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns once nobody holds the state directory, or after a while.
pub(super) async fn for_the_one_before(state_dir: &Path) -> Result<(), Failure> {
    let path = state_dir.join("server.lock");
    let wait = tokio::task::spawn_blocking(move || {
        let lock = OpenOptions::new().write(true).open(&path)?;
        // Shared, and let go of at once: only whoever serves holds it for long.
        flock(&lock, FlockOperation::LockShared)?;
        Ok::<_, std::io::Error>(())
    });
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(Ok(Ok(()))) | Err(_) => Ok(()),
        Ok(Ok(Err(error))) => {
            Err(Failure::new(Code::StateFailed, "the server's lock cannot be used")
                .caused_by(&error))
        }
        Ok(Err(error)) => Err(Failure::new(Code::Internal, "a task ended early").caused_by(&error)),
    }
}
