//! Users, groups, capabilities, and programs that would grant them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::raw::{self, Ended, call, text};
use crate::report::Report;

/// What every process of the workload must show, and the ways up.
pub(super) fn privileges(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("privileges");
    state(&mut report);
    let root = raw::identities()[0] == 0;
    if !root {
        for (name, number) in [
            ("setuid", libc::SYS_setuid),
            ("setresuid", libc::SYS_setresuid),
            ("setgid", libc::SYS_setgid),
        ] {
            report.attempt(format!("{name}(0)"), become_root(number));
        }
        report.attempt("setgroups(none)", call(libc::SYS_setgroups, [0; 6]));
    }
    report.attempt("capset(everything)", gain_capabilities());
    let (drop_bound, system_admin) = (24, 21);
    report.attempt(
        "prctl(drop bounding)",
        call(libc::SYS_prctl, [drop_bound, system_admin, 0, 0, 0, 0]),
    );
    report.attempt("prctl(clear no_new_privs)", clear_no_new_privileges());

    plant(&mut report)?;
    report.twin("getuid", call(libc::SYS_getuid, [0; 6]));
    report.twin("prctl(get no_new_privs)", call(libc::SYS_prctl, [39, 0, 0, 0, 0, 0]));
    Ok(report)
}

/// Who this process is: ids, capabilities, filters. Also the payload of planted programs.
pub(super) fn identity(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("identity");
    state(&mut report);
    Ok(report)
}

/// Runs a program that the host planted with privileges and tells what it became.
pub(super) fn planted(arguments: &[OsString]) -> Result<Report, String> {
    let path = arguments.first().ok_or("argument 1 must be a program")?;
    let mut report = Report::new("planted");
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    report.fact("mode", metadata.mode());
    report.fact("owner", metadata.uid());
    compare_identity(&mut report, Path::new(path), "planted program");
    report.twin("stat(planted program)", fs::metadata(path));
    Ok(report)
}

/// A set-user-id copy of this program, and one with file capabilities.
fn plant(report: &mut Report) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let copy = Path::new("/tmp/belljar-probe-planted");
    let copied = fs::copy(&own, copy);
    report.twin("copy(own program)", copied);
    let _ = fs::set_permissions(copy, fs::Permissions::from_mode(0o6755));
    compare_identity(report, copy, "own set-user-id copy");

    // Version 2 of the attribute, with every capability effective and permitted.
    let mut everything = [0x0200_0001_u32, u32::MAX, 0, u32::MAX, 0];
    let place = raw::place(&mut everything);
    let given = call(
        libc::SYS_setxattr,
        [text(c"/tmp/belljar-probe-planted"), text(c"security.capability"), place, 20, 0, 0],
    );
    if raw::identities()[0] == 0 {
        // Root of a user namespace may set the attribute on its own files; it must gain nothing.
        report.fact("file_capabilities", format!("{given:?}"));
        compare_identity(report, copy, "copy with file capabilities");
    } else {
        report.attempt("setxattr(security.capability)", given);
    }
    let _ = fs::remove_file(copy);
    Ok(())
}

/// "Allowed" means that the program runs as somebody else or with more capabilities than this process.
fn compare_identity(report: &mut Report, program: &Path, what: &str) {
    let output = match Command::new(program).arg("identity").output() {
        Ok(output) => output,
        Err(error) => return report.attempt(format!("exec({what})"), Err::<(), _>(error)),
    };
    let found = Report::parse(&String::from_utf8_lossy(&output.stdout));
    let mut own = Report::new("identity");
    state(&mut own);
    let same = found.as_ref().is_ok_and(|found| {
        ["ids", "CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd", "NoNewPrivs", "Seccomp"]
            .iter()
            .all(|name| found.facts.get(*name) == own.facts.get(*name))
    });
    let ended = if same { Ended::Failed(libc::EPERM) } else { Ended::Returned(0) };
    report.attempt(format!("gain({what})"), ended);
    if !same {
        report.fact("gained", format!("{found:?}"));
    }
}

fn state(report: &mut Report) {
    report.fact("ids", raw::identities().to_vec());
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let wanted = [
        "CapEff",
        "CapPrm",
        "CapInh",
        "CapAmb",
        "CapBnd",
        "NoNewPrivs",
        "Seccomp",
        "Seccomp_filters",
        "Groups",
    ];
    for line in status.lines() {
        if let Some((name, value)) = line.split_once(':')
            && wanted.contains(&name)
        {
            report.fact(name, value.trim());
        }
    }
}

/// Succeeds only if an id is zero afterwards; where no id zero exists, the kernel's refusal is EINVAL.
fn become_root(number: libc::c_long) -> Ended {
    raw::in_child(|child| {
        let _ = child.call(number, [0; 6]);
        if raw::identities().contains(&0) { Ok(0) } else { Err(libc::EPERM) }
    })
}

fn gain_capabilities() -> Ended {
    raw::in_child(|child| {
        let mut header = [0x2008_0522_u32, 0];
        let mut sets = [u32::MAX; 6];
        let arguments = [raw::place(&mut header), raw::place(&mut sets), 0, 0, 0, 0];
        child.call(libc::SYS_capset, arguments)
    })
}

/// Succeeds only if the flag is gone afterwards; the kernel's refusal is EINVAL.
fn clear_no_new_privileges() -> Ended {
    let flag = raw::in_child(|child| {
        let _ = child.call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 0, 0, 0, 0, 0]);
        child.call(libc::SYS_prctl, [libc::PR_GET_NO_NEW_PRIVS as usize, 0, 0, 0, 0, 0])
    });
    if flag == Ended::Returned(1) { Ended::Failed(libc::EPERM) } else { flag }
}
