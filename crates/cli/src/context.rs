//! What every command stands on: the settings, the runtime, the server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_client::{Address, Client, Local};
use belljar_codes::Code;
use belljar_engine::{EgressSettings, Engine, EngineOptions, egress_settings};
use tracing_subscriber::EnvFilter;

use crate::args::GlobalArgs;
use crate::backends;
use crate::env_vars;
use crate::failure::Failure;
use crate::settings::{Key, Settings, Sources};

/// Stands for "no server" where an address is expected.
const EMBEDDED: &str = "embedded";

/// Where requests go.
#[derive(Debug)]
pub(crate) enum Server {
    /// That of the state directory; started if it does not run.
    Local(Local),
    /// Engine and services in this process.
    Embedded,
    /// Elsewhere.
    Remote(Address),
}

/// Freed memory that is kept rather than given back: more than transactions and requests usually need.
const KEPT_HEAP: u32 = 1 << 20;

/// Settings and runtime of one command.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) quiet: bool,
    runtime: tokio::runtime::Runtime,
}

impl Context {
    /// `flags` are the settings that the command's own options give.
    pub(crate) fn new(global: &GlobalArgs, flags: Vec<(Key, OsString)>) -> Result<Self, Failure> {
        // One thread: a command waits for one answer, and starting threads costs more than they would give.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let context = Self::with_runtime(global, flags, &mut runtime)?;
        start_log(&context.settings)?;
        Ok(context)
    }

    /// For a command that serves many at once, and sets up its own log.
    pub(crate) fn for_server(global: &GlobalArgs) -> Result<Self, Failure> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        // Half of the processors: the other half is for the sandboxes that it serves. A thread more than needed is woken
        // for every answer that comes, and takes its time from them.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        runtime.worker_threads((processors / 2).max(1));
        Self::with_runtime(global, Vec::new(), &mut runtime)
    }

    fn with_runtime(
        global: &GlobalArgs,
        mut flags: Vec<(Key, OsString)>,
        runtime: &mut tokio::runtime::Builder,
    ) -> Result<Self, Failure> {
        let mut give = |key, value: Option<OsString>| flags.extend(value.map(|value| (key, value)));
        give(Key::StateDir, global.state_dir.clone().map(PathBuf::into_os_string));
        give(Key::Server, global.server.clone());
        give(Key::ServerSecret, global.api_key.clone());
        let settings = Settings::resolve(&Sources::of_process(global.config.clone()), flags)?;
        belljar_sys::heap::keep_freed(KEPT_HEAP);
        let runtime = runtime.enable_all().build().map_err(|error| {
            Failure::new(Code::HostExhausted, "the runtime cannot be started").caused_by(&error)
        })?;
        Ok(Self { settings, quiet: global.quiet, runtime })
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Where requests go.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        let setting = self.settings.get(Key::Server);
        match setting.parse_text(|text| Ok(text.to_owned()))?.as_deref() {
            None => Ok(Server::Local(self.local()?)),
            Some(EMBEDDED) => Ok(Server::Embedded),
            Some(text) => Ok(Server::Remote(
                Address::parse(text)
                    .map_err(|failure| Failure::from(failure).set_by(&setting.origin))?,
            )),
        }
    }

    /// The server of the state directory.
    pub(crate) fn local(&self) -> Result<Local, Failure> {
        Ok(Local {
            state_dir: self.settings.state_dir()?,
            program: backends::this_program()?,
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// Connects to a server elsewhere, with the key that goes with it.
    pub(crate) async fn connect(&self, address: &Address) -> Result<Client, Failure> {
        let key = self.settings.get(Key::ServerSecret).parse_text(|text| Ok(text.to_owned()))?;
        Ok(Client::connect(address, key.as_deref()).await?)
    }

    /// Does `work` with a server: the one that was named, that of the state directory, or none but this process.
    pub(crate) async fn with_client<T>(
        &self,
        work: impl AsyncFnOnce(Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self.server()? {
            Server::Local(local) => work(local.find_or_start().await?).await,
            Server::Remote(address) => work(self.connect(&address).await?).await,
            Server::Embedded => {
                self.with_engine(async |engine| {
                    let channel = belljar_server::embedded(engine.clone());
                    work(Client::new(channel, None)?).await
                })
                .await
            }
        }
    }

    /// Does `work` with an engine in this process, and lets the engine finish what it does in the background whatever
    /// came of it.
    pub(crate) async fn with_engine<T>(
        &self,
        work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let engine = Engine::open(self.engine_options()?).await?;
        let result = work(&engine).await;
        engine.close().await;
        result
    }

    /// How the networks of sandboxes are served; what is given here wins over the settings.
    pub(crate) fn egress(
        &self,
        upstreams: Option<&str>,
        roots: Option<&Path>,
    ) -> Result<EgressSettings, Failure> {
        let upstream = self.settings.get(Key::DnsUpstream).value.clone();
        let upstream = upstream.map(|text| text.to_string_lossy().into_owned());
        let known_roots = self.settings.get(Key::TlsRoots).value.clone().map(PathBuf::from);
        let upstreams = upstreams.or(upstream.as_deref());
        Ok(egress_settings(upstreams, roots.or(known_roots.as_deref()))?)
    }

    pub(crate) fn engine_options(&self) -> Result<EngineOptions, Failure> {
        let state_dir = self.settings.state_dir()?;
        let backends = backends::all(&state_dir, &self.settings)?;
        let mut options = EngineOptions::new(state_dir, backends);
        options.home.clone_from(&self.settings.home);
        options.secrets_key = std::env::var_os(env_vars::SECRETS_KEY_FILE).map(Into::into);
        options.egress = self.egress(None, None)?;
        Ok(options)
    }
}

/// Logs to standard error what `BELLJAR_LOG` asks for; nothing is set up where nobody asks.
fn start_log(settings: &Settings) -> Result<(), Failure> {
    if let Some(filter) = log_filter(settings)? {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    Ok(())
}

/// What is to be logged, where somebody says so.
pub(crate) fn log_filter(settings: &Settings) -> Result<Option<EnvFilter>, Failure> {
    settings.get(Key::Log).parse_text(|text| {
        EnvFilter::try_new(text).map_err(|error| {
            belljar_policy::Invalid::new(
                Code::InvalidConfiguration,
                format!("log filter cannot be used: {error}"),
                "write a level such as `debug`, or `crate=level` pairs",
            )
        })
    })
}
