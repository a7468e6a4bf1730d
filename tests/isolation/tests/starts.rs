//! Starting from a root file system that fights back: links and odd files where the start makes mounts.
//!
//! Container runtimes have followed such links out to the host (the runc escapes of 2025 replaced `/dev/null` and
//! `/dev/console`). Whatever stands there, a start is refused or succeeds, and the host's files stay as they are.

#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use belljar_testkit::{Installation, has_mounts, matrix};
use common::PROBE;

/// Starts while links are being swapped. `BELLJAR_TEST_RACES` sets another number.
const RACES: usize = 1000;

/// Places where a start puts something of its own.
const PLACES: &[&str] = &[
    "dev",
    "dev/null",
    "dev/zero",
    "dev/console",
    "dev/ptmx",
    "dev/pts",
    "dev/shm",
    "dev/tty",
    "proc",
    "sys",
    "tmp",
    "etc",
    "etc/passwd",
    "etc/group",
    "etc/hosts",
    "etc/hostname",
    "etc/resolv.conf",
    "home",
    "home/user",
    "output",
    "workspace",
    "probe",
    "run",
    "root",
];

/// Places where an OCI runtime mounts something once more, by a path of the host's that leads through the root.
const PLACES_OF_RUNTIMES: &[&str] =
    &["dev", "dev/shm", "proc", "sys", "tmp", "home/user", "output", "workspace", "probe"];

matrix! {
    engineless an_honest_root_works,
    links_in_the_root_lead_nowhere,
    runtimes links_that_a_runtime_meets_lead_nowhere,
    odd_files_in_the_root_do_no_harm,
    alone links_swapped_during_the_start_lead_nowhere,
}

fn an_honest_root_works(belljar: &Installation) {
    let root = Root::new(belljar);
    let sandbox = belljar.create(&["--template", &root.template()]);
    sandbox.exec([PROBE, "identity"]).expect_success();
    sandbox.exec([PROBE, "census"]).expect_success();
    let filled = common::report(&sandbox.exec([PROBE, "fill", "/workspace", "4096"]));
    assert!(common::number(&filled, "written") > 0, "{filled}");
    // A root that can be changed is a layer on the template, which stays as it is.
    let changed = belljar.create(&["--template", &root.template(), "--writable"]);
    changed.exec([PROBE, "identity"]).expect_success();
}

fn links_in_the_root_lead_nowhere(belljar: &Installation) {
    for place in PLACES {
        for target in [Target::Directory, Target::File, Target::Relative] {
            let root = Root::new(belljar);
            let canary = Canary::new(belljar);
            root.replace(place, |path| symlink(target.of(&canary), path));
            let case = format!("{place} as a link to {target:?}");
            start_and_attack(belljar, &root, &case);
            canary.expect_untouched(&case);
            root.expect_no_devices(&case);
        }
    }
}

/// A runtime starts with root's power and sees the host's files: what it opens must be ours already.
fn links_that_a_runtime_meets_lead_nowhere(belljar: &Installation) {
    for (index, place) in PLACES_OF_RUNTIMES.iter().enumerate() {
        let target = if index % 2 == 0 { Target::Directory } else { Target::Relative };
        let root = Root::new(belljar);
        let canary = Canary::new(belljar);
        root.replace(place, |path| symlink(target.of(&canary), path));
        let case = format!("{place} as a link to {target:?}");
        start_and_attack(belljar, &root, &case);
        canary.expect_untouched(&case);
        root.expect_no_devices(&case);
    }
}

fn odd_files_in_the_root_do_no_harm(belljar: &Installation) {
    for place in PLACES {
        let root = Root::new(belljar);
        let canary = Canary::new(belljar);
        // A pipe blocks whoever opens it without care.
        root.replace(place, |path| {
            let made = Command::new("mkfifo").arg(path).status()?;
            assert!(made.success(), "mkfifo {}", path.display());
            Ok(())
        });
        start_and_attack(belljar, &root, &format!("{place} as a pipe"));
        root.replace(place, |path| fs::write(path, "a file"));
        start_and_attack(belljar, &root, &format!("{place} as a file"));
        root.replace(place, |path| fs::create_dir(path));
        start_and_attack(belljar, &root, &format!("{place} as a directory"));
        canary.expect_untouched(place);
    }
}

fn links_swapped_during_the_start_lead_nowhere(belljar: &Installation) {
    let races = std::env::var("BELLJAR_TEST_RACES").ok().and_then(|races| races.parse().ok());
    let races: usize = races.unwrap_or(RACES);
    let (root, canary) = (Root::new(belljar), Canary::new(belljar));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&ended);
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for place in ["dev/null", "dev/console", "proc", "etc", "workspace", "tmp"] {
                    root.swap(place, &canary);
                }
            }
        });
        let template = root.template();
        let mount = format!("{}:/probe:ro", belljar.probe_directory().display());
        let flags = ["run", "--ephemeral", "--template", &template, "--mount", &mount, "--"];
        let mut started = 0;
        for _ in 0..races {
            let finished = belljar.run(flags.iter().chain(&[PROBE, "identity"]));
            // Refused is fine; a crash, a hang or a leak is not.
            assert!([0, 125, 126, 127].contains(&finished.code()), "{finished}");
            started += usize::from(finished.code() == 0);
        }
        assert!(started > 0, "no start succeeded, so nothing was shown");
    });
    canary.expect_untouched("links swapped during the start");
    root.expect_no_devices("links swapped during the start");
}

