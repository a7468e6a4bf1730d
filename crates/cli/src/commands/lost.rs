//! Tells why nobody knows how a command ended.

use std::time::Duration;

use belljar_api::v1::{self, SandboxState};
use belljar_client::{Client, Status};
use belljar_codes::Code;

use crate::failure::Failure;

/// How long one waits for a sandbox that is being taken apart: only when it has ended is it on record why.
const PATIENCE: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What to tell of a command that was lost in the sandbox of that id.
pub(super) async fn lost(client: &Client, sandbox: &str) -> Failure {
    match ended(client, sandbox).await {
        Ok(sandbox) => of(&sandbox),
        // Nobody remembers it any more.
        Err(_) => gone(sandbox),
    }
}

async fn ended(client: &Client, sandbox: &str) -> Result<v1::Sandbox, Status> {
    let mut sandboxes = client.sandboxes.clone();
    let begun = tokio::time::Instant::now();
    loop {
        let wanted = v1::GetSandboxRequest { sandbox: sandbox.to_owned() };
        let found = sandboxes.get_sandbox(wanted).await?.into_inner();
        if found.state() != SandboxState::Destroying || begun.elapsed() > PATIENCE {
            return Ok(found);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn of(sandbox: &v1::Sandbox) -> Failure {
    let name = sandbox.name.as_deref().unwrap_or(&sandbox.sandbox_id);
    let has_ended = matches!(
        sandbox.state(),
        SandboxState::Destroying | SandboxState::Destroyed | SandboxState::Failed
    );
    if !has_ended {
        let message = format!("the command was lost: sandbox `{name}` no longer knows it");
        return Failure::new(Code::AgentFailed, message).with_remedy("run the command again");
    }
    let mut failure = gone(name);
    failure.causes.push(sandbox.failure.clone().unwrap_or_else(|| "it was destroyed".to_owned()));
    failure
}

fn gone(sandbox: &str) -> Failure {
    Failure::new(Code::SandboxGone, format!("the command was lost: sandbox `{sandbox}` has ended"))
        .with_remedy(
            "run the command again in a new sandbox; `--lease` and `--idle-timeout` say how long one lives",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(state: SandboxState, failure: Option<&str>) -> v1::Sandbox {
        v1::Sandbox {
            sandbox_id: "n1".into(),
            name: Some("web".into()),
            state: state.into(),
            failure: failure.map(str::to_owned),
            ..v1::Sandbox::default()
        }
    }

    #[test]
    fn the_sandbox_and_its_own_reason_are_named() {
        let failure = of(&sandbox(SandboxState::Destroyed, Some("its lease ended")));
        assert_eq!(failure.code, Code::SandboxGone);
        assert_eq!(failure.message, "the command was lost: sandbox `web` has ended");
        assert_eq!(failure.causes, ["its lease ended"]);
        let failure = of(&sandbox(SandboxState::Destroyed, None));
        assert_eq!(failure.causes, ["it was destroyed"]);
        let failure = of(&sandbox(SandboxState::Ready, None));
        assert_eq!((failure.code, failure.exit_status()), (Code::AgentFailed, 125));
    }
}
