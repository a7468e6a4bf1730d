//! The server's abilities in this very process: the same services, over a connection that never leaves it.

use std::sync::Arc;

use belljar_engine::Engine;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::api::Api;
use crate::listen::Serving;
use crate::own_keys::OwnKeys;
use crate::patience::Patience;
use crate::peer::Peer;
use crate::router::router;
use crate::status::Status;

/// Bytes on their way between both ends.
const PIPE: usize = 256 << 10;

/// A channel to the engine. Nothing listens anywhere; the caller is the operator.
#[must_use]
pub fn embedded(engine: Engine) -> Channel {
    let status = Arc::new(Status::new(vec!["embedded".to_owned()], false, false));
    let api = Api::new(engine, Arc::clone(&status));
    let patience = Patience::default();
    let serving = Serving::new(router(&api, OwnKeys::default(), patience), status, patience);
    // Never connected to: the connector below ignores it.
    let endpoint = Endpoint::from_static("http://embedded.invalid");
    // Connections end when it is dropped, so it lives as long as the channel.
    let graceful = GracefulShutdown::new();
    endpoint.connect_with_connector_lazy(service_fn(move |_| {
        let (serving, watcher) = (serving.clone(), graceful.watcher());
        async move {
            let (near, far) = tokio::io::duplex(PIPE);
            tokio::spawn(serving.connection(far, Peer::Embedded, (), watcher));
            Ok::<_, std::convert::Infallible>(TokioIo::new(near))
        }
    }))
}
