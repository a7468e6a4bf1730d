//! Changing what is mounted where.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::fs::{MetadataExt, chroot};
use std::path::Path;
use std::{env, fs, io};

use super::c_text;
use crate::raw::{self, Ended, call, text};
use crate::report::Report;

/// Not in every libc: clears attributes of a mount (`struct mount_attr`).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const MOUNT_ATTR_RDONLY: u64 = 1;
const OPEN_TREE_CLONE: usize = 1;
const AT_RECURSIVE: usize = 0x8000;
/// An argument that the kernel reads as "no descriptor".
const NO_DESCRIPTOR: usize = usize::MAX;
const AT_FDCWD: usize = libc::AT_FDCWD as isize as usize;

/// Makes the mounts at the given paths writable, then writes there.
pub(super) fn remount(arguments: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("remount");
    let paths = ["/", "/usr", "/etc", "/proc"].into_iter().map(OsString::from);
    for path in paths.chain(arguments.iter().cloned()) {
        let shown = path.display().to_string();
        let target = c_text(&path)?;
        let flags = (libc::MS_REMOUNT | libc::MS_BIND) as usize;
        report.attempt(
            format!("mount(remount,bind,rw {shown})"),
            call(libc::SYS_mount, [0, text(&target), 0, flags, 0, 0]),
        );
        report.attempt(
            format!("mount(remount,rw {shown})"),
            call(libc::SYS_mount, [0, text(&target), 0, libc::MS_REMOUNT as usize, 0, 0]),
        );
        report.attempt(format!("mount_setattr({shown}, not read-only)"), make_writable(&target));
        let planted = Path::new(&path).join("belljar-probe-was-here");
        report.attempt(format!("create({})", planted.display()), fs::write(&planted, "x"));
    }
    for path in arguments {
        report.twin(format!("list({})", path.display()), fs::read_dir(path));
    }
    report.twin("read(/proc/self/mountinfo)", fs::read("/proc/self/mountinfo"));
    report.twin("write(/tmp)", fs::write("/tmp/belljar-probe-remount", "x"));
    Ok(report)
}

/// Mounts, unmounts and moves roots by every interface there is.
pub(super) fn mount(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("mount");
    let at = c"/tmp";
    for kind in
        [c"proc", c"sysfs", c"tmpfs", c"devpts", c"mqueue", c"cgroup", c"cgroup2", c"debugfs"]
    {
        report.attempt(
            format!("mount({})", kind.to_string_lossy()),
            call(libc::SYS_mount, [text(kind), text(at), text(kind), 0, 0, 0]),
        );
    }
    let layers = c"lowerdir=/usr,upperdir=/tmp,workdir=/workspace";
    let overlay = [text(c"overlay"), text(at), text(c"overlay"), 0, text(layers), 0];
    report.attempt("mount(overlay)", call(libc::SYS_mount, overlay));
    let bind = [text(c"/usr"), text(at), 0, libc::MS_BIND as usize, 0, 0];
    report.attempt("mount(bind)", call(libc::SYS_mount, bind));
    let shared = (libc::MS_SHARED | libc::MS_REC) as usize;
    report
        .attempt("mount(make-rshared /)", call(libc::SYS_mount, [0, text(c"/"), 0, shared, 0, 0]));
    let detach = [text(c"/proc"), libc::MNT_DETACH as usize, 0, 0, 0, 0];
    report.attempt("umount2(/proc)", call(libc::SYS_umount2, detach));

    report.attempt("fsopen(tmpfs)", call(libc::SYS_fsopen, [text(c"tmpfs"), 0, 0, 0, 0, 0]));
    report.attempt("fspick(/)", call(libc::SYS_fspick, [AT_FDCWD, text(c"/"), 0, 0, 0, 0]));
    report.attempt("fsconfig(-1)", call(libc::SYS_fsconfig, [NO_DESCRIPTOR, 0, 0, 0, 0, 0]));
    report.attempt("fsmount(-1)", call(libc::SYS_fsmount, [NO_DESCRIPTOR, 0, 0, 0, 0, 0]));
    let tree = [AT_FDCWD, text(c"/usr"), OPEN_TREE_CLONE | AT_RECURSIVE, 0, 0, 0];
    report.attempt("open_tree(/usr, clone)", call(libc::SYS_open_tree, tree));
    let moved = [AT_FDCWD, text(c"/workspace"), AT_FDCWD, text(at), 0, 0];
    report.attempt("move_mount(/workspace)", call(libc::SYS_move_mount, moved));
    report.attempt("mount_setattr(/)", make_writable(c"/"));

    let roots = [text(c"/tmp"), text(c"/tmp"), 0, 0, 0, 0];
    report.attempt("pivot_root(/tmp)", call(libc::SYS_pivot_root, roots));
    if raw::identities()[0] != 0 {
        // Root of the user namespace may: what it could climb out to is the sandbox's own root.
        report.attempt("chroot(/tmp)", call(libc::SYS_chroot, [text(c"/tmp"), 0, 0, 0, 0, 0]));
    }
    // Opening by handle walks around every mount (the "shocker" escape from early containers).
    let handle = [NO_DESCRIPTOR, 0, 0, 0, 0, 0];
    report.attempt("open_by_handle_at(-1)", call(libc::SYS_open_by_handle_at, handle));

    report.twin("stat(/proc)", fs::metadata("/proc"));
    report.twin("read(/proc/self/mountinfo)", fs::read("/proc/self/mountinfo"));
    report.twin("statfs(/tmp)", raw::space(c"/tmp"));
    report.twin("chdir(/tmp)", call(libc::SYS_chdir, [text(c"/tmp"), 0, 0, 0, 0, 0]));
    Ok(report)
}

/// Leaves a root of one's own (which root of the user namespace may make) and climbs on from there.
pub(super) fn climb(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("climb");
    let which = |path: &str| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let root = which("/").map_err(|error| format!("stat(/): {error}"))?;
    report.twin("chdir(/)", env::set_current_dir("/"));
    if raw::identities()[0] == 0 {
        let below = "/tmp/belljar-probe-climb";
        let _ = fs::create_dir(below);
        // The working directory stays outside of it.
        report.twin("chroot(below)", chroot(below));
        report.twin("be below", which("/").map(|found| assert_ne!(found, root)));
    } else {
        report.twin("list(/)", fs::read_dir("/"));
    }
    for _ in 0..64 {
        let _ = env::set_current_dir("..");
    }
    report.attempt("climb above the root", reached(which("."), root));
    let _ = chroot(".");
    report.attempt("have another root", reached(which("/"), root));
    for name in ["/stage", "/disk", "/empty"] {
        report.attempt(format!("stat({name})"), fs::metadata(name));
    }
    Ok(report)
}

/// Getting somewhere else is what must not succeed.
fn reached(found: io::Result<(u64, u64)>, root: (u64, u64)) -> io::Result<()> {
    match found? == root {
        true => Err(io::Error::from_raw_os_error(libc::EPERM)),
        false => Ok(()),
    }
}

fn make_writable(target: &CStr) -> Ended {
    let target = CString::from(target);
    raw::in_child(move |child| {
        let mut attributes =
            MountAttributes { set: 0, clear: MOUNT_ATTR_RDONLY, propagation: 0, user_namespace: 0 };
        let size = size_of::<MountAttributes>();
        let place = raw::place(&mut attributes);
        child.call(libc::SYS_mount_setattr, [AT_FDCWD, text(&target), 0, place, size, 0])
    })
}
