//! Settings: what holds unless a command says otherwise, and where each value comes from.
//!
//! Flags win over environment variables, those over the user's file, that over the system's file, that over the
//! default. Values stay text until they are used; whoever uses one and finds it bad names its origin.

mod file;
mod key;
mod sources;

pub(crate) use file::{DEFAULT_FILE, OwnProfile};
pub(crate) use key::Key;
pub(crate) use sources::Sources;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::{Invalid, shown};

use crate::failure::Failure;
use file::ConfigFile;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag(&'static str),
    Environment(&'static str),
    UserFile(PathBuf),
    SystemFile(PathBuf),
    Default,
}

/// One value with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: Key,
    pub(crate) value: Option<OsString>,
    pub(crate) origin: Origin,
}

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    settings: Vec<Setting>,
    /// The user's home, where there is one.
    pub(crate) home: Option<PathBuf>,
    /// The user's configuration file, whether it exists or not.
    pub(crate) user_file: Option<PathBuf>,
    /// Of the files, the user's first.
    files: Vec<Arc<ConfigFile>>,
}

// === impl Settings ===

impl Settings {
    /// Resolves every setting from `sources`; `flags` are those that were given.
    pub(crate) fn resolve(sources: &Sources, flags: Vec<(Key, OsString)>) -> Result<Self, Failure> {
        let files = sources.files()?;
        let settings = Key::ALL
            .iter()
            .map(|&key| {
                let flag = flags.iter().find(|(given, _)| *given == key);
                let flag = flag.map(|(_, value)| (value.clone(), Origin::Flag(key.flag())));
                let variable = || {
                    let name = key.variable()?;
                    Some((sources.variable(name)?, Origin::Environment(name)))
                };
                let user = || {
                    let (path, file) = files.user.as_ref()?;
                    Some((file.get(key)?.into(), Origin::UserFile(path.clone())))
                };
                let system = || {
                    let (path, file) = files.system.as_ref()?;
                    Some((file.get(key)?.into(), Origin::SystemFile(path.clone())))
                };
                let default = || Some((sources.default(key)?, Origin::Default));
                let found = flag.or_else(variable).or_else(user).or_else(system).or_else(default);
                let (value, origin) = match found {
                    Some((value, origin)) => (Some(value), origin),
                    None => (None, Origin::Default),
                };
                Setting { key, value, origin }
            })
            .collect();
        let own = [files.user, files.system].into_iter().flatten().map(|(_, file)| Arc::new(file));
        Ok(Self {
            settings,
            home: sources.home(),
            user_file: files.user_path,
            files: own.collect(),
        })
    }

    pub(crate) fn get(&self, key: Key) -> &Setting {
        self.settings
            .iter()
            .find(|setting| setting.key == key)
            .expect("resolve makes one setting for each key")
    }

    /// Network rules of that name in a configuration file.
    pub(crate) fn profile(&self, name: &str) -> Option<&OwnProfile> {
        self.files.iter().find_map(|file| file.profile(name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    pub(crate) fn state_dir(&self) -> Result<PathBuf, Failure> {
        let setting = self.get(Key::StateDir);
        let Some(value) = &setting.value else {
            return Err(Failure::new(
                Code::InvalidConfiguration,
                "there is no place for Belljar's state",
            )
            .with_remedy("set HOME or BELLJAR_STATE_DIR, or give `--state-dir`"));
        };
        let path = Path::new(value);
        std::path::absolute(path).map_err(|error| {
            Failure::new(
                Code::InvalidConfiguration,
                format!("state directory `{}` cannot be used", shown(&path.to_string_lossy())),
            )
            .caused_by(&error)
            .with_remedy("name a directory with BELLJAR_STATE_DIR or `--state-dir`")
        })
    }
}

// === impl Setting ===

impl Setting {
    /// Whether somebody chose this value.
    pub(crate) fn is_chosen(&self) -> bool {
        self.origin != Origin::Default
    }

    /// The value made into what it means by `parse`. A bad value from a file or variable names that place.
    pub(crate) fn parse<T>(
        &self,
        parse: impl FnOnce(&OsStr) -> Result<T, Invalid>,
    ) -> Result<Option<T>, Failure> {
        let Some(value) = &self.value else { return Ok(None) };
        parse(value).map(Some).map_err(|invalid| self.blame(invalid))
    }

    /// As [`Setting::parse`], for values that are text.
    pub(crate) fn parse_text<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Result<Option<T>, Failure> {
        self.parse(|value| match value.to_str() {
            Some(text) => parse(text),
            None => Err(Invalid::new(
                Code::InvalidArgument,
                format!("{} `{}` is not text", self.key.name(), shown(&value.to_string_lossy())),
                "use UTF-8",
            )),
        })
    }

    fn blame(&self, invalid: Invalid) -> Failure {
        match self.origin {
            Origin::Flag(_) | Origin::Default => Failure::from(invalid),
            _ => Failure::new(
                Code::InvalidConfiguration,
                format!("`{}` in {} cannot be used", self.key.name(), self.origin),
            )
            .caused_by(&invalid)
            .with_remedy(invalid.remedy),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "`{flag}`"),
            Self::Environment(name) => write!(f, "${name}"),
            Self::UserFile(path) | Self::SystemFile(path) => write!(f, "`{}`", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Origin {
    /// The kind of place, for machines.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "flag",
            Self::Environment(_) => "environment",
            Self::UserFile(_) => "user-file",
            Self::SystemFile(_) => "system-file",
            Self::Default => "default",
        }
    }
}

#[cfg(test)]
mod tests;
