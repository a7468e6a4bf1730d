//! Long work, kept off the threads that answer everybody.
//!
//! A server has few of those, so what computes for more than about a millisecond, or waits for a disk, is done on another
//! thread. Not here: work that is cut into short pieces, such as the transfer of files; it yields between them.

use std::sync::LazyLock;

use belljar_codes::Code;
use tokio::sync::Semaphore;

use crate::{Error, Result};

/// One kind of long work. Half of the processors do it, and the other half answers what takes little, however much of it
/// waits. Work of one kind does not wait for that of another.
pub(crate) struct Turns(LazyLock<Semaphore>);

static COMPUTING: Turns = Turns::new();

impl Turns {
    pub(crate) const fn new() -> Self {
        Self(LazyLock::new(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            Semaphore::new((processors / 2).max(1))
        }))
    }

    /// See [`aside`].
    pub(crate) async fn take<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let turn = self.0.acquire().await.expect("it is never closed");
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        });
        done.await.map_err(ended)
    }
}

/// Computes something that may take long. It takes its turn among others, and goes on if nobody waits for it any more.
///
/// # Errors
/// `internal` where the work panicked.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    COMPUTING.take(work).await
}

/// Computes something aside if it is long, and at once if handing it over would take longer.
///
/// # Errors
/// `internal` where the work panicked.
pub async fn aside_if<T: Send + 'static>(
    long: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if long { aside(work).await } else { Ok(work()) }
}

/// Work with files of this host, which waits more than it computes.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(ended)?
}

fn ended(source: tokio::task::JoinError) -> Error {
    Error::new(Code::Internal, "a task of the engine ended").with_source(source)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// With one thread for everybody, work that waits for a task of that thread would never end on it.
    #[tokio::test]
    async fn others_go_on_meanwhile() {
        let (tell, told) = mpsc::channel();
        let long = tokio::spawn(aside(move || told.recv().unwrap()));
        let other = tokio::spawn(async move { tell.send(7).unwrap() });
        other.await.unwrap();
        assert_eq!(long.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn what_is_short_stays() {
        let here = std::thread::current().id();
        let work = || std::thread::current().id();
        assert_eq!(aside_if(false, work).await.unwrap(), here);
        assert_ne!(aside_if(true, work).await.unwrap(), here);
    }

    #[tokio::test]
    async fn a_turn_ends_with_its_work_also_if_that_fails() {
        for _ in 0..100 {
            let failed = aside(|| assert!(std::hint::black_box(false), "on purpose")).await;
            assert_eq!(failed.unwrap_err().code(), Code::Internal);
        }
        assert_eq!(aside(|| 1).await.unwrap(), 1);
    }
}
