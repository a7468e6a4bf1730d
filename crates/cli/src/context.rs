//! What every command stands on: the settings, the runtime, the engine.

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_codes::Code;
use belljar_engine::{Engine, EngineOptions};
use tracing_subscriber::EnvFilter;

use crate::args::GlobalArgs;
use crate::backends;
use crate::failure::Failure;
use crate::settings::{Key, Settings, Sources};

/// Settings and runtime of one command.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) quiet: bool,
    runtime: tokio::runtime::Runtime,
}

impl Context {
    /// `flags` are the settings that the command's own options give.
    pub(crate) fn new(
        global: &GlobalArgs,
        mut flags: Vec<(Key, OsString)>,
    ) -> Result<Self, Failure> {
        let mut give = |key, value: Option<OsString>| flags.extend(value.map(|value| (key, value)));
        give(Key::StateDir, global.state_dir.clone().map(PathBuf::into_os_string));
        give(Key::Server, global.server.clone());
        give(Key::ServerSecret, global.api_key.clone());
        let settings = Settings::resolve(&Sources::of_process(global.config.clone()), flags)?;
        start_log(&settings)?;
        // One thread: a command waits for one sandbox, and starting threads costs more than they would give.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(
            |error| {
                Failure::new(Code::HostExhausted, "the runtime cannot be started").caused_by(&error)
            },
        )?;
        Ok(Self { settings, quiet: global.quiet, runtime })
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Does `work` with the engine, and lets the engine finish what it does in the background whatever came of it.
    pub(crate) async fn with_engine<T>(
        &self,
        work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let engine = self.open().await?;
        let result = work(&engine).await;
        engine.close().await;
        result
    }

    async fn open(&self) -> Result<Engine, Failure> {
        self.settings.refuse_server()?;
        let state_dir = self.settings.state_dir()?;
        let backends = backends::all(&state_dir)?;
        let home = self.settings.home.clone();
        let options = EngineOptions { home, ..EngineOptions::new(state_dir, backends) };
        Ok(Engine::open(options).await?)
    }
}

/// Logs to standard error what `BELLJAR_LOG` asks for; nothing is set up where nobody asks.
fn start_log(settings: &Settings) -> Result<(), Failure> {
    let setting = settings.get(Key::Log);
    let filter = setting.parse_text(|text| {
        EnvFilter::try_new(text).map_err(|error| {
            belljar_policy::Invalid::new(
                Code::InvalidConfiguration,
                format!("log filter cannot be used: {error}"),
                "write a level such as `debug`, or `crate=level` pairs",
            )
        })
    })?;
    if let Some(filter) = filter {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    Ok(())
}
