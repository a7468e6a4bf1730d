//! What belongs to the host and is never shown.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::report::Report;

const PATHS: &[&str] = &[
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/podman/podman.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/user",
    "/run/secrets",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/lib/kubelet",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/belljar",
    "/etc/belljar",
    "/etc/kubernetes",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssl/private",
    "/etc/krb5.keytab",
    "/root/.ssh",
    "/root/.aws",
    "/root/.bash_history",
    "/root",
    "/boot",
    "/var/log",
    "/var/mail",
    "/var/spool/cron",
    "/var/backups",
    "/media",
    "/mnt",
    "/srv",
    "/lost+found",
];

/// Reads each place; one that is not there, not readable, or empty counts as absent. Arguments are places that the
/// test planted on the host.
pub(super) fn secrets(arguments: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("secrets");
    let paths = PATHS.iter().map(OsString::from).chain(arguments.iter().cloned());
    for path in paths {
        let path = Path::new(&path);
        report.attempt(format!("read({})", path.display()), contents(path));
    }
    for home in fs::read_dir("/home").into_iter().flatten().flatten() {
        if home.file_name() != "user" {
            report.attempt(format!("read({})", home.path().display()), contents(&home.path()));
        }
    }
    // Names only: the values are the caller's business.
    let environment: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    report.fact("environment", environment);

    report.twin("read(/etc/passwd)", contents(Path::new("/etc/passwd")));
    report.twin("read(/usr/bin)", contents(Path::new("/usr/bin")));
    report.twin("list(/home/user)", fs::read_dir("/home/user"));
    Ok(report)
}

fn contents(path: &Path) -> io::Result<()> {
    let absent = || io::Error::from_raw_os_error(libc::ENOENT);
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        fs::read_dir(path)?.next().map(drop).ok_or_else(absent)
    } else if kind.is_socket() {
        UnixStream::connect(path).map(drop)
    } else if File::open(path)?.read(&mut [0; 16])? == 0 {
        Err(absent())
    } else {
        Ok(())
    }
}
