//! A private engine for tests: everything of it is below one temporary directory and ends with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::podman;

/// How long the engine may take to answer, also on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine of our own.
#[derive(Debug)]
pub struct Dockerd {
    directory: tempfile::TempDir,
    process: Mutex<Child>,
    cgroup: String,
    /// Only Podman has one.
    share: Option<podman::Share>,
}

impl Dockerd {
    /// Why there can be none; `None` where there can.
    #[must_use]
    pub fn unavailable() -> Option<String> {
        missing(&["dockerd"])
    }

    /// The same for Podman, whose socket speaks Docker's language, and Docker's own program speaks to it.
    #[must_use]
    pub fn podman_unavailable() -> Option<String> {
        missing(&["podman", "runc", "docker"])
    }

    /// # Errors
    /// When it does not come to answer; with what it said.
    pub fn start() -> Result<Self, String> {
        Self::start_with(&json!({}))
    }

    /// The same with a configuration, as engines read it.
    ///
    /// # Errors
    /// When it does not come to answer; with what it said.
    pub fn start_with(configuration: &Value) -> Result<Self, String> {
        let directory =
            tempfile::Builder::new().prefix("bjd").tempdir().map_err(|error| error.to_string())?;
        let at = |name: &str| directory.path().join(name);
        let cgroup = format!("belljar-dockerd-{}", std::process::id());
        fs::write(at("daemon.json"), configuration.to_string())
            .map_err(|error| error.to_string())?;
        let process = Mutex::new(spawn(directory.path(), &cgroup)?);
        let daemon = Self { directory, process, cgroup, share: None };
        daemon.await_socket()?;
        Ok(daemon)
    }

    /// Podman with everything below a directory of its own.
    ///
    /// # Errors
    /// When it does not come to answer; with what it said.
    pub fn start_podman() -> Result<Self, String> {
        let directory =
            tempfile::Builder::new().prefix("bjp").tempdir().map_err(|error| error.to_string())?;
        let share = Some(podman::Share::take().map_err(|error| error.to_string())?);
        let process = Mutex::new(podman::spawn(directory.path())?);
        let cgroup = podman::CGROUP.to_owned();
        let daemon = Self { directory, process, cgroup, share };
        daemon.await_socket()?;
        Ok(daemon)
    }

    /// Ends the engine and starts it again. In between, what it keeps can be changed: the function is given where that is.
    ///
    /// # Errors
    /// When it does not come to answer again; with what it said.
    pub fn restart(&self, between: impl FnOnce(&Path)) -> Result<(), String> {
        self.stop();
        between(&self.directory.path().join("data"));
        *self.process() = match self.share {
            Some(_) => podman::spawn(self.directory.path())?,
            None => spawn(self.directory.path(), &self.cgroup)?,
        };
        self.await_socket()
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let mut process = self.process();
        let pid = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = process.kill();
        let _ = process.wait();
    }

    fn await_socket(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            let ended = self.process().try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.directory.path().join("log"));
                return Err(format!("the engine did not start: {}", log.unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }

    /// As a backend is told of it.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Docker's own program with `arguments`, where it is installed.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", self.host()).args(arguments);
        command
    }

    /// The first process of a sandbox's container, on this host.
    #[must_use]
    #[track_caller]
    pub fn first_process(&self, sandbox: &str) -> u32 {
        let container = self.containers(&format!("label=belljar.sandbox={sandbox}"));
        let format = ["inspect", "--format", "{{.State.Pid}}", container.trim()];
        let output = self.command(&format).output().expect("`docker` is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().unwrap_or_else(|_| panic!("no process of `{sandbox}`: {output:?}"))
    }

    /// The ids of containers that fit, running or not.
    #[must_use]
    pub fn containers(&self, filter: &str) -> String {
        let list = ["ps", "--all", "--quiet", "--no-trunc", "--filter", filter];
        let output = self.command(&list).output().expect("`docker` is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes an image of a few programs, by the engine's own import.
    ///
    /// # Errors
    /// With what the engine said.
    pub fn import_busybox(&self, name: &str, changes: &[&str]) -> Result<(), String> {
        let root = self.directory.path().join("busybox");
        let _ = fs::remove_dir_all(&root);
        write_busybox(&root).map_err(|error| error.to_string())?;
        self.import(&root, name, changes)
    }

    /// Makes an image of a directory, by the engine's own import.
    ///
    /// # Errors
    /// With what the engine said.
    pub fn import(&self, root: &Path, name: &str, changes: &[&str]) -> Result<(), String> {
        let archive = self.directory.path().join("import.tar");
        let status =
            Command::new("tar").arg("-C").arg(root).arg("-cf").arg(&archive).arg(".").status();
        if !status.is_ok_and(|status| status.success()) {
            return Err("`tar` failed".to_owned());
        }
        let mut arguments = vec!["import"];
        for change in changes {
            arguments.extend(["--change", change]);
        }
        let archive = archive.display().to_string();
        arguments.extend([archive.as_str(), name]);
        let output = self.command(&arguments).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn missing(programs: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("an engine of its own needs root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |name: &&str| std::env::split_paths(&path).any(|directory| directory.join(name).exists());
    let missing = programs.iter().find(|name| !is_there(name))?;
    Some(format!("`{missing}` is not installed"))
}

fn spawn(directory: &Path, cgroup: &str) -> Result<Child, String> {
    let at = |name: &str| directory.join(name);
    let log = fs::File::create(at("log")).map_err(|error| error.to_string())?;
    let spawned = Command::new("dockerd")
        .arg("--config-file")
        .arg(at("daemon.json"))
        .arg("--data-root")
        .arg(at("data"))
        .arg("--exec-root")
        .arg(at("exec"))
        .arg("--pidfile")
        .arg(at("pid"))
        .arg("--host")
        .arg(format!("unix://{}", at("docker.sock").display()))
        .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
        .arg(format!("--cgroup-parent=/{cgroup}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    spawned.map_err(|error| error.to_string())
}

/// Makes a root of a few programs.
///
/// # Errors
/// When it exists, or `busybox` is not installed.
pub fn write_busybox(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root.join("bin"))?;
    fs::copy("/bin/busybox", root.join("bin/busybox"))?;
    for program in ["sh", "cat", "id", "env", "ls", "sleep", "wget", "echo"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(program))?;
    }
    Ok(())
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        if self.share.is_some() {
            podman::remove_all(self.directory.path());
        }
        self.stop();
        if self.share.as_ref().is_some_and(|share| !share.is_last()) {
            return;
        }
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_groups(&hierarchy.path().join(&self.cgroup));
        }
        remove_groups(&Path::new("/sys/fs/cgroup").join(&self.cgroup));
    }
}

/// Removes empty control groups, children first.
fn remove_groups(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}
