//! A server on one state directory: binds, says where, serves, drains, ends.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_engine::Engine;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::fs::{FlockOperation, flock};
use tokio::net::TcpListener;

use crate::api::Api;
use crate::listen::Serving;
use crate::own_keys::OwnKeys;
use crate::patience::Patience;
use crate::problem::{Problem, Result};
use crate::router::router;
use crate::socket_file::{SocketFile, same_place};
use crate::status::Status;
use crate::tls::Tls;
use crate::{measure, webhook};

/// Requests that are under way when the server is asked to end get this long.
const DRAIN: Duration = Duration::from_secs(10);

/// How often an automatic server looks whether anybody still needs it.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// Where and how to serve.
#[derive(Debug)]
pub struct Options {
    pub listen: Vec<SocketAddr>,
    /// A socket beside [`socket_path`] of the state directory, by which clients on this machine find the server.
    pub socket: Option<PathBuf>,
    pub tls: Option<Tls>,
    /// Ends by itself after [`Options::idle`] without requests and without sandboxes.
    pub automatic: bool,
    pub idle: Duration,
    /// Keys that the operator brought along.
    pub own_keys: OwnKeys,
    pub patience: Patience,
    /// Below which every port that is shown has a name; `None`: `localhost`.
    pub domain: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            socket: None,
            tls: None,
            automatic: false,
            idle: Duration::from_secs(60),
            own_keys: OwnKeys::default(),
            patience: Patience::default(),
            domain: None,
        }
    }
}

/// Where the server of a state directory listens.
#[must_use]
pub fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join("server.sock")
}

/// The right to serve a state directory. Taken before the engine is opened, so that a second server touches nothing.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
    state_dir: PathBuf,
}

impl Claim {
    /// # Errors
    /// `server-running` where another server has it.
    pub fn take(state_dir: &Path) -> Result<Self> {
        let path = state_dir.join("server.lock");
        let failed = |error: &dyn std::error::Error| {
            Problem::new(Code::StateFailed, format!("lock `{}`", path.display())).caused_by(error)
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(|error| failed(&error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed(&error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _lock: lock, state_dir: state_dir.to_owned() }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Problem::new(
                Code::ServerRunning,
                format!("another server serves `{}`", state_dir.display()),
            )
            .with_remedy(
                "use that one, stop it with `belljar server stop`, or give another --state-dir",
            )),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Serves until it is asked to end. `ready` is called once clients can connect.
///
/// # Errors
/// Where an address cannot be bound or keys are missing for it.
pub async fn serve(
    claim: Claim,
    engine: Engine,
    options: Options,
    ready: impl FnOnce(&Status),
) -> Result<()> {
    raise_descriptor_limit();
    let mut sockets = vec![socket_path(&claim.state_dir)];
    sockets.extend(options.socket.clone().filter(|socket| !same_place(socket, &sockets[0])));
    refuse_open_doors(&engine, &options).await?;
    let mut listeners = Vec::new();
    for address in &options.listen {
        listeners.push(bind(*address).await?);
    }
    let (own, others) = (sockets[0].clone(), sockets[1..].to_vec());
    let unix = waiting(move || {
        let mut unix = vec![SocketFile::bind_guarded(&own)?];
        for socket in &others {
            unix.push(SocketFile::bind(socket)?);
        }
        Result::Ok(unix)
    });
    let (names, unix): (Vec<_>, Vec<_>) = unix.await?.into_iter().unzip();
    measure::begin();
    let status = Status::new(
        addresses(&listeners, &sockets, options.tls.is_some()),
        options.automatic,
        options.tls.is_some(),
    );
    let status = Arc::new(status.with_domain(options.domain.clone()));
    let api = Api::new(engine.clone(), Arc::clone(&status));
    let routes = router(&api, options.own_keys.clone(), options.patience);
    let serving = Serving::new(routes, Arc::clone(&status), options.patience);
    let graceful = Arc::new(GracefulShutdown::new());
    let acceptor = options.tls.as_ref().map(Tls::acceptor).transpose()?;
    let mut tasks = tokio::task::JoinSet::new();
    for listener in listeners {
        tasks.spawn(serving.clone().tcp(listener, acceptor.clone(), Arc::clone(&graceful)));
    }
    for listener in unix {
        tasks.spawn(serving.clone().unix(listener, Arc::clone(&graceful)));
    }
    drop(serving);
    tasks.spawn(measure::upkeep());
    tasks.spawn(webhook::deliver(engine.clone()));
    ready(&status);

    tokio::select! {
        () = status.stopped() => {}
        () = terminated() => status.stop(),
        () = unneeded(&engine, &status, options.idle), if options.automatic => status.stop(),
    }
    // No new connections from here on; a client that comes now finds no socket and starts another server.
    waiting(move || drop(names)).await;
    tasks.shutdown().await;
    let graceful = Arc::into_inner(graceful);
    if let Some(graceful) = graceful
        && tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err()
    {
        tracing::info!("requests that were still under way were cut off");
    }
    engine.close().await;
    Ok(())
}

/// Waits for other servers to let go of a name, and keeps nobody waiting who is served meanwhile.
async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

/// Beyond this machine nobody is served without a key.
async fn refuse_open_doors(engine: &Engine, options: &Options) -> Result<()> {
    let outside = options.listen.iter().find(|address| !address.ip().is_loopback());
    let Some(address) = outside else { return Ok(()) };
    if !options.own_keys.is_empty() || engine.keys().any().await? {
        return Ok(());
    }
    Err(Problem::new(
        Code::ConflictingOptions,
        format!("{address} can be reached from other machines, and there is no API key"),
    )
    .with_remedy(
        "make a key with `belljar keys create`, give `--api-key-file`, or listen on 127.0.0.1",
    ))
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        Problem::new(Code::HostExhausted, format!("cannot listen on {address}"))
            .caused_by(&error)
            .with_remedy("choose another address with `--listen`")
    })
}

/// Each connection is a descriptor, and the usual limit is for programs that have a handful.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
}

fn addresses(listeners: &[TcpListener], sockets: &[PathBuf], tls: bool) -> Vec<String> {
    let scheme = if tls { "https" } else { "http" };
    let tcp = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    tcp.map(|address| format!("{scheme}://{address}"))
        .chain(sockets.iter().map(|socket| format!("unix:{}", socket.display())))
        .collect()
}

async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Returns once there has been no request, no connection and no sandbox for the given time.
async fn unneeded(engine: &Engine, status: &Status, idle: Duration) {
    let mut quiet_since = tokio::time::Instant::now();
    let mut begun = status.requests_begun();
    loop {
        tokio::time::sleep(LOOK_AROUND.min(idle)).await;
        let before = std::mem::replace(&mut begun, status.requests_begun());
        let counts = engine.counts().await;
        let needed = before != begun
            || status.connections() > 0
            || counts.map_or(true, |counts| counts.sandboxes.values().any(|count| *count > 0));
        if needed {
            quiet_since = tokio::time::Instant::now();
        } else if quiet_since.elapsed() >= idle {
            return;
        }
    }
}
