//! Talking to the launcher process.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_backend::{Error, Result};
use belljar_codes::Code;
use belljar_launcher::wire::{Answer, Ask, Reply, Request};
use belljar_sys::message;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

type Waiting = Mutex<HashMap<u64, oneshot::Sender<(Answer, Vec<OwnedFd>)>>>;

/// A launcher of our own. It ends, after finishing what it was asked, when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Waiting>,
    next_serial: AtomicU64,
    process: Mutex<Option<Child>>,
    reader: tokio::task::JoinHandle<()>,
}

impl Client {
    /// Starts `program launcher 0` with our end of a socket pair as its standard input.
    pub(crate) fn spawn(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = message::pair()?;
        let process = Command::new(program)
            .arg0("belljar")
            .args(["launcher", "0"])
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that may lie; OwnedFd cannot"
        )]
        let socket = Arc::new(AsyncFd::new(ours)?);
        let waiting = Arc::new(Waiting::default());
        let reader = tokio::spawn(read_replies(Arc::clone(&socket), Arc::clone(&waiting)));
        Ok(Self {
            socket,
            waiting,
            next_serial: AtomicU64::new(1),
            process: Mutex::new(Some(process)),
            reader,
        })
    }

    /// Asks and waits for the answer. Descriptors are borrowed for the time of sending.
    pub(crate) async fn ask(&self, ask: Ask, descriptors: &[Arc<OwnedFd>]) -> Result<Answer> {
        Ok(self.ask_for(ask, descriptors).await?.0)
    }

    /// The same, with the descriptors that came with the answer.
    pub(crate) async fn ask_for(
        &self,
        ask: Ask,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        let bytes = postcard::to_stdvec(&Request { serial, ask })
            .map_err(|error| failed("encode a request").with_source(error))?;
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(serial, sender);
        let borrowed: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
        let sent = self
            .socket
            .async_io(Interest::WRITABLE, |socket| message::send(socket, &bytes, &borrowed))
            .await;
        if let Err(error) = sent {
            lock(&self.waiting).remove(&serial);
            let code = match error.kind() {
                io::ErrorKind::InvalidInput => Code::ArgumentsTooLarge,
                _ => Code::LauncherFailed,
            };
            return Err(
                Error::new(code, "cannot send a request to the launcher").with_source(error)
            );
        }
        receiver.await.map_err(|_| failed("the launcher ended before it answered"))
    }

    /// Whether the launcher still answers.
    pub(crate) fn is_open(&self) -> bool {
        !self.reader.is_finished()
    }

    /// Lets the launcher finish and waits for its end.
    pub(crate) async fn close(&self) {
        self.reader.abort();
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
        let process = lock(&self.process).take();
        if let Some(mut process) = process {
            let _ = tokio::task::spawn_blocking(move || process.wait()).await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
    }
}

async fn read_replies(socket: Arc<AsyncFd<OwnedFd>>, waiting: Arc<Waiting>) {
    let mut buffer = vec![0; message::MAX_MESSAGE];
    loop {
        let received = socket
            .async_io(Interest::READABLE, |socket| message::receive(socket, &mut buffer))
            .await;
        let Ok((length @ 1.., descriptors)) = received else { break };
        let Ok(reply) = postcard::from_bytes::<Reply>(&buffer[..length]) else { break };
        if let Some(asker) = lock(&waiting).remove(&reply.serial) {
            let _ = asker.send((reply.answer, descriptors));
        }
    }
    // Whoever still waits learns that no answer comes: dropping the senders wakes them.
    lock(&waiting).clear();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(message: &str) -> Error {
    Error::new(Code::LauncherFailed, message).with_remedy(
        "run the command again; `belljar doctor --leaks` shows whether anything was left behind",
    )
}
