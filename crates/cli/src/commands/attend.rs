//! Stands between a person and a process: standard input goes in, signals are passed on.
//!
//! Runs beside whoever reads the process's output, and ends when it is dropped.

use std::io::Read;
use std::time::Duration;

use belljar_client::Status;
use belljar_codes::Code;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::control::Control;
use crate::failure::Failure;
use crate::terminal;

/// Chunks of standard input on their way; more waits in the kernel.
const INPUT_QUEUE: usize = 4;
const INPUT_CHUNK: usize = 32 * 1024;

/// Between TERM and KILL when we are asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// Signals that come so close to each other are one wish: a terminal that closes sends several, and so does who makes sure.
/// It is also the time that work has at least to reach whoever does it.
const TOGETHER: Duration = Duration::from_millis(500);

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;

/// What is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// Signals only; the process has no input.
    Signals,
    /// Signals and standard input.
    Input,
    /// Keys and the size of the terminal. Ctrl-C is a key.
    Terminal,
}

/// Passes input and signals on until dropped.
#[derive(Debug)]
pub(crate) struct Attendant {
    tasks: Vec<JoinHandle<()>>,
}

impl Attendant {
    pub(crate) fn start(control: &Control, attention: Attention) -> Result<Self, Failure> {
        let mut tasks =
            vec![tokio::spawn(pass_signals(control.clone(), Signals::watch()?, attention))];
        if attention != Attention::Signals {
            tasks.push(tokio::spawn(pass_input(control.clone(), read_stdin(Some))));
        }
        Ok(Self { tasks })
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The signals that say something to us, or to whom we attend.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started us wants us to outlive the terminal, as `nohup` does.
    hang_up: Option<Signal>,
    window: Signal,
}

impl Signals {
    pub(super) fn watch() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
            hang_up: hang_up_counts().then(|| watch(SignalKind::hangup())).transpose()?,
            window: watch(SignalKind::window_change())?,
        })
    }

    /// Waits until somebody wants us to end; the exit status that a shell expects then.
    pub(super) async fn ending(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            () = hung_up(&mut self.hang_up) => 129,
        }
    }
}

/// Watching a signal undoes that it is ignored.
pub(super) fn hang_up_counts() -> bool {
    !belljar_sys::signals::is_ignored(rustix::process::Signal::HUP)
}

async fn hung_up(hang_up: &mut Option<Signal>) {
    match hang_up {
        Some(hang_up) => _ = hang_up.recv().await,
        None => std::future::pending().await,
    }
}

/// Sees work through that would leave something behind. Who asks us to end, or has already, is told so when it takes long;
/// who asks again after that has that status.
pub(super) async fn see_through<T>(
    work: impl Future<Output = T>,
    mut signal: impl AsyncFnMut() -> u8,
    mut asked: Option<u8>,
    tell: impl FnOnce(),
) -> Result<(T, Option<u8>), u8> {
    let mut work = std::pin::pin!(work);
    // In the order that they are written in: what is done is done, whoever asks meanwhile.
    if asked.is_none() {
        tokio::select! {
            biased;
            done = &mut work => return Ok((done, None)),
            status = signal() => asked = Some(status),
        }
    }
    let mut together = std::pin::pin!(tokio::time::sleep(TOGETHER));
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok((done, asked)),
            _ = signal() => {}
            () = &mut together => break,
        }
    }
    tell();
    tokio::select! {
        biased;
        done = work => Ok((done, asked)),
        status = signal() => Err(status),
    }
}

async fn pass_signals(control: Control, mut signals: Signals, attention: Attention) {
    let mut interrupted = false;
    loop {
        // A process that is gone answers with an error, and its end is on the way to the reader: nothing to do.
        let _ = tokio::select! {
            _ = signals.interrupt.recv() => {
                let again = std::mem::replace(&mut interrupted, true);
                // Who presses Ctrl-C twice means it.
                if again { control.cancel(Duration::ZERO).await } else { control.signal(SIGINT).await }
            }
            _ = signals.terminate.recv() => end(&control, attention).await,
            () = hung_up(&mut signals.hang_up) => end(&control, attention).await,
            _ = signals.window.recv(), if attention == Attention::Terminal => {
                let (rows, columns) = terminal::size();
                control.resize(rows, columns).await
            }
        };
    }
}

/// Passes only the terminal's size on: at once, and whenever it changes.
pub(crate) fn pass_size(control: Control) -> Result<impl Future<Output = ()> + Send, Failure> {
    let mut window = watch(SignalKind::window_change())?;
    Ok(async move {
        loop {
            let (rows, columns) = terminal::size();
            let _ = control.resize(rows, columns).await;
            window.recv().await;
        }
    })
}

fn watch(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| {
        Failure::new(Code::HostExhausted, "signals cannot be watched").caused_by(&error)
    })
}

/// Asks the process to end, and sees to it.
async fn end(control: &Control, attention: Attention) -> Result<(), Status> {
    if attention == Attention::Terminal {
        // Interactive shells ignore TERM, but leave when their terminal does.
        control.signal(SIGHUP).await?;
    }
    control.cancel(GRACE).await
}

async fn pass_input(control: Control, input: mpsc::Receiver<Vec<u8>>) {
    // A process that does not read, or has ended, is told by its output.
    let _ = control.input(input).await;
}

/// A thread of its own reads, because a read from a terminal or a slow pipe cannot be given up; it ends with this
/// process. Every piece goes through `filter`, which ends the input with `None`.
pub(crate) fn read_stdin(
    mut filter: impl FnMut(Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(INPUT_QUEUE);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; INPUT_CHUNK];
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    let Some(piece) = filter(buffer[..count].to_vec()) else { return };
                    if sender.blocking_send(piece).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn work_is_seen_through_unless_one_asks_again() {
        let (asks, mut asked) = mpsc::unbounded_channel();
        let mut next = async || match asked.recv().await {
            Some(status) => status,
            None => std::future::pending().await,
        };
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        // Not asked.
        let seen = see_through(async { 7 }, &mut next, None, tell).await;
        assert_eq!((seen, told.get()), (Ok((7, None)), 0));
        // Asked once, or several times at once: it goes on, and says so when it takes long.
        let wishes: [(&[u8], Option<u8>); 3] =
            [(&[143], None), (&[129, 143], None), (&[143], Some(129))];
        for (asks_now, already) in wishes {
            let (finish, finished) = tokio::sync::oneshot::channel();
            for status in asks_now {
                asks.send(*status).unwrap();
            }
            told.set(0);
            let finish_when_told = || {
                tell();
                finish.send(8).unwrap();
            };
            let work = async { finished.await.unwrap() };
            let seen = see_through(work, &mut next, already, finish_when_told).await;
            let status = already.unwrap_or(asks_now[0]);
            assert_eq!((seen, told.get()), (Ok((8, Some(status))), 1), "{asks_now:?}");
        }
        // And again, having been told: it does not.
        for already in [None, Some(130)] {
            asks.send(130).unwrap();
            let again = || asks.send(143).unwrap();
            let seen = see_through(std::future::pending::<()>(), &mut next, already, again).await;
            assert_eq!(seen, Err(143));
        }
        // What is done at once is done, also where somebody asks.
        asks.send(143).unwrap();
        assert_eq!(see_through(async { 9 }, &mut next, None, tell).await, Ok((9, None)));
    }
}
