//! One private installation: a state directory, a home, a user.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::directory::Directory;
use crate::leaks::{Scope, Snapshot};
use crate::{Account, Dockerd, Finished, Mode, PROMPT, Sandbox, Started, build, wait_until};

/// Set in the environment of every command, and never to be seen inside a sandbox.
const CANARY: (&str, &str) = ("BELLJAR_TEST_SECRET", "canary-5e1f");

#[derive(Debug)]
pub struct Installation {
    mode: Mode,
    account: Option<Account>,
    directory: Directory,
    sandboxes: Mutex<Vec<String>>,
    /// Whether the binary ran at all.
    used: AtomicBool,
    /// Whether commands do everything themselves.
    embedded: AtomicBool,
    /// Whether servers look for runtimes where the tests have some.
    runtimes: AtomicBool,
    variables: Mutex<Vec<(String, String)>>,
    /// The engine that the sandboxes are in, where they are in one. It ends last.
    daemon: Option<Dockerd>,
}

/// A request that the product refused.
#[derive(Debug)]
pub struct Refusal {
    /// The stable code, if there was one.
    pub code: Option<String>,
    pub finished: Finished,
}

impl Installation {
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let daemon = match mode {
            Mode::Docker => Some(Dockerd::start()),
            Mode::Podman => Some(Dockerd::start_podman()),
            Mode::Root | Mode::Rootless | Mode::Runc | Mode::Runsc => None,
        };
        let daemon = daemon.map(|daemon| daemon.expect("an engine starts"));
        Self::with(mode, daemon)
    }

    /// One whose sandboxes are in an engine of the test's own.
    #[must_use]
    pub fn in_engine(daemon: Dockerd) -> Self {
        Self::with(Mode::Docker, Some(daemon))
    }

    fn with(mode: Mode, daemon: Option<Dockerd>) -> Self {
        let directory = Directory::new();
        let account = mode.account();
        let (sandboxes, used, embedded, runtimes, variables) = Default::default();
        let installation = Self {
            mode,
            account,
            directory,
            sandboxes,
            used,
            embedded,
            runtimes,
            variables,
            daemon,
        };
        if let Some(daemon) = &installation.daemon {
            installation.set_variable("BELLJAR_BACKEND", "docker");
            installation.set_variable("BELLJAR_DOCKER_HOST", &daemon.host());
        }
        if mode == Mode::Runsc {
            installation.find_runtimes();
        }
        for name in ["state", "home", "work"] {
            installation.make_directory(name);
        }
        installation
    }

    /// The engine that the sandboxes are in.
    #[must_use]
    pub fn daemon(&self) -> &Dockerd {
        self.daemon.as_ref().expect("a test in an engine")
    }

    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// From now on commands do everything in their own process, without a server: for tests that kill or measure
    /// whoever does the work.
    pub fn embed(&self) {
        self.embedded.store(true, Ordering::Relaxed);
    }

    /// From now on servers find the runtimes that the tests have besides the host's own (`BELLJAR_TEST_RUNTIMES`). Not
    /// for everybody: with a stronger wall at hand, `auto` takes it.
    pub fn find_runtimes(&self) {
        self.runtimes.store(true, Ordering::Relaxed);
    }

    /// Stops the server that commands started. The next command that needs one starts another.
    #[track_caller]
    pub fn stop_server(&self) {
        if self.used.load(Ordering::Relaxed) {
            let mut command = self.command(["server", "stop"]);
            command.env_remove("BELLJAR_SERVER");
            Started::new(command, &[]).finish().expect_success();
        }
    }

    /// The process of the server that commands started.
    #[must_use]
    #[track_caller]
    pub fn server_process(&self) -> u32 {
        let status = self.run(["server", "status", "--json"]).expect_success().json();
        let process = status["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        process.unwrap_or_else(|| panic!("no process in {status}"))
    }

    /// A directory that the installation's user owns, for files of the test.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// Makes a directory, owned by the installation's user, beside the state directory.
    pub fn make_directory(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(&path).expect("our own directory");
        self.give(&path);
        path
    }

    /// Makes the installation's user the owner of `path`.
    pub fn give(&self, path: &Path) {
        if let Some(Account { uid, gid }) = self.account {
            chown(path, Some(uid), Some(gid)).expect("root may change owners");
        }
    }

    /// A directory with the probe in it, to be mounted at `/probe`. The test may add files before it is used.
    #[must_use]
    pub fn probe_directory(&self) -> PathBuf {
        let directory = self.directory.path().join("probe");
        let program = directory.join("belljar-probe");
        if !program.exists() {
            fs::create_dir_all(&directory).expect("our own directory");
            fs::copy(build::probe(), &program).expect("the probe can be copied");
            for path in [&directory, &program] {
                let everybody = fs::Permissions::from_mode(0o755);
                fs::set_permissions(path, everybody).expect("our own file");
            }
        }
        directory
    }

    /// Sets a variable for everything that is run from now on.
    pub fn set_variable(&self, name: &str, value: &str) {
        let mut variables = self.variables.lock().expect("no test panics with it");
        variables.push((name.to_owned(), value.to_owned()));
    }

    /// The binary with `arguments`, as the installation's user, with an environment of its own.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(build::belljar());
        self.used.store(true, Ordering::Relaxed);
        command.args(arguments);
        command.env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.directory.path().join("home"));
        command.env("BELLJAR_STATE_DIR", self.state());
        command.env(CANARY.0, CANARY.1);
        if let Some(log) = std::env::var_os("BELLJAR_LOG") {
            command.env("BELLJAR_LOG", log);
        }
        for (name, value) in &*self.variables.lock().expect("no test panics with it") {
            command.env(name, value);
        }
        if self.embedded.load(Ordering::Relaxed) {
            command.env("BELLJAR_SERVER", "embedded");
        }
        if self.runtimes.load(Ordering::Relaxed)
            && let Some(directories) = std::env::var_os("BELLJAR_TEST_RUNTIMES")
        {
            command.env("BELLJAR_RUNTIME_PATH", directories);
        }
        command.current_dir(self.work());
        if let Some(Account { uid, gid }) = self.account {
            // Changing the uid also drops the supplementary groups when we are root.
            command.uid(uid).gid(gid);
        }
        command
    }

    #[must_use]
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Started {
        Started::new(self.command(arguments), &[])
    }

    /// Runs the binary to its end.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Finished {
        self.start(arguments).finish()
    }

    /// Creates a sandbox with the probe mounted.
    #[must_use]
    #[track_caller]
    pub fn create(&self, flags: &[&str]) -> Sandbox<'_> {
        self.try_create(flags).unwrap_or_else(|refusal| panic!("create: {}", refusal.finished))
    }

    /// Creates a sandbox with the probe mounted, or tells the refusal. What is refused must leave nothing behind,
    /// which the leak check at the end of the test sees.
    ///
    /// # Errors
    /// When the product says no.
    #[track_caller]
    pub fn try_create(&self, flags: &[&str]) -> Result<Sandbox<'_>, Refusal> {
        let mount = format!("{}:/probe:ro", self.probe_directory().display());
        self.try_create_plain(&[&["--mount", &mount], flags].concat())
    }

    /// The same without the probe: a place for that makes the root an overlay.
    #[track_caller]
    pub fn try_create_plain(&self, flags: &[&str]) -> Result<Sandbox<'_>, Refusal> {
        let mut arguments = vec!["create", "--json"];
        if let Some(runtime) = self.mode.runtime() {
            arguments.extend(["--backend", "oci", "--runtime", runtime]);
        }
        arguments.extend(flags);
        let finished = self.run(&arguments);
        if finished.code() != 0 {
            return Err(Refusal { code: refusal_code(&finished), finished });
        }
        let answer = finished.json();
        let id = answer["sandbox_id"].as_str();
        let id = id.unwrap_or_else(|| panic!("no `sandbox_id`: {finished}")).to_owned();
        self.sandboxes.lock().expect("no test panics with it").push(id.clone());
        Ok(Sandbox::new(self, id))
    }

    /// Destroys every sandbox of this installation.
    #[track_caller]
    pub fn destroy_all(&self) {
        self.run(["destroy", "--all"]).expect_success();
    }

    /// Words that occur in the names of everything that belongs to this installation.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let mut marks = vec![self.directory.path().display().to_string()];
        if let Ok(found) = fs::metadata(self.state()) {
            marks.push(format!("belljar-{:x}-{:x}", found.dev(), found.ino()));
        }
        marks.extend(self.sandboxes.lock().expect("no test panics with it").iter().cloned());
        Scope::Marked { marks, state: self.state() }
    }

    /// Fails the test if anything of this installation's sandboxes is still there after a while.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        self.stop_server();
        let mut left = Snapshot::default();
        let gone = wait_until(PROMPT, || {
            left = Snapshot::take(&self.scope());
            left.is_empty().then_some(())
        });
        assert!(gone.is_some(), "left behind ({} mode):\n{left}", self.mode);
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        // After a failed test: whatever is left must not disturb the others. Failing here would hide the cause.
        if std::thread::panicking() && self.used.load(Ordering::Relaxed) {
            let _ = self.command(["destroy", "--all"]).output();
            let _ = self.command(["server", "stop"]).env_remove("BELLJAR_SERVER").output();
        }
    }
}

impl Refusal {
    /// Fails the test unless the refusal has this code and says what to do about it.
    #[track_caller]
    pub fn expect_code(&self, code: &str) {
        assert_eq!(self.finished.code(), 125, "our own failure; {}", self.finished);
        assert_eq!(self.code.as_deref(), Some(code), "code of the refusal; {}", self.finished);
    }
}

/// Finds the code in the JSON of a refusal, wherever it was printed.
fn refusal_code(finished: &Finished) -> Option<String> {
    let text = finished.text();
    let lines = text.lines().chain(finished.stderr.lines());
    let mut values = lines.filter_map(|line| serde_json::from_str(line).ok());
    let whole = serde_json::from_slice(&finished.stdout).ok();
    whole.into_iter().chain(&mut values).find_map(|value: serde_json::Value| {
        let code = value.pointer("/error/code").or_else(|| value.get("code"))?;
        code.as_str().map(str::to_owned)
    })
}
