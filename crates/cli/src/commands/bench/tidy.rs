//! Nothing of a bench stays, however it ends.
//!
//! What a bench makes carries the number of its process: sandboxes in a label, the directory of a server that is measured
//! in its name. A bench that is asked to end removes its own; of one that was killed the next bench removes them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use belljar_client::Local;
use belljar_codes::Code;
use belljar_engine::{CreateRequest, Engine, SandboxQuery};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::backends;
use crate::commands::attend::hang_up_counts;
use crate::context::Context;
use crate::failure::Failure;

/// The label of a sandbox that a bench made.
const LABEL: &str = "belljar-bench";
/// How the directory of a server that is measured begins; the number follows.
const PREFIX: &str = "belljar-bench-";

/// A bench under way.
#[derive(Clone, Debug)]
pub(super) struct Bench<'c> {
    pub(super) context: &'c Context,
    /// The exit status, once it is asked to end.
    asked: watch::Receiver<Option<u8>>,
}

impl<'c> Bench<'c> {
    /// Removes what benches left that were killed, and listens for being asked to end.
    pub(super) async fn begin(context: &'c Context) -> Result<Self, Failure> {
        remove_left_directories().await;
        let (tell, asked) = watch::channel(None);
        let hang_up = hang_up_counts().then(SignalKind::hangup);
        for kind in [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hang_up) {
            let mut signals = signal(kind).map_err(|error| {
                Failure::new(Code::HostExhausted, "signals cannot be watched").caused_by(&error)
            })?;
            let tell = tell.clone();
            tokio::spawn(async move {
                signals.recv().await;
                tell.send_replace(u8::try_from(128 + kind.as_raw_value()).ok());
            });
        }
        Ok(Self { context, asked })
    }

    /// The exit status, if it was asked to end.
    pub(super) fn asked(&self) -> Option<u8> {
        *self.asked.borrow()
    }

    /// Does `work` until it is done or the bench is asked to end.
    pub(super) async fn until_asked<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut asked = self.asked.clone();
        tokio::select! {
            done = work => done,
            _ = asked.wait_for(Option::is_some) => {
                Err(Failure::new(Code::Interrupted, "the bench was interrupted"))
            }
        }
    }

    /// Does `work` with an engine in this process, and removes the sandboxes that it leaves.
    pub(super) async fn with_engine<T>(
        &self,
        work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let work = async |engine: &Engine| {
            remove_sandboxes(engine, |pid| !is_running(pid)).await?;
            let result = self.until_asked(work(engine)).await;
            let own = |pid| pid == std::process::id();
            // The last one may have been on its way when the first look was taken.
            let removed = async {
                remove_sandboxes(engine, own).await?;
                remove_sandboxes(engine, own).await
            };
            let removed = removed.await;
            result.and_then(|result| removed.map(|()| result))
        };
        self.context.with_engine(work).await
    }
}

/// A sandbox with all defaults that is known to be a bench's.
pub(super) fn request() -> CreateRequest {
    let labels = BTreeMap::from([(LABEL.to_owned(), std::process::id().to_string())]);
    CreateRequest { labels, ..CreateRequest::default() }
}

/// A directory for a server that is measured; see [`remove_directory`].
pub(super) fn directory() -> std::io::Result<tempfile::TempDir> {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// Ends what is in the directory of a server that was measured and has ended, and removes it.
pub(super) fn remove_directory(directory: &Path) {
    let Ok(program) = backends::this_program() else { return };
    let mut command = Command::new(&program);
    command.args(["--server", "embedded", "destroy", "--all", "--state-dir"]).arg(directory);
    // There may be nothing.
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let _ = std::fs::remove_dir_all(directory);
}

/// Ends the server of that directory, and never the one that this command's settings name.
async fn stop_server(directory: &Path) -> Result<(), Failure> {
    let local = Local {
        state_dir: directory.to_owned(),
        program: backends::this_program()?,
        version: env!("CARGO_PKG_VERSION"),
    };
    if let Some((client, server)) = local.find().await? {
        local.stop(&client, &server).await?;
    }
    Ok(())
}

async fn remove_left_directories() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let bench = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        let Some(pid) = bench.and_then(|(pid, _)| pid.parse().ok()) else { continue };
        // One whose server goes on stays for the next bench.
        if !is_running(pid) && is_own(&entry.path()) && stop_server(&entry.path()).await.is_ok() {
            remove_directory(&entry.path());
        }
    }
}

/// Whether it is a directory that nobody else can have made: others may write beside it.
fn is_own(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0)
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Destroys the sandboxes of benches that are meant.
async fn remove_sandboxes(engine: &Engine, meant: impl Fn(u32) -> bool) -> Result<(), Failure> {
    let mut query = SandboxQuery { limit: Some(1000), ..SandboxQuery::default() };
    loop {
        let page = engine.list(&query).await?;
        for sandbox in page.items {
            let bench = sandbox.labels.get(LABEL).and_then(|pid| pid.parse().ok());
            if bench.is_some_and(&meant) {
                engine.destroy(sandbox.id.as_str()).await?;
            }
        }
        query.after = page.next;
        if query.after.is_none() {
            return Ok(());
        }
    }
}
