//! Acting on a process through the server.

use std::time::Duration;

use belljar_api::v1;
use belljar_client::{Client, Status};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

/// One process that runs somewhere.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    client: Client,
    process_id: String,
}

impl Control {
    pub(crate) fn new(client: &Client, process_id: impl Into<String>) -> Self {
        Self { client: client.clone(), process_id: process_id.into() }
    }

    pub(crate) async fn signal(&self, signal: i32) -> Result<(), Status> {
        let request = v1::SignalProcessRequest { process_id: self.process_id.clone(), signal };
        self.client.processes.clone().signal_process(request).await.map(drop)
    }

    /// TERM, and KILL after `grace`.
    pub(crate) async fn cancel(&self, grace: Duration) -> Result<(), Status> {
        let request = v1::CancelProcessRequest {
            process_id: self.process_id.clone(),
            grace_secs: Some(grace.as_secs_f64()),
        };
        self.client.processes.clone().cancel_process(request).await.map(drop)
    }

    pub(crate) async fn resize(&self, rows: u16, columns: u16) -> Result<(), Status> {
        let size = v1::Terminal { rows: rows.into(), columns: columns.into() };
        let process_id = self.process_id.clone();
        let request = v1::ResizeTerminalRequest { process_id, size: Some(size) };
        self.client.processes.clone().resize_terminal(request).await.map(drop)
    }

    /// Writes what comes out of `input` to the process, and closes its standard input when `input` ends.
    pub(crate) async fn input(&self, input: mpsc::Receiver<Vec<u8>>) -> Result<(), Status> {
        let last = v1::WriteInputRequest { close: true, ..v1::WriteInputRequest::default() };
        let messages = self.pieces(input).chain(tokio_stream::once(last));
        self.client.processes.clone().write_input(messages).await.map(drop)
    }

    /// As [`Control::input`], for one of several who type: the end of `input` closes nothing.
    pub(crate) async fn keys(&self, input: mpsc::Receiver<Vec<u8>>) -> Result<(), Status> {
        self.client.processes.clone().write_input(self.pieces(input)).await.map(drop)
    }

    fn pieces(
        &self,
        input: mpsc::Receiver<Vec<u8>>,
    ) -> impl Stream<Item = v1::WriteInputRequest> + Send + use<> {
        let first = v1::WriteInputRequest {
            process_id: self.process_id.clone(),
            ..v1::WriteInputRequest::default()
        };
        let pieces = ReceiverStream::new(input).map(|piece| v1::WriteInputRequest {
            data: piece.into(),
            ..v1::WriteInputRequest::default()
        });
        tokio_stream::once(first).chain(pieces)
    }
}