/// Starts a sandbox from the root and, where that works, writes to every place as root of the user namespace.
fn start_and_attack(belljar: &Installation, root: &Root, case: &str) {
    let sandbox = match belljar.try_create(&["--template", &root.template(), "--user", "root"]) {
        Ok(sandbox) => sandbox,
        Err(refusal) => {
            assert_eq!(refusal.finished.code(), 125, "{case}: {}", refusal.finished);
            assert_ne!(refusal.code.as_deref(), Some("internal"), "{case}: {}", refusal.finished);
            return;
        }
    };
    let _ = sandbox.exec([PROBE, "writes"]);
    let _ = sandbox.exec([PROBE, "fill", "/dev/shm", "4096"]);
    sandbox.destroy().expect_success();
}

/// Ends the swapping thread also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A root file system with nothing in it but directories.
struct Root(PathBuf);

impl Root {
    fn new(belljar: &Installation) -> Self {
        let path = belljar.make_directory("root");
        assert!(!has_mounts(&path), "a start left a mount in its template");
        fs::remove_dir_all(&path).expect("our own directory");
        let directories = [
            "bin",
            "dev",
            "etc",
            "home/user",
            "lib",
            "output",
            "probe",
            "proc",
            "root",
            "run",
            "sys",
            "tmp",
            "usr/bin",
            "workspace",
        ];
        for directory in directories {
            let path = path.join(directory);
            fs::create_dir_all(&path).expect("our own directory");
            for above in path.ancestors().take(2) {
                belljar.give(above);
            }
        }
        belljar.give(&path);
        Self(path)
    }

    fn template(&self) -> String {
        format!("rootfs:{}", self.0.display())
    }

    /// Puts something else at `place`.
    fn replace(&self, place: &str, make: impl FnOnce(&Path) -> std::io::Result<()>) {
        let path = self.0.join(place);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path).expect("our own directory"),
            Ok(_) => fs::remove_file(&path).expect("our own file"),
            Err(_) => {}
        }
        make(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Swaps `place` between what it is and a link to the canary, without a moment in which it is absent.
    fn swap(&self, place: &str, canary: &Canary) {
        let path = self.0.join(place);
        let other = self.0.join(format!("{place}.other"));
        if fs::symlink_metadata(&other).is_err() {
            let _ = symlink(&canary.directory, &other);
        }
        if fs::symlink_metadata(&path).is_err() {
            let _ = fs::write(&path, "");
        }
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        let _ =
            rustix::fs::renameat_with(rustix::fs::CWD, &path, rustix::fs::CWD, &other, exchange);
    }

    /// The template below a sandbox is read-only: no node and no file appeared in it.
    fn expect_no_devices(&self, case: &str) {
        use std::os::unix::fs::FileTypeExt;
        for entry in fs::read_dir(self.0.join("dev")).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("our own file");
            let device = kind.is_char_device() || kind.is_block_device();
            assert!(!device, "{case}: {} was made in the template", entry.path().display());
        }
    }
}

/// Files of the host that no start may touch.
struct Canary {
    directory: PathBuf,
    before: Vec<String>,
}

/// Where a link leads.
#[derive(Clone, Copy, Debug)]
enum Target {
    Directory,
    File,
    Relative,
}

impl Target {
    fn of(self, canary: &Canary) -> PathBuf {
        match self {
            Self::Directory => canary.directory.clone(),
            Self::File => canary.directory.join("file"),
            // More steps up than any root is deep.
            Self::Relative => {
                let inner = canary.directory.strip_prefix("/").expect("an absolute path");
                Path::new("../../../../../../../..").join(inner)
            }
        }
    }
}

impl Canary {
    fn new(belljar: &Installation) -> Self {
        let directory = belljar.make_directory("canary");
        // Writable to everybody: only the wall protects it.
        let open = |path: &Path, mode: u32| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
        };
        for name in ["file", "null", "console", "passwd", "hosts", "resolv.conf"] {
            fs::write(directory.join(name), "as it was").expect("our own file");
            open(&directory.join(name), 0o666);
        }
        open(&directory, 0o777);
        let before = Self::look(&directory);
        Self { directory, before }
    }

    fn look(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("our own directory").flatten();
        let mut found: Vec<String> = entries
            .map(|entry| {
                let metadata = entry.metadata().expect("our own file");
                let (mode, owner, time) = (metadata.mode(), metadata.uid(), metadata.mtime_nsec());
                let content = fs::read_to_string(entry.path()).unwrap_or_default();
                format!("{} {mode:o} {owner} {time} {content}", entry.path().display())
            })
            .collect();
        let own = fs::metadata(directory).expect("our own directory");
        found.push(format!("{:o} {}", own.mode(), own.uid()));
        found.sort();
        found
    }

    fn expect_untouched(&self, case: &str) {
        assert_eq!(Self::look(&self.directory), self.before, "{case}: the host's files changed");
    }
}
