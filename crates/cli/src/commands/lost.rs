//! Tells why nobody knows how a command ended.

use std::time::Duration;

use belljar_api::v1::{self, SandboxState};
use belljar_client::{Client, Status};
use belljar_codes::Code;

use super::attend::Signals;
use crate::failure::Failure;

/// How long one waits for a sandbox that is being taken apart: only when it has ended is it on record why.
const PATIENCE: Duration = Duration::from_secs(3);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What to tell of a command that was lost in the sandbox of that id.
pub(super) async fn lost(client: &Client, sandbox: &str) -> Failure {
    let mut sandboxes = client.sandboxes.clone();
    let look = async || {
        let wanted = v1::GetSandboxRequest { sandbox: sandbox.to_owned() };
        Ok(sandboxes.get_sandbox(wanted).await?.into_inner())
    };
    find_out(sandbox, look, enough()).await
}

/// Until nobody has the patience any more, or somebody wants us to end: signals were watched for the command, so none of
/// them ends us by itself.
async fn enough() {
    let patience = tokio::time::sleep(PATIENCE);
    match Signals::watch() {
        Ok(mut signals) => tokio::select! {
            () = patience => {}
            _ = signals.ending() => {}
        },
        Err(_) => patience.await,
    }
}

/// Looks until it is known, or it is enough.
async fn find_out(
    sandbox: &str,
    mut look: impl AsyncFnMut() -> Result<v1::Sandbox, Status>,
    enough: impl Future<Output = ()>,
) -> Failure {
    let mut seen = None;
    let looking = async {
        loop {
            let found = look().await;
            let under_way =
                found.as_ref().is_ok_and(|found| found.state() == SandboxState::Destroying);
            seen = Some(found);
            if !under_way {
                return;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    };
    tokio::select! {
        () = looking => {}
        () = enough => {}
    }
    match seen {
        Some(Ok(sandbox)) => of(&sandbox),
        // Nobody remembers it any more.
        Some(Err(_)) => gone(sandbox),
        None => unknown(sandbox),
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

fn unknown(sandbox: &str) -> Failure {
    let message =
        format!("the command was lost: the server does not say what became of `{sandbox}`");
    Failure::new(Code::AgentFailed, message)
        .with_remedy(format!("look with `belljar inspect {sandbox}`, and run the command again"))
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

    #[tokio::test]
    async fn a_signal_is_enough() {
        let begun = tokio::time::Instant::now();
        let mut enough = std::pin::pin!(enough());
        // From here on it is watched for.
        tokio::select! {
            biased;
            () = &mut enough => panic!("nobody asked"),
            () = std::future::ready(()) => {}
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT)
            .unwrap();
        enough.await;
        assert!(begun.elapsed() < PATIENCE);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_server_that_does_not_answer() {
        let silent = async || std::future::pending().await;
        let failure = find_out("n1", silent, std::future::ready(())).await;
        assert!(failure.message.ends_with("what became of `n1`"), "{}", failure.message);
        // What was seen last is told.
        let looked = tokio::sync::Notify::new();
        let slow = async || {
            looked.notify_one();
            Ok(sandbox(SandboxState::Destroying, None))
        };
        let failure = find_out("n1", slow, looked.notified()).await;
        assert_eq!(
            (failure.code, &failure.causes[..]),
            (Code::SandboxGone, &["it was destroyed".to_owned()][..])
        );
        // The twins: what is known is told without waiting.
        let known = async || Ok(sandbox(SandboxState::Destroyed, Some("its lease ended")));
        let failure = find_out("n1", known, std::future::pending()).await;
        assert_eq!(failure.causes, ["its lease ended"]);
        let forgotten = async || Err(Status::not_found("no"));
        let failure = find_out("n1", forgotten, std::future::pending()).await;
        assert_eq!(failure.code, Code::SandboxGone);
    }
}
