//! The read-only root, the writable places, and descriptors that nobody should have left open.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::report::Report;

const MARK: &str = "belljar-probe-was-here";

/// Creates, links, renames, truncates and re-modes outside the writable places; arguments are more such places.
pub(super) fn writes(arguments: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("writes");
    let places = [
        "/",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local/bin",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/etc",
        "/opt",
        "/var",
        "/var/lib",
        "/home",
        "/proc",
        "/proc/sys",
        "/sys",
        "/dev",
    ];
    for place in places.into_iter().map(OsStr::new).chain(arguments.iter().map(OsString::as_os_str))
    {
        let shown = place.display().to_string();
        let target = Path::new(place).join(MARK);
        report.attempt(format!("create({shown})"), fs::write(&target, MARK));
        report.attempt(format!("mkdir({shown})"), fs::create_dir(&target));
        report.attempt(format!("symlink({shown})"), symlink("/tmp", &target));
    }
    for file in ["/etc/passwd", "/usr/bin/env", "/bin/sh"] {
        let open = OpenOptions::new().append(true).open(file);
        // A program that runs somewhere on the host is busy before anyone looks whether it could be written.
        let busy = |error: &io::Error| error.raw_os_error() == Some(libc::ETXTBSY);
        if !open.as_ref().is_err_and(busy) {
            report.attempt(format!("append({file})"), open);
        }
        report.attempt(format!("unlink({file})"), fs::remove_file(file));
        let mode = fs::metadata(file)
            .and_then(|metadata| fs::set_permissions(file, metadata.permissions()));
        report.attempt(format!("chmod({file})"), mode);
        report.attempt(format!("rename({file})"), fs::rename(file, format!("{file}-moved")));
    }
    report.attempt("rename(/usr)", fs::rename("/usr", "/usr-moved"));
    report.attempt("unlink(/dev/null)", fs::remove_file("/dev/null"));
    // A path that leaves a writable place by a link is judged where it ends.
    report.attempt("create(through /tmp link)", through_link());

    for place in ["/workspace", "/tmp", "/output", "/home/user", "/dev/shm"] {
        report.twin(format!("write({place})"), round_trip(Path::new(place)));
    }
    report.twin("run(/workspace program)", run_own(Path::new("/workspace")));
    Ok(report)
}

/// Lists descriptors other than the three standard ones: each is a way around every path check.
pub(super) fn descriptors(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("descriptors");
    let listing =
        fs::read_dir("/proc/self/fd").map_err(|error| format!("/proc/self/fd: {error}"))?;
    let entries: Vec<_> = listing.flatten().map(|entry| entry.path()).collect();
    let mut inherited = Vec::new();
    for entry in entries {
        let number: i32 = entry.file_name().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(-1);
        // The descriptor of the listing itself is closed by now, so reading its link fails.
        if let (true, Ok(target)) = (number > 2, fs::read_link(&entry)) {
            inherited.push(format!("{number} → {}", target.display()));
        }
    }
    report.attempt("stat(/proc/self/fd/3)", fs::metadata("/proc/self/fd/3"));
    report.fact("inherited", inherited);
    report.twin("stat(/proc/self/fd/1)", fs::metadata("/proc/self/fd/1"));
    Ok(report)
}

fn through_link() -> io::Result<()> {
    let link = Path::new("/tmp/belljar-probe-link");
    let _ = fs::remove_file(link);
    symlink("/etc", link)?;
    fs::write(link.join(MARK), MARK)
}

fn round_trip(place: &Path) -> io::Result<()> {
    let file = place.join("belljar-probe-twin");
    fs::write(&file, MARK)?;
    let read = fs::read_to_string(&file)?;
    fs::rename(&file, place.join("belljar-probe-moved"))?;
    fs::remove_file(place.join("belljar-probe-moved"))?;
    if read == MARK { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
}

fn run_own(place: &Path) -> io::Result<()> {
    let program = place.join("belljar-probe-program");
    fs::write(&program, "#!/bin/sh\nexit 0\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let status = std::process::Command::new(&program).status()?;
    fs::remove_file(&program)?;
    if status.success() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
}
