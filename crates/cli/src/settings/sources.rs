//! Where settings are looked for. A value, so that tests can bring their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use belljar_codes::Code;

use super::Key;
use super::file::ConfigFile;
use crate::env_vars;
use crate::failure::Failure;

const SYSTEM_FILE: &str = "/etc/belljar/config.toml";
const ROOT_STATE_DIR: &str = "/var/lib/belljar";

/// The surroundings of a command.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) variables: BTreeMap<OsString, OsString>,
    pub(crate) system_file: PathBuf,
    /// From `--config`.
    pub(crate) config_flag: Option<PathBuf>,
    pub(crate) is_root: bool,
}

/// The files that were found.
pub(super) struct Files {
    pub(super) user: Option<(PathBuf, ConfigFile)>,
    pub(super) system: Option<(PathBuf, ConfigFile)>,
    pub(super) user_path: Option<PathBuf>,
}

impl Sources {
    /// Those of this process.
    pub(crate) fn of_process(config_flag: Option<PathBuf>) -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            system_file: PathBuf::from(SYSTEM_FILE),
            config_flag,
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty()).cloned()
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.directory(env_vars::HOME)
    }

    pub(super) fn default(&self, key: Key) -> Option<OsString> {
        match key {
            Key::StateDir => self.state_dir().map(PathBuf::into_os_string),
            Key::DockerHost => self.variable(env_vars::OTHER_DOCKER_HOST),
            _ => key.fixed_default().map(OsString::from),
        }
    }

    pub(super) fn files(&self) -> Result<Files, Failure> {
        let (path, must_exist) = match self.config_flag.clone() {
            Some(path) => (Some(path), true),
            None => match self.variable(env_vars::CONFIG) {
                Some(path) => (Some(PathBuf::from(path)), true),
                None => (self.own_config(), false),
            },
        };
        let user = path.as_deref().map(|path| read(path, must_exist)).transpose()?.flatten();
        let system = read(&self.system_file, false)?;
        Ok(Files { user, system, user_path: path })
    }

    fn own_config(&self) -> Option<PathBuf> {
        let base = self
            .directory(env_vars::XDG_CONFIG_HOME)
            .or_else(|| self.home().map(|home| home.join(".config")))?;
        Some(base.join("belljar/config.toml"))
    }

    fn state_dir(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from(ROOT_STATE_DIR));
        }
        let base = self
            .directory(env_vars::XDG_STATE_HOME)
            .or_else(|| self.home().map(|home| home.join(".local/state")))?;
        Some(base.join("belljar"))
    }

    /// A variable that names a directory; relative ones are ignored, as the XDG rules have it.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

fn read(path: &Path, must_exist: bool) -> Result<Option<(PathBuf, ConfigFile)>, Failure> {
    match ConfigFile::read(path)? {
        Some(file) => Ok(Some((path.to_path_buf(), file))),
        None if must_exist => Err(Failure::new(
            Code::InvalidConfiguration,
            format!("there is no configuration file `{}`", path.display()),
        )
        .with_remedy("correct `--config` or BELLJAR_CONFIG")),
        None => Ok(None),
    }
}
