//! Paths below mounts that a sandbox does not get to see: found once, beneath the descriptor of the mount.
//!
//! No link is followed on the way, so what is masked is what the caller named. A mask that would hide nothing is
//! refused: whoever names a path that is not there believes that something is hidden which is not.

use std::path::{Path, PathBuf};

use belljar_backend::{Mask, MaskKind, ResolvedMount};
use belljar_codes::Code;
use belljar_policy::mounts::{MAX_MASKS, check_mask};
use belljar_policy::shown;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use crate::{Error, Result};

/// Finds what `masks` hide below `mounts`.
pub(crate) fn resolve(masks: &[PathBuf], mounts: &[ResolvedMount]) -> Result<Vec<Mask>> {
    if masks.len() > MAX_MASKS {
        let count = masks.len();
        let message = format!("{count} masks are more than {MAX_MASKS}");
        return Err(Error::new(Code::InvalidArgument, message)
            .with_remedy("mask a directory that contains them"));
    }
    let mut resolved: Vec<Mask> = Vec::with_capacity(masks.len());
    for mask in masks {
        let target = check_mask(mask)?;
        let kind = find(&target, mounts)?;
        let overlaps =
            |other: &Mask| target.starts_with(&other.target) || other.target.starts_with(&target);
        if let Some(other) = resolved.iter().find(|other| overlaps(other)) {
            let (mask, other) = (show(&target), show(&other.target));
            let message = format!("masks `{other}` and `{mask}` hide the same");
            return Err(Error::new(Code::ConflictingOptions, message)
                .with_remedy("leave out the one that is below the other"));
        }
        resolved.push(Mask { target, kind });
    }
    Ok(resolved)
}

fn find(target: &Path, mounts: &[ResolvedMount]) -> Result<MaskKind> {
    let shown = show(target);
    if let Some(hidden) = mounts.iter().find(|mount| mount.target.starts_with(target)) {
        let hidden = show(&hidden.target);
        let message = format!("mask `{shown}` hides the mount at `{hidden}`");
        return Err(Error::new(Code::ConflictingOptions, message)
            .with_remedy("mask a path below the mount, or leave out the mount"));
    }
    let around = mounts.iter().filter(|mount| target.starts_with(&mount.target));
    let Some(mount) = around.max_by_key(|mount| mount.target.components().count()) else {
        let message = format!("mask `{shown}` lies below no mount");
        return Err(Error::new(Code::MountTargetInvalid, message)
            .with_remedy("name a path inside the sandbox below a mount or the workspace"));
    };
    if mount.overlay {
        let message = format!("mask `{shown}` lies in a workspace of the mode `overlay`");
        return Err(Error::new(Code::NotEnforceable, message).with_remedy(
            "use the workspace mode `bind`: the layer of an overlay is replaced while the sandbox runs, and a mask with it",
        ));
    }
    let unusable = |reason: &str, errno: Errno| {
        let source = mount.source.path.display();
        let message = format!("mask `{shown}` {reason} in `{source}`");
        Error::new(Code::MountSourceUnusable, message)
            .with_remedy(
                "mask a file or directory that is there, by its own name and not by a link",
            )
            .with_source(std::io::Error::from(errno))
    };
    let below = target.strip_prefix(&mount.target).unwrap_or(target);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&mount.source.descriptor, below, flags, Mode::empty(), resolve);
    let found = found.map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => unusable("hides nothing: there is no such path", errno),
        Errno::LOOP => unusable("leads through a symbolic link", errno),
        Errno::ACCESS => unusable("cannot be reached", errno),
        _ => unusable("cannot be found", errno),
    })?;
    let stat = fstat(&found).map_err(|errno| unusable("cannot be looked at", errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(MaskKind::Directory),
        // The last component may be opened although it is a link.
        FileType::Symlink => Err(unusable("is a symbolic link", Errno::LOOP)),
        _ => Ok(MaskKind::File),
    }
}

fn show(path: &Path) -> String {
    shown(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use belljar_backend::MountSource;
    use belljar_policy::Access;

    use super::*;
    use crate::mounts::open_directory;

    fn mount(source: &Path, target: &str, overlay: bool) -> ResolvedMount {
        let opened = open_directory(source, Access::ReadOnly).unwrap();
        let source = MountSource { path: opened.path, descriptor: opened.descriptor };
        ResolvedMount { source, target: target.into(), access: Access::ReadOnly, overlay }
    }

    #[test]
    fn masks_are_found_below_their_mounts() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for path in ["data/secrets/deep", "more", "outside"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::fs::write(root.join("data/.env"), "KEY=1").unwrap();
        std::fs::write(root.join("outside/file"), "").unwrap();
        for (link, to) in [("up", "../outside"), ("link", ".env"), ("in", "secrets")] {
            std::os::unix::fs::symlink(to, root.join("data").join(link)).unwrap();
        }
        let mounts = [
            mount(&root.join("data"), "/data", false),
            mount(&root.join("more"), "/data/secrets/deep", false),
            mount(&root.join("data"), "/workspace", true),
        ];
        let check = |masks: &[&str], expected: std::result::Result<Vec<MaskKind>, Code>| {
            let masks: Vec<PathBuf> = masks.iter().map(PathBuf::from).collect();
            let found = resolve(&masks, &mounts).map_err(|error| error.code());
            let found =
                found.map(|found| found.into_iter().map(|mask| mask.kind).collect::<Vec<_>>());
            assert_eq!(found, expected, "{masks:?}");
        };
        check(&[], Ok(vec![]));
        check(&["/data/.env"], Ok(vec![MaskKind::File]));
        check(&["/data/.env", "/data//in/."], Err(Code::MountSourceUnusable));
        check(&["/data/.env", "/data/.env/"], Err(Code::ConflictingOptions));
        check(&["/data/secrets"], Err(Code::ConflictingOptions));
        check(&["/data"], Err(Code::ConflictingOptions));
        check(&["/"], Err(Code::ConflictingOptions));
        check(&["/data/missing"], Err(Code::MountSourceUnusable));
        check(&["/data/.env/x"], Err(Code::MountSourceUnusable));
        check(&["/data/up/file"], Err(Code::MountSourceUnusable));
        check(&["/data/link"], Err(Code::MountSourceUnusable));
        check(&["/data/../outside"], Err(Code::MountTargetInvalid));
        check(&["/etc/passwd"], Err(Code::MountTargetInvalid));
        check(&["/workspace/.env"], Err(Code::NotEnforceable));
        check(&["/data/x"; MAX_MASKS + 1], Err(Code::InvalidArgument));
        let only = [mount(&root.join("data"), "/data", false)];
        let found = resolve(&["/data/secrets/deep".into()], &only).unwrap();
        let expected = Mask { target: "/data/secrets/deep".into(), kind: MaskKind::Directory };
        assert_eq!(found, [expected]);
    }
}
