//! Requests that want a WebSocket.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use http::request::Parts;

use crate::limit::Admitted;
use crate::problem::{Problem, Result};

/// What waits to be sent: a client that takes nothing makes us remember no more.
const MAX_UNSENT: usize = 4 << 20;

/// A request that wants a WebSocket.
pub(super) struct Upgrade {
    upgrade: WebSocketUpgrade,
    /// Under way until the conversation ends.
    admitted: Option<Arc<Admitted>>,
}

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let admitted = parts.extensions.get().cloned();
        upgrade.map(|upgrade| Self { upgrade, admitted }).map_err(|rejection| {
            Problem::invalid("this path speaks WebSocket")
                .caused_by(&rejection)
                .with_remedy("connect with a WebSocket client")
        })
    }
}

impl Upgrade {
    /// Messages larger than `max_message` end the conversation.
    pub(super) fn open<F>(
        self,
        max_message: usize,
        talk: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { upgrade, admitted } = self;
        upgrade
            .max_message_size(max_message)
            .max_frame_size(max_message)
            .max_write_buffer_size(MAX_UNSENT)
            .on_upgrade(async move |socket| {
                let _admitted = admitted;
                talk(socket).await;
            })
    }
}
