//! Which backends exist: the one place that knows.

use std::path::Path;
use std::sync::Arc;

use belljar_backend::Backend;
use belljar_codes::Code;

use crate::failure::Failure;

/// All backends, in the order in which `auto` prefers them. `auto` never picks `local`.
pub(crate) fn all(state_dir: &Path) -> Result<Vec<Arc<dyn Backend>>, Failure> {
    let launcher = std::env::current_exe().map_err(|error| {
        Failure::new(Code::HostUnsupported, "the path of this program cannot be found")
            .caused_by(&error)
            .with_remedy("mount /proc")
    })?;
    let native = belljar_native::Native::new(belljar_native::Options {
        state_dir: state_dir.to_path_buf(),
        launcher,
    });
    let local = belljar_local::Local::new(state_dir.to_path_buf());
    Ok(vec![Arc::new(native), Arc::new(local)])
}
