//! Frames of one stream that have arrived and wait for their reader.
//!
//! Holds what the window allows and nothing more: bulk data beyond it is a breach of the protocol. When a reader falls
//! behind, pieces of the same channel are joined, so a workload that writes single bytes cannot make the queue cost
//! more than its bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{Change, change};
use tokio::sync::{Notify, watch};

use super::{AgentError, WINDOW};

/// From this many waiting frames on, data is joined to the last frame of its channel.
const JOIN_FROM: usize = 32;

/// Two output channels full, plus what is under way when the reader acknowledges.
const MAX_BYTES: usize = 3 * WINDOW;

/// Frames without bulk data; no honest exchange has more than a few under way.
const MAX_FRAMES: usize = 4096;

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Notify,
    acknowledged: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Body>,
    bytes: usize,
    exited: bool,
    closed: Option<AgentError>,
}

/// The sender went beyond what it may have under way.
#[derive(Debug)]
pub(super) struct Overrun;

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            arrived: Notify::new(),
            acknowledged: watch::Sender::new(0),
        }
    }

    pub(super) fn push(&self, body: Body) -> Result<(), Overrun> {
        if let Body::Acknowledge(acknowledge) = &body {
            // Acknowledgements overtake data: whoever sends must not depend on whoever reads.
            self.acknowledged.send_if_modified(|known| {
                let newer = acknowledge.offset > *known;
                *known = acknowledge.offset.max(*known);
                newer
            });
            return Ok(());
        }
        let mut state = self.lock();
        state.exited |= matches!(body, Body::Exited(_));
        state.bytes += size(&body);
        if state.bytes > MAX_BYTES {
            return Err(Overrun);
        }
        let body = match body {
            Body::Change(change) if state.frames.len() >= MAX_FRAMES / 2 => {
                return {
                    state.overflow(change);
                    Ok(())
                };
            }
            body => body,
        };
        if let Some(body) = state.join(body) {
            if state.frames.len() >= MAX_FRAMES {
                return Err(Overrun);
            }
            state.frames.push_back(body);
        }
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// No more frames will come. Those that have arrived can still be taken.
    pub(super) fn close(&self, error: &AgentError) {
        self.lock().closed.get_or_insert_with(|| error.clone());
        self.arrived.notify_one();
        self.acknowledged.send_modify(|_| {});
    }

    /// The next frame. One reader at a time; giving up waiting loses nothing.
    pub(super) async fn next(&self) -> Result<Body, AgentError> {
        loop {
            let arrived = self.arrived.notified();
            if let Some(next) = self.try_next() {
                return next;
            }
            arrived.await;
        }
    }

    pub(super) fn try_next(&self) -> Option<Result<Body, AgentError>> {
        let mut state = self.lock();
        match state.frames.pop_front() {
            Some(body) => {
                state.bytes -= size(&body);
                Some(Ok(body))
            }
            None => state.closed.clone().map(Err),
        }
    }

    /// Whether the process's end has arrived, read or not.
    pub(super) fn has_exited(&self) -> bool {
        self.lock().exited
    }

    /// Waits until the other side has taken care of everything below `offset`.
    pub(super) async fn acknowledged(&self, offset: u64) -> Result<(), AgentError> {
        let mut known = self.acknowledged.subscribe();
        loop {
            if *known.borrow_and_update() >= offset {
                return Ok(());
            }
            if let Some(error) = self.lock().closed.clone() {
                return Err(error);
            }
            if known.changed().await.is_err() {
                return Err(AgentError::gone());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds the data of `body` to a waiting frame of the same channel, or gives it back.
    fn join(&mut self, body: Body) -> Option<Body> {
        if self.frames.len() < JOIN_FROM {
            return Some(body);
        }
        match body {
            Body::Output(output) => {
                let same = self.frames.iter_mut().rev().find_map(|frame| match frame {
                    Body::Output(last) if last.channel == output.channel => Some(last),
                    _ => None,
                });
                match same {
                    // Only what continues where the other ends; anything else is for the reader to judge.
                    Some(last)
                        if last.offset.checked_add(last.data.len() as u64)
                            == Some(output.offset) =>
                    {
                        last.data.extend_from_slice(&output.data);
                        None
                    }
                    _ => Some(Body::Output(output)),
                }
            }
            Body::Data(data) => match self.frames.back_mut() {
                Some(Body::Data(last)) if !last.end => {
                    last.data.extend_from_slice(&data.data);
                    last.end = data.end;
                    None
                }
                _ => Some(Body::Data(data)),
            },
            other => Some(other),
        }
    }

    /// A reader of changes that lags too far is told to list again.
    fn overflow(&mut self, change: Change) {
        let overflow = change::What::Overflow as i32;
        match self.frames.back() {
            Some(Body::Change(last)) if last.what == overflow => {}
            _ => self.frames.push_back(Body::Change(Change { what: overflow, ..change })),
        }
    }
}

fn size(body: &Body) -> usize {
    match body {
        Body::Output(output) => output.data.len(),
        Body::Data(data) => data.data.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use belljar_protocol::v1::{Acknowledge, Closed, Exited, Output};

    use super::*;

    fn output(channel: i32, offset: u64, data: &[u8]) -> Body {
        Body::Output(Output { channel, offset, data: data.to_vec() })
    }

    #[tokio::test]
    async fn single_bytes_of_two_channels_cost_few_frames() {
        let queue = Queue::new();
        for offset in 0..10_000u64 {
            queue.push(output(0, offset, b"o")).unwrap();
            queue.push(output(1, offset, b"e")).unwrap();
        }
        assert!(queue.lock().frames.len() <= JOIN_FROM + 2);
        queue.push(Body::Exited(Exited::default())).unwrap();
        assert!(queue.has_exited());
        let mut ends = [0, 0];
        loop {
            match queue.next().await.unwrap() {
                Body::Output(output) => {
                    let end = &mut ends[output.channel as usize];
                    assert_eq!(output.offset, *end);
                    *end += output.data.len() as u64;
                }
                Body::Exited(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ends, [10_000, 10_000]);
        assert_eq!(queue.lock().bytes, 0);
    }

    #[test]
    fn offsets_that_cannot_be_are_for_the_reader_to_judge() {
        let queue = Queue::new();
        for _ in 0..2 * JOIN_FROM {
            queue.push(output(0, u64::MAX, b"o")).unwrap();
        }
        assert_eq!(queue.lock().frames.len(), 2 * JOIN_FROM);
    }

    #[test]
    fn more_than_the_window_is_a_breach() {
        let queue = Queue::new();
        let piece = vec![0; 64 << 10];
        let accepted = (0..1000u64)
            .take_while(|n| queue.push(output(0, n * (64 << 10), &piece)).is_ok())
            .count();
        assert_eq!(accepted, MAX_BYTES / piece.len());
    }

    #[tokio::test]
    async fn what_arrived_before_the_end_is_delivered() {
        let queue = Queue::new();
        queue.push(Body::Closed(Closed {})).unwrap();
        queue.close(&AgentError::gone());
        assert!(matches!(queue.next().await, Ok(Body::Closed(_))));
        assert!(queue.next().await.is_err());
        assert!(queue.acknowledged(1).await.is_err());
    }

    #[tokio::test]
    async fn acknowledgements_overtake() {
        let queue = Queue::new();
        queue.push(output(0, 0, b"waiting")).unwrap();
        queue.push(Body::Acknowledge(Acknowledge { channel: 2, offset: 10 })).unwrap();
        queue.acknowledged(10).await.unwrap();
    }

    #[test]
    fn a_flood_of_changes_becomes_one_overflow() {
        let queue = Queue::new();
        for _ in 0..100_000 {
            queue.push(Body::Change(Change::default())).unwrap();
        }
        let state = queue.lock();
        assert!(state.frames.len() <= MAX_FRAMES);
        let Some(Body::Change(last)) = state.frames.back() else { panic!("a change") };
        assert_eq!(last.what, change::What::Overflow as i32);
    }
}
