//! What the host mounts later, below what a sandbox was shown, stays the host's.
//!
//! Most hosts share their mounts among namespaces; this test makes some of its own that are. Only root can, so it runs as
//! root only.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use belljar_testkit::{Installation, Mode, Turn, run_in};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};

const TEST: &str = "propagation::later_mounts_of_the_host_stay_outside";

#[test]
fn later_mounts_of_the_host_stay_outside() {
    run_in(Mode::Root, TEST, Turn::shared, body);
}

fn body(belljar: &Installation) {
    let shared = Mounted::memory(belljar.make_directory("shared"));
    mount_change(&shared.0, MountPropagationFlags::SHARED).expect("root may");
    let peer = Mounted::other_view(&shared.0, belljar.make_directory("peer"));
    for name in ["before", "later"] {
        fs::create_dir(shared.0.join(name)).expect("a new directory");
    }
    fs::write(shared.0.join("before/file"), "shown").expect("a new file");

    let workspace = shared.0.display().to_string();
    let mount = format!("{workspace}:/workspace/again:ro");
    let shown = belljar.create(&["--workspace", &workspace]);
    let also = belljar.create(&["--mount", &mount]);
    shown.exec(["cat", "/workspace/before/file"]).expect_success();
    also.exec(["cat", "/workspace/again/before/file"]).expect_success();

    let later = Mounted::memory(shared.0.join("later"));
    fs::write(later.0.join("file"), "the host's").expect("a new file");
    // The twin: another view of the same, which shares as the host's own do, has it.
    assert_eq!(fs::read(peer.0.join("later/file")).expect("it is shared"), b"the host's");
    for (sandbox, directory) in [(&shown, "/workspace/later"), (&also, "/workspace/again/later")] {
        let listed = sandbox.exec(["ls", "-A", directory]).expect_success();
        assert!(listed.stdout.is_empty(), "{listed}");
    }
    drop(later);
}

/// Something mounted, for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    fn memory(path: PathBuf) -> Self {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", &path, "tmpfs", flags, c"mode=1777").expect("root may mount");
        Self(path)
    }

    fn other_view(of: &Path, path: PathBuf) -> Self {
        mount_bind(of, &path).expect("root may mount");
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
