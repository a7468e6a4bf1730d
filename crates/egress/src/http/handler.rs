//! Programs that want to see requests before they leave.

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::Identity;

/// A request that is allowed and not yet sent. Secrets are not in it.
#[derive(Debug)]
pub struct HandledRequest<'a> {
    pub host: &'a str,
    pub port: u16,
    pub secure: bool,
    pub method: &'a str,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It goes on, with these headers set and those taken away. What frames messages cannot be changed.
    Send {
        set: Vec<(HeaderName, HeaderValue)>,
        remove: Vec<HeaderName>,
    },
    Deny {
        message: String,
    },
}

/// Looks at each request of a sandbox that rules look into.
#[async_trait]
pub trait RequestHandler: Send + Sync {
    /// Whoever cannot answer denies.
    async fn handle(&self, identity: &Identity, request: HandledRequest<'_>) -> Handled;
}
