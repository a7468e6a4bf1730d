//! The runtimes that are known, and where they are.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use belljar_backend::{Error, IsolationClass, Offer, Result, RuntimeChoice};
use belljar_codes::Code;
use belljar_machinery::{Platform, Runtime, RuntimeKind};

use crate::{Options, unavailable};

/// The runtimes by name, the strongest first and among equals the usual one.
pub const NAMES: [&str; 4] = ["kata", "runsc", "runc", "crun"];

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Runsc,
    Runc,
    Crun,
    /// Known so that whoever asks for it is told what to do instead.
    Kata,
}

impl Known {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "runsc" => Some(Self::Runsc),
            "runc" => Some(Self::Runc),
            "crun" => Some(Self::Crun),
            "kata" => Some(Self::Kata),
            _ => None,
        }
    }

    pub(crate) fn class(self) -> IsolationClass {
        match self {
            Self::Runsc => IsolationClass::Kernel,
            Self::Runc | Self::Crun => IsolationClass::Namespace,
            Self::Kata => IsolationClass::Vm,
        }
    }

    /// What it is called on disk.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Runsc => "runsc",
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Kata => "kata-runtime",
        }
    }

    /// Whether there is a way to run it at all.
    fn can_be_run(self) -> bool {
        self != Self::Kata
    }
}

/// The first program of that name. Every creation looks, in every directory: links are followed by name only for the one
/// that is there.
pub(crate) fn find(options: &Options, known: Known) -> Option<PathBuf> {
    let candidates = options.directories.iter().map(|directory| directory.join(known.program()));
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    candidates.filter(is_program).find_map(|path| fs::canonicalize(path).ok())
}

/// The names that this backend has to do with.
pub(crate) fn names(options: &Options) -> impl Iterator<Item = &'static str> {
    let only = options.only.clone();
    NAMES.into_iter().filter(move |name| only.as_deref().is_none_or(|only| only == *name))
}

pub(crate) fn offer(options: &Options) -> Offer {
    let mut offer = Offer::default();
    for name in names(options) {
        offer.runtimes.push(name.to_owned());
        let Some(known) = Known::parse(name) else { continue };
        let Some(path) = find(options, known) else { continue };
        if known.can_be_run() {
            offer.strongest = offer.strongest.max(known.class());
        }
        // Another program at the same place is another runtime.
        let stamp = fs::metadata(&path).map(|file| (file.size(), file.mtime(), file.mtime_nsec()));
        offer.fingerprint += &format!("{} {:?}\n", path.display(), stamp.ok());
    }
    offer
}

/// The runtime that was chosen, ready to be run.
pub(crate) fn open(options: &Options, choice: &RuntimeChoice) -> Result<Runtime> {
    let kind = match Known::parse(&choice.name) {
        Some(Known::Runsc) => RuntimeKind::Runsc(platform(choice.platform.as_deref())?),
        Some(Known::Runc) => RuntimeKind::Runc,
        Some(Known::Crun) => RuntimeKind::Crun,
        Some(Known::Kata) => return Err(no_kata()),
        None => {
            let names: Vec<_> = names(options).collect();
            return Err(unavailable(
                format!("there is no runtime `{}`", choice.name.escape_default()),
                Some(format!("use one of: {}", names.join(", "))),
            ));
        }
    };
    let missing = || missing(kind.name());
    let known = Known::parse(kind.name()).ok_or_else(missing)?;
    let path = find(options, known).ok_or_else(missing)?;
    Runtime::open(kind, &path).map_err(|error| missing().with_source(error))
}

/// Without a word, the one that the runtime itself prefers.
fn platform(word: Option<&str>) -> Result<Platform> {
    match word {
        None => Ok(Platform::Systrap),
        Some(word) => trial_platforms()
            .into_iter()
            .find(|platform| platform.as_str() == word)
            .ok_or_else(|| Error::new(Code::Internal, format!("no platform `{word}`"))),
    }
}

/// gVisor's platforms, the fastest first.
pub(crate) fn trial_platforms() -> [Platform; 3] {
    [Platform::Systrap, Platform::Kvm, Platform::Ptrace]
}

pub(crate) fn missing(name: &str) -> Error {
    unavailable(
        format!("the runtime `{name}` was not found"),
        Some(format!(
            "install `{name}`, or name the directory that has it in BELLJAR_RUNTIME_PATH of the server"
        )),
    )
}

pub(crate) fn no_kata() -> Error {
    unavailable(
        "Kata Containers since version 2 runs only below a container engine".to_owned(),
        Some("use `--backend docker --runtime kata` with an engine that has it".to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_program_is_found_and_named_without_links() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let directories = ["none", "text", "link", "last"].map(|name| root.join(name));
        for directory in &directories[1..] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(directories[1].join("runc"), "not a program").unwrap();
        let program = root.join("real");
        fs::copy("/proc/self/exe", &program).unwrap();
        std::os::unix::fs::symlink(&program, directories[2].join("runc")).unwrap();
        fs::copy("/proc/self/exe", directories[3].join("runc")).unwrap();
        let options = Options { directories: directories.into(), only: None };
        assert_eq!(find(&options, Known::Runc), Some(program));
        assert_eq!(find(&options, Known::Crun), None);
    }
}
