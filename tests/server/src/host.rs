//! A server child on an installation of its own.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_client::{Address, Client, Failure};
use belljar_testkit::{Installation, Mode, PROMPT, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// An installation with a server that the test holds by its process.
#[derive(Debug)]
pub struct Host {
    // Dropped first: after a failed test its sandboxes are destroyed through whatever server still runs.
    pub installation: Installation,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    addresses: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Host {
    /// A place for a server, without one yet. `None`, said aloud, where there can be none: sandboxes need root here.
    #[must_use]
    pub fn empty(test: &str) -> Option<Self> {
        if let Some(reason) = Mode::Root.unavailable() {
            belljar_testkit::skip(test, &reason);
            return None;
        }
        let installation = Installation::new(Mode::Root);
        Some(Self { installation, running: Mutex::new(None) })
    }

    /// A host with a server on its socket and on loopback.
    #[must_use]
    pub fn serving(test: &str) -> Option<Self> {
        let host = Self::empty(test)?;
        host.serve(&[], &[]);
        Some(host)
    }

    /// Starts the server, on its socket and a port of loopback, and waits until it listens.
    #[track_caller]
    pub fn serve(&self, flags: &[&str], variables: &[(&str, &str)]) {
        if let Err(words) = self.try_serve(&["--listen", "127.0.0.1:0"], flags, variables) {
            panic!("the server did not start: {words}\n{}", self.log());
        }
    }

    /// Starts the server; an error is what it said in place of where it listens.
    pub fn try_serve(
        &self,
        listen: &[&str],
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<(), String> {
        let mut command = self.installation.command(["serve", "--json"]);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path());
        command
            .args(listen)
            .args(flags)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("our own directory"));
        let mut child = command.spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped above"));
        let mut words = String::new();
        stdout.read_line(&mut words).expect("its words are text");
        let Ok(told) = serde_json::from_str::<Value>(&words) else {
            std::io::Read::read_to_string(&mut stdout, &mut words).expect("its words are text");
            let _ = child.wait();
            return Err(words);
        };
        let addresses = told["addresses"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|address| Some(address.as_str()?.to_owned()));
        *self.lock() = Some(Running { child, addresses: addresses.collect() });
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().expect("no test panics with it")
    }

    fn log_path(&self) -> PathBuf {
        self.installation.work().join("server.log")
    }

    /// What servers of this host said.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.installation.state().join("server.sock")
    }

    /// `http://127.0.0.1:PORT` or `https://…`.
    #[must_use]
    pub fn url(&self) -> String {
        let running = self.lock();
        let addresses = &running.as_ref().expect("a server runs").addresses;
        addresses.iter().find(|address| address.starts_with("http")).expect("it listens").clone()
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn port(&self) -> String {
        self.url().split("//").nth(1).expect("it is a URL").to_owned()
    }

    #[must_use]
    pub fn server_process(&self) -> u32 {
        self.lock().as_ref().expect("a server runs").child.id()
    }

    /// The launcher of the running server, if it has one by now.
    #[must_use]
    pub fn launcher_process(&self) -> Option<u32> {
        let server = self.lock().as_ref()?.child.id();
        let entries = std::fs::read_dir("/proc").ok()?.flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            parent == Some(&server.to_string())
                && command.split(|b| *b == 0).nth(1) == Some(b"launcher")
        })
    }

    /// `kill -9` of the server, as the machine's operator would.
    pub fn kill(&self) {
        drop(self.lock().take());
    }

    /// `kill -9` of the launcher; whether there was one.
    pub fn kill_launcher(&self) -> bool {
        let Some(launcher) = self.launcher_process() else { return false };
        signal(launcher, Signal::KILL);
        true
    }

    pub fn terminate(&self) {
        signal(self.server_process(), Signal::TERM);
    }

    /// Whether the server has ended by itself by now.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut running = self.lock();
        let Some(server) = running.as_mut() else { return true };
        if matches!(server.child.try_wait(), Ok(Some(_))) {
            *running = None;
            return true;
        }
        false
    }

    /// Waits for the server to end by itself, and tells whether it did.
    #[must_use]
    pub fn ends_within(&self, time: Duration) -> bool {
        wait_until(time, || self.has_ended().then_some(())).is_some()
    }

    /// A client on the socket.
    pub async fn client(&self) -> Client {
        self.try_client().await.unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// A client on the socket of a server that may die at any moment.
    ///
    /// # Errors
    /// Where it has.
    pub async fn try_client(&self) -> Result<Client, Failure> {
        Client::connect(&Address::Unix(self.socket()), None).await
    }

    /// A client on the port, with a key.
    pub async fn client_with(&self, key: Option<&str>) -> Client {
        let address = Address::Url(self.url());
        Client::connect(&address, key).await.unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// What no sandbox owns any more, by the product's own word.
    pub async fn leaks(&self) -> Vec<String> {
        let mut system = self.client().await.system;
        let found = system.find_leaks(v1::FindLeaksRequest { fix: false }).await;
        found.expect("the server looks").into_inner().leaks
    }

    /// Ends everything and looks for leaks, by the product's word and by the kernel's.
    pub async fn finish(self) {
        if self.has_ended() {
            self.serve(&[], &[]);
        }
        self.installation.destroy_all();
        let left = settled(async || {
            let leaks = self.leaks().await;
            leaks.is_empty().then_some(()).ok_or(leaks)
        });
        if let Err(leaks) = left.await {
            panic!("the leak check found {leaks:#?}");
        }
        self.installation.assert_nothing_left();
        assert!(self.ends_within(PROMPT), "the server did not end");
    }
}

fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process number");
    let _ = kill_process(process, signal);
}

/// Looks until there is an answer, up to a bound; the last refusal if there never is.
///
/// # Errors
/// The last one of `look`.
pub async fn settled<T, E>(look: impl AsyncFn() -> Result<T, E>) -> Result<T, E> {
    let end = Instant::now() + 2 * PROMPT;
    loop {
        match look().await {
            Err(_) if Instant::now() < end => tokio::time::sleep(Duration::from_millis(20)).await,
            answer => return answer,
        }
    }
}
