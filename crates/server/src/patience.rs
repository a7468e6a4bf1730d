//! How long a client may take.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http::header::CONTENT_TYPE;
use tower_http::timeout::TimeoutBody;

/// The time a client has to say what it wants.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the whole head of a request, from the connection on.
    pub head: Duration,
    /// Between two pieces of a request's body.
    pub body: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(60), body: Duration::from_secs(30) }
    }
}

impl Patience {
    /// gRPC-Web sends one message, so its body has no reason to stop in the middle. Streams of gRPC may be silent for as
    /// long as they like: there the connection itself gives signs of life.
    pub(crate) fn bound(self, request: Request) -> Request {
        let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
        if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc-web")) {
            return request;
        }
        self.bound_body(request)
    }

    /// A body of which nothing comes for too long is given up.
    pub(crate) fn bound_body(self, request: Request) -> Request {
        request.map(|body| Body::new(TimeoutBody::new(self.body, body)))
    }
}
