//! Which backends exist: the one place that knows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_backend::Backend;
use belljar_codes::Code;
use belljar_docker::Docker;
use belljar_machinery::{Machine, Options};
use belljar_native::Native;
use belljar_oci::Oci;

use crate::env_vars::RUNTIME_PATH;
use crate::failure::Failure;
use crate::settings::{Key, Settings};

/// The path of this program, which is also the launcher and the server.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(Code::HostUnsupported, "the path of this program cannot be found")
            .caused_by(&error)
            .with_remedy("mount /proc")
    })
}

/// All backends; among equals `auto` prefers the earlier. It never picks `local`.
pub(crate) fn all(state_dir: &Path, settings: &Settings) -> Result<Vec<Arc<dyn Backend>>, Failure> {
    // One launcher for all backends that are made of what this host has.
    let machine = Arc::new(Machine::new(Options {
        state_dir: state_dir.to_path_buf(),
        // This very program, also after its file was replaced: both ends speak the same version.
        launcher: PathBuf::from("/proc/self/exe"),
    }));
    let native = Native::on(Arc::clone(&machine));
    let options = belljar_oci::Options { directories: runtime_directories(), only: None };
    let oci = Oci::new(Arc::clone(&machine), options);
    let docker = Docker::new(docker_options(settings), machine);
    let local = belljar_local::Local::new(state_dir.to_path_buf());
    Ok(vec![Arc::new(native), Arc::new(oci), Arc::new(docker), Arc::new(local)])
}

/// Where runtimes are looked for: what the operator names, then where programs are, administrators' too.
pub(crate) fn runtime_directories() -> Vec<PathBuf> {
    let listed = |name: &str| -> Vec<PathBuf> {
        let paths = std::env::var_os(name).unwrap_or_default();
        std::env::split_paths(&paths).filter(|path| path.is_absolute()).collect()
    };
    let mut directories = listed(RUNTIME_PATH);
    directories.extend(listed("PATH"));
    directories
        .extend(["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"].map(PathBuf::from));
    directories
}

fn docker_options(settings: &Settings) -> belljar_docker::Options {
    let text = |key| {
        let value = settings.get(key).value.as_ref()?;
        Some(value.to_string_lossy().into_owned())
    };
    let is_wanted = |key| text(key).is_some_and(|value| !["0", "false"].contains(&value.as_str()));
    belljar_docker::Options {
        host: text(Key::DockerHost),
        runtime: text(Key::DockerRuntime),
        pull: is_wanted(Key::DockerPull),
        require_hardened_image: is_wanted(Key::DockerHardened),
    }
}
