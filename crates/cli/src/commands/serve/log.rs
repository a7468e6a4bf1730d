//! Where a server writes what it has to say: standard error, which for an automatic server is a bounded file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_server::Telemetry;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::context::log_filter;
use crate::failure::Failure;
use crate::settings::Settings;

/// What a server tells by default.
const DEFAULT_FILTER: &str = "warn";

/// A file that is larger becomes the old one, and the old one goes.
const MAX_LOG: u64 = 4 << 20;

/// Begins to log; with a state directory, into its file. Spans go to a collector where there is one.
pub(super) fn start(
    settings: &Settings,
    state_dir: Option<&Path>,
    telemetry: Option<&Telemetry>,
) -> Result<(), Failure> {
    let filter = log_filter(settings)?.unwrap_or_else(|| EnvFilter::new(DEFAULT_FILTER));
    let writer = Writer { file: state_dir.map(|dir| Arc::new(Mutex::new(LogFile::new(dir)))) };
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(telemetry.map(Telemetry::layer))
        .init();
    Ok(())
}

/// Nobody reads it from now on, and what is started later must not hold on to it.
pub(super) fn close_stdout() {
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        // Where it fails, a pipe stays open that nobody waits for.
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

#[derive(Clone)]
struct Writer {
    file: Option<Arc<Mutex<LogFile>>>,
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(file) = &self.file {
            file.lock().unwrap_or_else(PoisonError::into_inner).make_room(line.len());
        }
        io::stderr().lock().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file behind standard error.
struct LogFile {
    path: PathBuf,
    written: u64,
}

impl LogFile {
    fn new(state_dir: &Path) -> Self {
        let path = state_dir.join("server.log");
        let written = path.metadata().map_or(0, |found| found.len());
        Self { path, written }
    }

    fn make_room(&mut self, bytes: usize) {
        self.written += bytes as u64;
        if self.written > MAX_LOG
            && let Ok(fresh) = self.begin_anew()
        {
            // Standard error is the file, so that whatever else writes there is bounded too.
            let _ = rustix::stdio::dup2_stderr(&fresh);
            self.written = bytes as u64;
        }
    }

    fn begin_anew(&self) -> io::Result<File> {
        std::fs::rename(&self.path, self.path.with_extension("log.old"))?;
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_anew_before_it_grows_without_end() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("server.log"), "old").unwrap();
        let file = LogFile::new(directory.path());
        assert_eq!(file.written, 3);
        file.begin_anew().unwrap().write_all(b"new").unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!((read("server.log").as_str(), read("server.log.old").as_str()), ("new", "old"));
    }
}
