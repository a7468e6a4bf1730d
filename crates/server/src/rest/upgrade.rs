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
    /// For what of the conversation outlives it.
    pub(super) fn admitted(&self) -> Option<Arc<Admitted>> {
        self.admitted.clone()
    }

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belljar_codes::Code;
    use belljar_engine::{Engine, EngineOptions, TenantId};
    use futures_util::StreamExt;
    use hyper_util::server::graceful::GracefulShutdown;
    use tokio_tungstenite::client_async;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;

    use super::*;
    use crate::api::Api;
    use crate::limit::MAX_UNDER_WAY;
    use crate::listen::Serving;
    use crate::own_keys::OwnKeys;
    use crate::patience::Patience;
    use crate::peer::Peer;
    use crate::router::router;
    use crate::status::Status;

    const KEY: &str = "0123456789abcdef";

    #[tokio::test]
    async fn a_conversation_is_under_way_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open(EngineOptions::new(directory.path(), Vec::new())).await.unwrap();
        let status = Arc::new(Status::new(Vec::new(), false, false));
        let api = Api::new(engine, Arc::clone(&status));
        let mut own_keys = OwnKeys::default();
        own_keys.add(&format!("{KEY} default"), "the test").unwrap();
        let patience = Patience::default();
        let serving = Serving::new(router(&api, own_keys, patience), status, patience);
        let (near, far) = tokio::io::duplex(64 << 10);
        // Dropped, it ends connections.
        let graceful = GracefulShutdown::new();
        tokio::spawn(serving.connection(far, Peer::Embedded, (), graceful.watcher()));
        let mut request = "ws://localhost/v1/callbacks".into_client_request().unwrap();
        request.headers_mut().insert("x-api-key", KEY.parse().unwrap());
        let (mut socket, _) = client_async(request, near).await.unwrap();
        // That it is answered shows that the request itself is over.
        assert!(socket.next().await.unwrap().unwrap().is_ping());

        let (limits, tenant) = (api.limits(), TenantId::default());
        let mut others = Vec::new();
        let refused = loop {
            match limits.admit(&tenant).await {
                Ok(admitted) => others.push(admitted),
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused.code, others.len() as u64), (Code::RateLimited, MAX_UNDER_WAY - 1));
        drop(socket);
        let last = async {
            while limits.admit(&tenant).await.map(|admitted| others.push(admitted)).is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), last).await.expect("its place is given back");
        assert_eq!(others.len() as u64, MAX_UNDER_WAY);
    }
}
