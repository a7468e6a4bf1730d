//! Which backends exist: the one place that knows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_backend::Backend;
use belljar_codes::Code;

use crate::failure::Failure;

/// The path of this program, which is also the launcher and the server.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(Code::HostUnsupported, "the path of this program cannot be found")
            .caused_by(&error)
            .with_remedy("mount /proc")
    })
}

/// All backends, in the order in which `auto` prefers them. `auto` never picks `local`.
pub(crate) fn all(state_dir: &Path) -> Result<Vec<Arc<dyn Backend>>, Failure> {
    let native = belljar_native::Native::new(belljar_native::Options {
        state_dir: state_dir.to_path_buf(),
        // This very program, also after its file was replaced: both ends speak the same version.
        launcher: PathBuf::from("/proc/self/exe"),
    });
    let local = belljar_local::Local::new(state_dir.to_path_buf());
    Ok(vec![Arc::new(native), Arc::new(local)])
}
