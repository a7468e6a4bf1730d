//! What can be kept, and where it can be put.

use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_policy::{MountSpec, NetworkMode};

use super::manifest::Part;
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

/// The parts that are put back. What the new sandbox shows of the host, or of a policy's directories, stays as it is.
pub(super) fn put_back(parts: Vec<Part>, mounts: &[MountSpec]) -> Result<Vec<Part>> {
    let targets = || mounts.iter().map(|mount| mount.target.as_path());
    let mut kept = Vec::new();
    for part in parts {
        if targets().any(|target| part.path.starts_with(target)) {
            continue;
        }
        if let Some(inside) = targets().find(|target| target.starts_with(&part.path)) {
            let (inside, path) = (inside.display(), part.path.display());
            return Err(Error::new(
                Code::ConflictingOptions,
                format!("restoring `{path}` would write over the directory at `{inside}`"),
            )
            .with_remedy("leave out that mount, or name a policy without it"));
        }
        kept.push(part);
    }
    Ok(kept)
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
    // What a policy says about hosts comes with it.
    let by_policy = request.policy.is_some() && !request.network_asked;
    if request.network.mode == NetworkMode::Allowlist
        && !by_policy
        && request.network.allow.is_empty()
        && !request.network_callback.connections
    {
        return refuse(
            "a snapshot does not keep which hosts its sandbox was allowed to reach, or denied",
            "say again what the new sandbox may reach",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use belljar_policy::Access;

    use super::*;

    #[test]
    fn directories_of_the_host_stay_as_they_are() {
        let part =
            |path: &str| Part { path: path.into(), digest: String::new(), bytes: 0, contents: 0 };
        let kept = |targets: &[&str]| {
            let mount = |target: &&str| MountSpec {
                source: "/srv".into(),
                target: target.into(),
                access: Access::ReadWrite,
            };
            let mounts: Vec<_> = targets.iter().map(mount).collect();
            let parts = put_back(vec![part("/workspace"), part("/output")], &mounts)?;
            Ok::<_, Error>(parts.into_iter().map(|part| part.path).collect::<Vec<_>>())
        };
        let both = [PathBuf::from("/workspace"), "/output".into()];
        assert_eq!(kept(&[]).unwrap(), both);
        assert_eq!(kept(&["/data", "/out"]).unwrap(), both);
        assert_eq!(kept(&["/output"]).unwrap(), both[..1]);
        assert_eq!(kept(&["/workspace/data"]).unwrap_err().code(), Code::ConflictingOptions);
    }
}
