//! Programs of the host that print a secret: password managers, cloud tools.
//!
//! The answer is kept for as long as the document says, and one run answers everybody who asks meanwhile. What the
//! program writes to its error output is not kept: it may repeat the secret.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_policy::SecretValue;
use belljar_policy::document::CommandSource;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::source::value_of;
use crate::{Error, Result};

/// A program that asks a person to unlock something gets this long.
const PATIENCE: Duration = Duration::from_secs(30);

const MAX_OUTPUT: u64 = (64 << 10) + 2;

type Slot = Arc<tokio::sync::Mutex<Option<(Instant, SecretValue)>>>;

#[derive(Default)]
pub(super) struct Commands {
    slots: Mutex<HashMap<Vec<String>, Slot>>,
}

impl Commands {
    pub(super) async fn get(&self, source: &CommandSource) -> Result<SecretValue> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(source.argv.clone()).or_default())
        };
        let mut kept = slot.lock().await;
        let time = Duration::from_secs(source.cache_seconds);
        if let Some((at, value)) = &*kept
            && at.elapsed() < time
        {
            return Ok(value.clone());
        }
        *kept = None;
        let value = run(&source.argv).await?;
        *kept = Some((Instant::now(), value.clone()));
        Ok(value)
    }
}

async fn run(argv: &[String]) -> Result<SecretValue> {
    let (program, arguments) = argv.split_first().ok_or_else(|| {
        Error::new(Code::InvalidPolicy, "a credential has a command without a program")
    })?;
    let failed = |why: String| {
        Error::new(Code::SecretUnavailable, format!("`{program}` gave no secret: {why}"))
            .with_remedy("run it by hand, as the user that the server runs as")
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let stdout = child.stdout.take().expect("it was asked for");
    let answer = async {
        let mut output = Vec::new();
        stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
        Ok::<_, std::io::Error>((child.wait().await?, output))
    };
    let (status, output) = tokio::time::timeout(PATIENCE, answer)
        .await
        .map_err(|_| failed(format!("it took longer than {} seconds", PATIENCE.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    value_of(output).map_err(|why| failed(why.to_owned()))
}
