//! The peer of the docker backend: `docker run --rm`, or Podman's own program where the engine is Podman, on the same
//! engine, with the same image, binds and hardening.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::peers::{Peer, SHOWN, success};

/// Work directories, as ours has them.
const WORK_DIRECTORIES: [&str; 4] = ["/workspace", "/tmp", "/output", "/home/user"];
const TMPFS: &str = "rw,exec,nosuid,nodev,size=64m,mode=1777";

/// Where Podman's service is found unless something else is said, if Docker's is not there.
const SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

/// A Podman that keeps no events may lose how a short container ended.
const TRIES: usize = 3;

/// The program that speaks to the engine as a person would.
#[derive(Clone)]
enum Program {
    Docker(Option<String>),
    Podman(String),
}

/// The peer, or why there is none. A sandbox must have been made on the engine before: its image is the peer's, too.
pub(super) fn peer(scratch: &Path, host: Option<&str>) -> Result<Peer, String> {
    let program = Program::of(host);
    let name = program.name();
    let absent = |error: io::Error| format!("{name}: {error}");
    let listed = program.command().args(["image", "ls", "--quiet", "belljar-host"]).output();
    let listed = String::from_utf8_lossy(&listed.map_err(absent)?.stdout).into_owned();
    let none = || format!("{name}: the engine has no image of this host");
    let image = listed.lines().next().ok_or_else(none)?;
    let arguments = arguments(scratch, image).map_err(absent)?;
    let run = move || success(program.command().args(&arguments));
    let mut tried = run();
    for _ in 1..TRIES {
        tried = tried.or_else(|_| run());
    }
    tried.map_err(absent)?;
    Ok(Peer { name, run: Box::new(run) })
}

impl Program {
    /// Podman's own where Podman answers: what Docker's asks of its socket is not the same.
    fn of(host: Option<&str>) -> Self {
        let usual = || {
            let there = SOCKETS.into_iter().find(|path| Path::new(path).exists())?;
            Some(format!("unix://{there}"))
        };
        if let Some(host) = host.map(str::to_owned).or_else(usual) {
            let podman = Self::Podman(host);
            if success(podman.command().arg("version")).is_ok() {
                return podman;
            }
        }
        Self::Docker(host.map(str::to_owned))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Docker(_) => "docker run --rm",
            Self::Podman(_) => "podman run --rm",
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Docker(host) => {
                let mut command = Command::new("docker");
                command.envs(host.iter().map(|host| ("DOCKER_HOST", host)));
                command
            }
            Self::Podman(host) => {
                let mut command = Command::new("podman");
                command.args(["--remote", "--url", host]);
                command
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_asked_by_its_own_program() {
        let of = |program: &Program| {
            let command = program.command();
            let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
            (command.get_program().to_string_lossy().into_owned(), words.collect::<Vec<_>>())
        };
        // Nobody answers there, so it is not Podman.
        let docker = Program::of(Some("unix:///nowhere/docker.sock"));
        assert_eq!((docker.name(), of(&docker)), ("docker run --rm", ("docker".into(), vec![])));
        let podman = Program::Podman("unix:///p".to_owned());
        let words = ["--remote", "--url", "unix:///p"].map(str::to_owned).to_vec();
        assert_eq!((podman.name(), of(&podman)), ("podman run --rm", ("podman".into(), words)));
    }
}
