//! Finds the binaries under test, building them where nobody said where they are.
//!
//! A stale binary would make a test lie, so without `BELLJAR_TEST_BIN` (or `BELLJAR_TEST_PROBE`) cargo is asked each
//! time; it answers at once when nothing changed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
/// Copies for users who cannot reach the build directory.
const SHARED: &str = "/tmp/belljar-test-bin";

/// The `belljar` binary: `BELLJAR_TEST_BIN`, or built beside the running test. Every user of the machine can run it.
pub fn belljar() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| reachable(&find("BELLJAR_TEST_BIN", "belljar", "belljar", None)))
}

/// The static `belljar-probe`: `BELLJAR_TEST_PROBE`, or built for the static target.
pub fn probe() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let find =
        || find("BELLJAR_TEST_PROBE", "belljar-isolation", "belljar-probe", Some(STATIC_TARGET));
    FOUND.get_or_init(find)
}

fn find(variable: &str, package: &str, binary: &str, target: Option<&str>) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "{variable} names {}, which is no file", path.display());
        return path;
    }
    let directory = target_directory();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package, "--bin", binary, "--target-dir"]);
    build.arg(&directory).current_dir(workspace());
    if let Some(target) = target {
        build.args(["--target", target]);
    }
    let status = build.status().expect("cargo runs: it runs this test");
    assert!(status.success(), "`{binary}` does not build");
    let place = target.map_or_else(|| directory.clone(), |target| directory.join(target));
    place.join("debug").join(binary)
}

/// The build directory that the running test is in: `<target>/<profile>/deps/<test>`.
fn target_directory() -> PathBuf {
    let own = std::env::current_exe().expect("a running test has a path");
    own.ancestors().nth(3).expect("tests are three levels deep").to_path_buf()
}

fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("this crate is two levels below the workspace").to_path_buf()
}

/// `path` itself if everybody can run it, else a copy that everybody can run.
fn reachable(path: &Path) -> PathBuf {
    let open = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    if path.ancestors().all(open) {
        return path.to_path_buf();
    }
    let found = fs::metadata(path).expect("the binary exists");
    let directory = Path::new(SHARED).join(format!("{}-{}", found.len(), found.mtime()));
    let copy = directory.join("belljar");
    if !copy.exists() {
        fs::create_dir_all(&directory).expect("/tmp is writable");
        let partial = directory.join(format!("partial-{}", std::process::id()));
        fs::copy(path, &partial).expect("the binary can be copied");
        let everybody = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&partial, everybody).expect("our own file");
        // Renaming is atomic: another test never runs half a binary.
        fs::rename(&partial, &copy).expect("our own file");
    }
    copy
}
