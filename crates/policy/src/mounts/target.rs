//! Where inside a sandbox a mount may go.
//!
//! Refused: the root itself, the kernel's file systems, our own socket directory, and the directories whose content
//! Belljar makes (`/etc` as a whole, `/run` as a whole, the program directories). Places below `/etc` or `/usr` are
//! fine: a mount at `/etc/app` or `/usr/local/share/data` hides nothing that the wall is made of.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use belljar_codes::Code;

use crate::Invalid;
use crate::invalid::shown;

/// PATH_MAX with its NUL.
const MAX_LENGTH: usize = 4095;

/// Neither these nor anything below.
const CLOSED_TREES: &[(&str, &str)] = &[
    ("/proc", "is the kernel's own"),
    ("/sys", "is the kernel's own"),
    ("/dev", "holds the sandbox's devices"),
    ("/run/belljar", "is where Belljar itself lives"),
];

/// Not these; places below them are fine.
const CLOSED_PLACES: &[(&str, &str)] = &[
    ("/", "is the root itself"),
    ("/etc", "is made by Belljar"),
    ("/run", "is made by Belljar"),
    ("/usr", "holds the sandbox's programs"),
    ("/bin", "holds the sandbox's programs"),
    ("/sbin", "holds the sandbox's programs"),
    ("/lib", "holds the sandbox's libraries"),
    ("/lib32", "holds the sandbox's libraries"),
    ("/lib64", "holds the sandbox's libraries"),
    ("/libx32", "holds the sandbox's libraries"),
    ("/usr/bin", "holds the sandbox's programs"),
    ("/usr/sbin", "holds the sandbox's programs"),
    ("/usr/lib", "holds the sandbox's libraries"),
];

/// `target` in its normal form: absolute, no `.`, no doubled or trailing slash.
///
/// # Errors
/// Where it is not absolute, contains `..`, a colon or NUL, or is a place that mounts may not take.
pub fn check_target(target: &Path) -> Result<PathBuf, Invalid> {
    let refuse = |reason: &str| {
        Err(Invalid::new(
            Code::MountTargetInvalid,
            format!("mount target `{}` {reason}", shown(&target.to_string_lossy())),
            "use an absolute path such as `/data`",
        ))
    };
    let normal = match normal(target) {
        Ok(normal) => normal,
        Err(reason) => return refuse(reason),
    };
    if normal.as_os_str().as_bytes().contains(&b':') {
        return refuse("contains `:` (the options after a target are `ro` and `rw`)");
    }
    let place = CLOSED_PLACES.iter().find(|(place, _)| normal.as_os_str() == OsStr::new(place));
    let tree = CLOSED_TREES.iter().find(|(tree, _)| normal.starts_with(tree));
    match tree.or(place) {
        Some((_, reason)) => refuse(reason),
        None => Ok(normal),
    }
}

/// An absolute path with nothing but names, or what is wrong with it.
pub(super) fn normal(path: &Path) -> Result<PathBuf, &'static str> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err("is not absolute");
    }
    if bytes.len() > MAX_LENGTH {
        return Err("is too long");
    }
    if bytes.contains(&0) {
        return Err("contains a NUL byte");
    }
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => return Err("contains `..`"),
            Component::Normal(part) => normal.push(part),
        }
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let found = check_target(Path::new(text)).map_err(|e| e.message);
            let expected = expected
                .map(PathBuf::from)
                .map_err(|reason| format!("mount target `{}` {reason}", shown(text)));
            assert_eq!(found, expected);
        };
        check("/data", Ok("/data"));
        check("//data///x/./y/", Ok("/data/x/y"));
        check("/workspace/cache", Ok("/workspace/cache"));
        check("/etc/app", Ok("/etc/app"));
        check("/usr/local/share", Ok("/usr/local/share"));
        check("/process", Ok("/process"));
        check("/developer", Ok("/developer"));
        check("", Err("is not absolute"));
        check("data", Err("is not absolute"));
        check("/", Err("is the root itself"));
        check("//.//", Err("is the root itself"));
        check("/a/../b", Err("contains `..`"));
        check("/..", Err("contains `..`"));
        check("/proc", Err("is the kernel's own"));
        check("/proc/self/fd/3", Err("is the kernel's own"));
        check("//proc/./sys", Err("is the kernel's own"));
        check("/sys/fs/cgroup", Err("is the kernel's own"));
        check("/dev/shm", Err("holds the sandbox's devices"));
        check("/run", Err("is made by Belljar"));
        check("/run/belljar/x", Err("is where Belljar itself lives"));
        check("/etc/", Err("is made by Belljar"));
        check("/usr/bin", Err("holds the sandbox's programs"));
        check("/a\0b", Err("contains a NUL byte"));
        let long = format!("/{}", "x".repeat(4096));
        check(&long, Err("is too long"));
    }

    proptest! {
        #[test]
        fn normal_form_is_stable(text in "/[a-z./]{0,30}") {
            if let Ok(normal) = check_target(Path::new(&text)) {
                prop_assert_eq!(check_target(&normal).unwrap(), normal);
            }
        }
    }
}
