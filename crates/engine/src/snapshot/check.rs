//! What can be kept, and where it can be put.

use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_policy::NetworkMode;

use crate::plan::check_path;
use crate::{CreateRequest, Error, Result};

/// Directories that one snapshot may have.
const MOST_PATHS: usize = 16;

pub(super) fn check_paths(paths: &[PathBuf]) -> Result<()> {
    if paths.len() > MOST_PATHS {
        let count = paths.len();
        return Err(Error::new(
            Code::InvalidArgument,
            format!("{count} directories are more than {MOST_PATHS}"),
        ));
    }
    for (index, path) in paths.iter().enumerate() {
        check_path(path)?;
        let shown = || belljar_policy::shown(&path.to_string_lossy());
        // A path that is written down is text, and means the same wherever a command starts.
        if !path.is_absolute() || path.to_str().is_none() || path == Path::new("/") {
            return Err(Error::new(Code::InvalidArgument, format!("`{}` cannot be kept", shown()))
                .with_remedy(
                    "name directories of the sandbox from its root on, and not the root itself",
                ));
        }
        let others = paths.iter().enumerate().filter(|(other, _)| *other != index);
        if others.into_iter().any(|(_, other)| path.starts_with(other)) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("`{}` would be kept twice", shown()),
            ));
        }
    }
    Ok(())
}

/// Whether a snapshot can be restored into a sandbox like that.
pub(super) fn check_request(request: &CreateRequest) -> Result<()> {
    let refuse = |what, remedy: &str| {
        Err(Error::new(Code::ConflictingOptions, what).with_remedy(remedy.to_owned()))
    };
    if request.workspace.is_some() {
        return refuse(
            "restoring would write a snapshot over the files of a workspace",
            "leave out the workspace, and copy what you need out of the sandbox",
        );
    }
    if request.idempotency_key.is_some() {
        return refuse(
            "restoring takes no idempotency key",
            "give the sandbox a name: a second one of that name is refused",
        );
    }
    if request.network.mode == NetworkMode::Allowlist
        && request.network.allow.is_empty()
        && !request.network_callback.connections
    {
        return refuse(
            "a snapshot does not keep the hosts that its sandbox was allowed to reach",
            "say again what the new sandbox may reach",
        );
    }
    Ok(())
}
