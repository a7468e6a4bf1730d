//! Host directories that no sandbox gets to see.
//!
//! A mount is refused when its source is one of these, lies below one, or contains one: showing all of a home
//! directory shows the keys in it. The answer concerns names only, so the caller passes a path that is resolved
//! already (no symbolic link left in it).

use std::path::{Path, PathBuf};

/// Trees of the host. Reasons are read by people after "because it".
const HOST_TREES: &[(&str, &str)] = &[
    ("/etc", "holds the host's accounts, keys and configuration"),
    ("/boot", "holds the host's kernel"),
    ("/proc", "is the host kernel's view of all its processes"),
    ("/sys", "is the host kernel's view of its devices"),
    ("/dev", "holds the host's devices"),
    ("/run", "holds the sockets of the host's services"),
    ("/var/run", "holds the sockets of the host's services"),
    ("/var/lib/docker", "holds the state of another container engine"),
    ("/var/lib/containerd", "holds the state of another container engine"),
    ("/var/lib/containers", "holds the state of another container engine"),
    ("/var/lib/kubelet", "holds the credentials of pods"),
    ("/var/spool/cron", "holds commands that the host runs by itself"),
];

/// Below every home directory.
const HOME_TREES: &[(&str, &str)] = &[
    (".ssh", "holds SSH keys"),
    (".gnupg", "holds private keys"),
    (".aws", "holds cloud credentials"),
    (".azure", "holds cloud credentials"),
    (".config/gcloud", "holds cloud credentials"),
    (".kube", "holds cluster credentials"),
    (".docker", "holds registry credentials and sockets"),
    (".config/containers", "holds registry credentials"),
    (".config/gh", "holds forge credentials"),
    (".config/belljar", "holds Belljar's own configuration"),
    (".config/systemd", "holds commands that the host runs by itself"),
    (".password-store", "holds passwords"),
    (".local/share/keyrings", "holds passwords"),
    (".mozilla", "holds a browser's passwords and sessions"),
    (".config/google-chrome", "holds a browser's passwords and sessions"),
    (".config/chromium", "holds a browser's passwords and sessions"),
];

const ROOT_HOME: &str = "/root";
const HOMES: &str = "/home";
const STATE_REASON: &str = "holds Belljar's own state";

/// Why `path` may not be mounted, to be read after "because it"; `None` where it may.
///
/// `path` is absolute and resolved. `home` is the caller's home directory. `state` lists directories of Belljar
/// itself.
#[must_use]
pub fn protected_source(path: &Path, home: Option<&Path>, state: &[&Path]) -> Option<&'static str> {
    if !path.is_absolute() {
        return Some("is not an absolute path");
    }
    if path == Path::new("/") {
        return Some("is the whole host");
    }
    let host = HOST_TREES.iter().find(|(tree, _)| overlaps(path, Path::new(tree)));
    if let Some((_, reason)) = host {
        return Some(reason);
    }
    if state.iter().any(|directory| overlaps(path, directory)) {
        return Some(STATE_REASON);
    }
    if path.starts_with(ROOT_HOME) && home != Some(Path::new(ROOT_HOME)) {
        return Some("belongs to the host's root user");
    }
    homes_near(path, home).iter().find_map(|home| {
        HOME_TREES.iter().find(|(tree, _)| overlaps(path, &home.join(tree))).map(
            |(tree, reason)| {
                // Somebody who asked for a whole home did not ask for its keys by name.
                if path.starts_with(home.join(tree)) {
                    *reason
                } else {
                    "contains private keys and credentials"
                }
            },
        )
    })
}

/// Whether one of the two contains the other, or they are the same.
fn overlaps(path: &Path, protected: &Path) -> bool {
    path.starts_with(protected) || protected.starts_with(path)
}

/// Home directories that `path` could reach into: the caller's, root's, and whoever's `path` is in.
fn homes_near(path: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = home.into_iter().map(Path::to_path_buf).collect();
    homes.push(PathBuf::from(ROOT_HOME));
    match path.strip_prefix(HOMES).map(|rest| rest.components().next()) {
        Ok(Some(owner)) => homes.push(Path::new(HOMES).join(owner)),
        // All homes at once: any owner stands for them.
        Ok(None) => homes.push(Path::new(HOMES).join("anybody")),
        Err(_) => {}
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/x";

    fn check(path: &str, home: &str, refused: bool) {
        let found = protected_source(
            Path::new(path),
            Some(Path::new(home)),
            &[Path::new("/home/x/.local/state/belljar"), Path::new("/var/lib/belljar")],
        );
        assert_eq!(found.is_some(), refused, "{path} with home {home}: {found:?}");
    }

    #[test]
    fn host_trees_are_refused_with_all_below_and_above() {
        for path in [
            "/",
            "/etc",
            "/etc/ssl",
            "/boot",
            "/boot/grub",
            "/proc",
            "/proc/1",
            "/sys/fs/cgroup",
            "/dev",
            "/dev/shm",
            "/run",
            "/run/docker.sock",
            "/run/user/1000",
            "/var/run",
            "/var",
            "/var/lib",
            "/var/lib/docker",
            "/var/lib/docker/volumes",
            "/var/spool",
            "/var/lib/belljar",
            "relative",
        ] {
            check(path, HOME, true);
        }
    }

    #[test]
    fn homes_are_refused_but_projects_in_them_are_not() {
        for path in [
            "/home",
            "/home/x",
            "/home/x/.ssh",
            "/home/x/.ssh/keys",
            "/home/x/.config",
            "/home/x/.kube",
            "/home/x/.config/gcloud",
            "/home/x/.local",
            "/home/x/.local/state/belljar/sandboxes",
            "/home/other",
            "/home/other/.aws",
            "/root",
            "/root/project",
        ] {
            check(path, HOME, true);
        }
        for path in ["/home/x/project", "/home/x/.cache", "/home/x/.sshkeys", "/home/other/project"]
        {
            check(path, HOME, false);
        }
    }

    #[test]
    fn root_may_show_its_own_projects() {
        check("/root", "/root", true);
        check("/root/.ssh", "/root", true);
        check("/root/project", "/root", false);
    }

    #[test]
    fn a_home_elsewhere_counts_too() {
        check("/data/people", "/data/people/me", true);
        check("/data/people/me", "/data/people/me", true);
        check("/data/people/me/.gnupg", "/data/people/me", true);
        check("/data/people/me/work", "/data/people/me", false);
    }

    #[test]
    fn ordinary_places_are_fine() {
        for path in [
            "/srv",
            "/srv/data",
            "/opt/tools",
            "/tmp/x",
            "/mnt",
            "/etcetera",
            "/var/tmp/x",
            "/work",
        ] {
            check(path, HOME, false);
        }
        assert_eq!(protected_source(Path::new("/srv"), None, &[]), None);
    }

    #[test]
    fn the_reason_fits_the_path() {
        let reason = |path| protected_source(Path::new(path), Some(Path::new(HOME)), &[]);
        assert_eq!(reason("/home/x/.ssh"), Some("holds SSH keys"));
        assert_eq!(reason("/home/x/.ssh/old"), Some("holds SSH keys"));
        assert_eq!(reason("/home/x"), Some("contains private keys and credentials"));
        assert_eq!(reason("/etc/ssh"), Some("holds the host's accounts, keys and configuration"));
    }
}
