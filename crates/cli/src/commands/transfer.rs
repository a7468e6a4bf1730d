//! Bytes between blocking readers and writers of this machine and streams of the server, in constant memory.

use std::io::{self, Read, Write};

use belljar_api::v1;
use belljar_client::{Status, Streaming};
use belljar_codes::Code;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use crate::failure::Failure;

/// Small enough for one frame, large enough to be worth one.
const PIECE: usize = 128 * 1024;

/// Pieces on their way.
const QUEUE: usize = 4;

/// Sends what `produce` writes, as the stream that `call` is given. What fails on this side ends the call before it
/// is complete, so that half a file is never taken for a whole one.
pub(super) async fn upload<T>(
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    call: impl AsyncFnOnce(ReceiverStream<Vec<u8>>) -> Result<T, Status>,
) -> Result<T, Failure> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (failed, failure) = oneshot::channel();
    std::thread::spawn(move || {
        let mut writer = PieceWriter { sender, piece: Vec::with_capacity(PIECE) };
        if let Err(error) = produce(&mut writer).and_then(|()| writer.flush()) {
            // The sender goes along: without it the stream would end as if all had been said.
            let _ = failed.send((error, writer));
        }
    });
    let mut call = Box::pin(call(ReceiverStream::new(receiver)));
    tokio::select! {
        result = &mut call => return Ok(result?),
        // Where nobody takes what is sent, the call has ended, and says why.
        failure = failure => if let Ok((error, writer)) = failure && !writer.sender.is_closed() {
            // Before the writer goes, which would look like the end.
            drop(call);
            return Err(Failure::new(Code::FileFailed, "what was to be sent cannot be read").caused_by(&error));
        }
    }
    Ok(call.await?)
}

/// Gives what comes to `consume`, which runs where it may block.
pub(super) async fn download<T: Send + 'static>(
    mut chunks: Streaming<v1::FileChunk>,
    consume: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let worker = tokio::task::spawn_blocking(move || {
        consume(&mut PieceReader { receiver, piece: Vec::new(), at: 0 })
    });
    let mut broken = None;
    loop {
        match chunks.message().await {
            Ok(Some(chunk)) => {
                // A consumer that has enough, or failed, tells so below.
                if sender.send(Ok(chunk.data.into())).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(status) => {
                let _ = sender.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
                broken = Some(Failure::from(status));
                break;
            }
        }
    }
    drop(sender);
    let result = worker.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    match (broken, result) {
        (Some(failure), _) => Err(failure),
        (None, Ok(value)) => Ok(value),
        (None, Err(error)) => {
            Err(Failure::new(Code::FileFailed, "what came cannot be written here")
                .caused_by(&error))
        }
    }
}

struct PieceWriter {
    sender: mpsc::Sender<Vec<u8>>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&data[..taken]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct PieceReader {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.receiver.blocking_recv() {
                Some(piece) => (self.piece, self.at) = (piece?, 0),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn who_refuses_before_everything_was_sent_says_why() {
        let (noticed, notice) = oneshot::channel();
        let refused = upload(
            move |to| loop {
                if let Err(error) = to.write_all(&[0; PIECE]) {
                    let _ = noticed.send(());
                    return Err(error);
                }
            },
            async |pieces| {
                drop(pieces);
                // The answer comes after the sender has noticed.
                let _ = notice.await;
                for _ in 0..10_000 {
                    tokio::task::yield_now().await;
                }
                Err::<(), _>(Status::permission_denied("no"))
            },
        );
        assert_ne!(refused.await.unwrap_err().code, Code::FileFailed);
    }

    #[tokio::test]
    async fn bytes_arrive_in_pieces_and_in_order() {
        let data: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let sent = data.clone();
        let received = upload(
            move |to| to.write_all(&sent),
            async |mut pieces| {
                let mut all = Vec::new();
                while let Some(piece) = pieces.next().await {
                    assert!(piece.len() <= PIECE);
                    all.extend(piece);
                }
                Ok(all)
            },
        )
        .await
        .unwrap();
        assert_eq!(received, data);
    }

    #[tokio::test]
    async fn a_failure_here_does_not_look_like_the_end() {
        let result = upload(
            |to| {
                to.write_all(b"half")?;
                to.flush()?;
                Err(io::Error::other("gone"))
            },
            async |mut pieces| {
                while pieces.next().await.is_some() {}
                Ok(())
            },
        )
        .await;
        assert_eq!(result.unwrap_err().causes, ["gone"]);
    }

    /// Where somebody else reads the stream, as a connection does, it could do so between the two.
    #[tokio::test]
    async fn the_stream_has_not_ended_when_its_call_is_given_up() {
        struct Call(ReceiverStream<Vec<u8>>, Option<oneshot::Sender<bool>>);
        impl Drop for Call {
            fn drop(&mut self) {
                let ended =
                    self.0.as_mut().try_recv() == Err(mpsc::error::TryRecvError::Disconnected);
                self.1.take().unwrap().send(ended).unwrap();
            }
        }
        let (tell, told) = oneshot::channel();
        let result = upload(
            |_| Err(io::Error::other("gone")),
            async |pieces| {
                let _call = Call(pieces, Some(tell));
                std::future::pending::<Result<(), Status>>().await
            },
        )
        .await;
        assert_eq!(result.unwrap_err().causes, ["gone"]);
        assert!(!told.await.unwrap(), "it had ended");
    }
}
