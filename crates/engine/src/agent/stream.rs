//! One request on a connection, and what comes back.

use std::sync::Arc;

use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{Acknowledge, Frame};

use super::queue::Queue;
use super::{AgentError, Connection};

/// An open stream. Dropping it makes later frames of it be ignored; it does not tell the agent.
#[derive(Debug)]
pub(crate) struct Stream {
    number: u64,
    queue: Arc<Queue>,
    connection: Arc<Connection>,
}

impl Stream {
    pub(super) fn new(number: u64, queue: Arc<Queue>, connection: Arc<Connection>) -> Self {
        Self { number, queue, connection }
    }

    /// Sends a frame on this stream without waiting.
    pub(crate) fn post(&self, body: Body) -> Result<(), AgentError> {
        self.connection.post(Frame { stream: self.number, body: Some(body) })
    }

    /// Sends bulk data on this stream, after waiting for room in the way out.
    pub(crate) async fn send(&self, body: Body) -> Result<(), AgentError> {
        self.connection.room().await;
        self.post(body)
    }

    /// The next frame; the connection's end is an error, a refusal is a frame.
    pub(crate) async fn next(&self) -> Result<Body, AgentError> {
        self.queue.next().await
    }

    pub(crate) fn try_next(&self) -> Option<Result<Body, AgentError>> {
        self.queue.try_next()
    }

    /// The next frame, where a refusal is an error too.
    pub(crate) async fn answer(&self) -> Result<Body, AgentError> {
        match self.next().await? {
            Body::Failure(failure) => Err(AgentError::refused(failure)),
            body => Ok(body),
        }
    }

    pub(crate) fn acknowledge(&self, channel: i32, offset: u64) -> Result<(), AgentError> {
        self.post(Body::Acknowledge(Acknowledge { channel, offset }))
    }

    /// Waits until the agent has taken care of everything that was sent below `offset`.
    pub(crate) async fn acknowledged(&self, offset: u64) -> Result<(), AgentError> {
        self.queue.acknowledged(offset).await
    }

    /// Whether the process's end has arrived, read or not.
    pub(crate) fn has_exited(&self) -> bool {
        self.queue.has_exited()
    }

    /// Ends the stream on this side; whoever waits on it is given `error`.
    pub(crate) fn finish(&self, error: &AgentError) {
        self.queue.close(error);
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.forget(self.number);
    }
}
