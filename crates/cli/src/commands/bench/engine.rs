//! The peer of the docker backend: `docker run --rm` on the same engine, with the same image, binds and hardening.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::peers::{Peer, SHOWN, success};

/// Work directories, as ours has them.
const WORK_DIRECTORIES: [&str; 4] = ["/workspace", "/tmp", "/output", "/home/user"];
const TMPFS: &str = "rw,exec,nosuid,nodev,size=64m,mode=1777";

/// The peer, or why there is none. A sandbox must have been made on the engine before: its image is the peer's, too.
pub(super) fn peer(scratch: &Path, host: Option<&str>) -> Result<Peer, String> {
    let absent = |error: io::Error| format!("docker run: {error}");
    let listed = docker(host).args(["image", "ls", "--quiet", "belljar-host"]).output();
    let listed = String::from_utf8_lossy(&listed.map_err(absent)?.stdout).into_owned();
    let image = listed.lines().next().ok_or("docker run: the engine has no image of this host")?;
    let arguments = arguments(scratch, image).map_err(absent)?;
    let host = host.map(str::to_owned);
    let run = move || success(docker(host.as_deref()).args(&arguments));
    run().map_err(absent)?;
    Ok(Peer { name: "docker run --rm", run: Box::new(run) })
}

/// Docker's own program, at the same engine.
fn docker(host: Option<&str>) -> Command {
    let mut command = Command::new("docker");
    if let Some(host) = host {
        command.env("DOCKER_HOST", host);
    }
    command
}

/// What is asked of the engine.
fn arguments(scratch: &Path, image: &str) -> io::Result<Vec<String>> {
    let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    fs::create_dir_all(scratch)?;
    let profile = scratch.join("seccomp.json");
    fs::write(&profile, belljar_machinery::seccomp::profile().to_string())?;
    let mut arguments = words(&[
        "run",
        "--rm",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--user=1000:1000",
        "--security-opt=no-new-privileges",
        "--pids-limit=256",
        "--memory=512m",
        "--memory-swap=512m",
        "--cpus=1",
        "--log-driver=none",
        "--ipc=private",
        "--cgroupns=private",
        "--hostname=bench",
    ]);
    arguments.push(format!("--security-opt=seccomp={}", profile.display()));
    for path in WORK_DIRECTORIES {
        arguments.push(format!("--tmpfs={path}:{TMPFS}"));
    }
    for name in SHOWN.iter().filter(|name| Path::new("/").join(name).exists()) {
        arguments.push(format!("--volume=/{name}:/{name}:ro"));
    }
    arguments.extend(words(&[image, "true"]));
    Ok(arguments)
}
