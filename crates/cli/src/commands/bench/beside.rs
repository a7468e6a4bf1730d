//! The server that is measured: this program, once more, on a state directory that goes with it.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use belljar_api::v1;
use belljar_client::{Address, Client};
use belljar_codes::Code;

use super::tidy;
use crate::backends;
use crate::failure::Failure;

pub(super) struct Beside {
    child: Child,
    directory: tempfile::TempDir,
    server: v1::Server,
    tcp: SocketAddr,
}

impl Beside {
    pub(super) fn start() -> Result<Self, Failure> {
        Self::start_by(&[], |mut command| command.spawn())
    }

    /// Starts it with more arguments, in a place of the caller's.
    pub(super) fn start_by(
        arguments: &[&str],
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> Result<Self, Failure> {
        let refuse = |error: &dyn std::error::Error| {
            Failure::new(Code::ServerUnreachable, "the server to be measured did not start")
                .caused_by(error)
        };
        let directory = tidy::directory().map_err(|e| refuse(&e))?;
        let mut command = Command::new(backends::this_program()?);
        command
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .arg("--state-dir")
            .arg(directory.path())
            // Not in our own group: it goes on until it is asked to end, also when somebody presses Ctrl-C.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = spawn(command).map_err(|e| refuse(&e))?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it was piped");
        BufReader::new(stdout).read_line(&mut line).map_err(|e| refuse(&e))?;
        let server: v1::Server = serde_json::from_str(&line).map_err(|e| refuse(&e))?;
        let tcp = server.addresses.iter().find_map(|address| {
            address.strip_prefix("http://").and_then(|address| address.parse().ok())
        });
        let tcp = tcp.ok_or_else(|| {
            Failure::new(Code::ServerUnreachable, "the server to be measured has no TCP address")
        })?;
        Ok(Self { child, directory, server, tcp })
    }

    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let unix = self.server.addresses.iter().find(|address| address.starts_with("unix:"));
        let unix = unix.map_or("unix:", String::as_str);
        Ok(Client::connect(&Address::parse(unix)?, None).await?)
    }

    /// Goes with it.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// Bytes of memory that the server has for itself.
    pub(super) fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.server.pid);
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    }

    /// Seconds that the server has had a processor for, in the kernel included.
    pub(super) fn processor_seconds(&self) -> f64 {
        /// The unit of the file, fixed for programs whatever the kernel's own is.
        const TICKS: f64 = 100.0;
        let path = format!("/proc/{}/stat", self.server.pid);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The name in brackets may contain anything; the fields behind it are numbers.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
        let spent = fields.split_whitespace().skip(11).take(2);
        spent.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
    }
}

/// The server ends, and with it everything that is left in it.
impl Drop for Beside {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        tidy::remove_directory(self.directory.path());
    }
}
