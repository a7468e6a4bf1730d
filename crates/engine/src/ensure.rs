//! Commands that run once in a sandbox's life.

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::SandboxId;
use sha2::{Digest, Sha256};

use crate::engine::Inner;
use crate::fault::point;
use crate::lock::FileLock;
use crate::plan::hex;
use crate::process;
use crate::store::Step;
use crate::{Asker, Error, ExecRequest, Program, Result, policy};

/// Installing packages takes minutes, not hours.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Output of a failed command that ends up in the message.
const SHOWN: usize = 2048;

/// Runs those of `commands` that have not succeeded in this sandbox yet, in order. The first failure ends it; the
/// sandbox stays.
pub(crate) async fn ensure(
    inner: &Arc<Inner>,
    asker: &Asker,
    id: &SandboxId,
    commands: &[String],
) -> Result<()> {
    let mut missing = Vec::new();
    for command in commands {
        let hash = hex(&Sha256::digest(command.as_bytes()));
        if !inner.store.is_ensured(id, &hash).await? {
            missing.push((command, hash));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    // Two runs that share a sandbox must not install the same thing at once.
    let path = inner.directory.ensure_lock(id);
    let _lock = FileLock::acquire(&path, TIMEOUT)
        .await
        .map_err(|source| Error::state("lock", &path, source))?
        .ok_or_else(|| Error::new(Code::EnsureFailed, "another run's commands take too long"))?;
    for (command, hash) in missing {
        if inner.store.is_ensured(id, &hash).await? {
            continue;
        }
        inner.store.journal(id, Step::Ensuring).await?;
        point("create.ensuring");
        run(inner, asker, id, command).await?;
        inner.store.mark_ensured(id, &hash).await?;
        point("create.ensuring.done");
    }
    Ok(())
}

async fn run(inner: &Arc<Inner>, asker: &Asker, id: &SandboxId, command: &str) -> Result<()> {
    let mut request = ExecRequest::new(Program::Shell(command.into()));
    request.timeout = Some(TIMEOUT);
    request.memory_cap = 2 * SHOWN;
    let permitted = policy::permit_exec(inner, asker, id, request).await?;
    let completed = process::start(inner, id, permitted).await?.wait().await?;
    if completed.exit.success() {
        return Ok(());
    }
    let output = match completed.stderr.data.trim_ascii() {
        [] => completed.stdout.data,
        _ => completed.stderr.data,
    };
    let tail = &output[output.len().saturating_sub(SHOWN)..];
    let tail = String::from_utf8_lossy(tail).trim().to_owned();
    let shown = belljar_policy::shown(command);
    let code = completed.exit.code();
    let mut message = format!("`{shown}` ended with {code} ({})", completed.exit.reason.as_str());
    if !tail.is_empty() {
        message.push_str(&format!(": {}", belljar_policy::shown(&tail)));
    }
    Err(Error::new(Code::EnsureFailed, message)
        .with_remedy("correct the command; it runs again with the next run"))
}
