//! Podman as a test starts it: its service, with storage, containers and locks in one directory.

use std::fs;
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

fn command(directory: &Path) -> Command {
    let at = |name: &str| directory.join(name);
    let mut command = Command::new("podman");
    command.env("CONTAINERS_CONF", at("containers.conf"));
    command.env("CONTAINERS_STORAGE_CONF", at("storage.conf"));
    command.arg("--tmpdir").arg(at("tmp"));
    // Who watches its containers leaves a file where it was started when one has used up its memory.
    command.current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Starts its service.
pub(crate) fn spawn(directory: &Path) -> Result<Child, String> {
    let at = |name: &str| directory.join(name);
    let text = |error: std::io::Error| error.to_string();
    fs::write(at("containers.conf"), CONFIGURATION).map_err(text)?;
    let storage = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\nrunroot = {:?}\n",
        at("data"),
        at("run")
    );
    fs::write(at("storage.conf"), storage).map_err(text)?;
    let log = fs::File::create(at("log")).map_err(text)?;
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
