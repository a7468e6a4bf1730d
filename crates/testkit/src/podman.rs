//! Podman as a test starts it: its service, with storage, containers and locks in one directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Where it puts its containers' control groups, whoever runs it.
pub(crate) const CGROUP: &str = "libpod_parent";

/// `runc`, since `crun` takes no machine whose control groups are of both versions; no limits of its own,
/// which not every root may raise; and a log of events would be another file.
const CONFIGURATION: &str = r#"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
[containers]
default_ulimits = []
"#;

/// Names of loopback need no certificate.
const REGISTRIES: &str = "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n";

const FILE: &str = "/tmp/belljar-test-podman.lock";

/// A part in [`CGROUP`], which all tests with Podman have in common: whoever is the last may remove it.
#[derive(Debug)]
pub(crate) struct Share(File);

impl Share {
    pub(crate) fn take() -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(FILE)?;
        file.lock_shared()?;
        Ok(Self(file))
    }

    /// Whether nobody else has one, or comes to have one before this is dropped.
    pub(crate) fn is_last(&self) -> bool {
        self.0.unlock().is_ok() && self.0.try_lock().is_ok()
    }
}

fn command(directory: &Path) -> Command {
    let at = |name: &str| directory.join(name);
    let mut command = Command::new("podman");
    command.env("CONTAINERS_CONF", at("containers.conf"));
    command.env("CONTAINERS_STORAGE_CONF", at("storage.conf"));
    command.env("CONTAINERS_REGISTRIES_CONF", at("registries.conf"));
    command.arg("--tmpdir").arg(at("tmp"));
    // Who watches its containers leaves a file where it was started when one has used up its memory.
    command.current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Starts its service.
pub(crate) fn spawn(directory: &Path) -> Result<Child, String> {
    let at = |name: &str| directory.join(name);
    let text = |error: io::Error| error.to_string();
    fs::write(at("containers.conf"), CONFIGURATION).map_err(text)?;
    fs::write(at("registries.conf"), REGISTRIES).map_err(text)?;
    let storage = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\nrunroot = {:?}\n",
        at("data"),
        at("run")
    );
    fs::write(at("storage.conf"), storage).map_err(text)?;
    let log = File::create(at("log")).map_err(text)?;
    command(directory)
        .args(["system", "service", "--time=0"])
        .arg(format!("unix://{}", at("docker.sock").display()))
        .stderr(log)
        .spawn()
        .map_err(text)
}

/// Ends all of its containers, which outlive the service.
pub(crate) fn remove_all(directory: &Path) {
    let _ = command(directory).args(["rm", "--all", "--force", "--time=0"]).status();
}
