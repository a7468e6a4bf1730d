//! What the server knows about itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tokio::sync::watch;

/// Every name below it is this machine, in browsers and in most resolvers.
const LOCAL_DOMAIN: &str = "localhost";

/// Facts about a running server, and the switch that ends it.
#[derive(Debug)]
pub struct Status {
    pub addresses: Vec<String>,
    pub automatic: bool,
    pub tls: bool,
    pub started_at: SystemTime,
    /// Below which every port that is shown has a name.
    pub domain: String,
    connections: AtomicU64,
    /// Requests that are under way, streams included.
    requests: AtomicU64,
    /// All there ever were.
    begun: AtomicU64,
    stopping: watch::Sender<bool>,
}

impl Status {
    #[must_use]
    pub fn new(addresses: Vec<String>, automatic: bool, tls: bool) -> Self {
        Self {
            addresses,
            automatic,
            tls,
            started_at: SystemTime::now(),
            domain: LOCAL_DOMAIN.to_owned(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
        }
    }

    /// Ports are shown below another domain.
    #[must_use]
    pub fn with_domain(mut self, domain: Option<String>) -> Self {
        self.domain = domain.unwrap_or(self.domain);
        self
    }

    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests there have been, those that are under way included.
    pub fn requests_begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Begins the end: no new requests, those under way are drained.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns once the server is to end.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as `self`.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    pub(crate) fn connection(self: &std::sync::Arc<Self>) -> Counted {
        Counted::new(self, |status| &status.connections)
    }

    pub(crate) fn request(self: &std::sync::Arc<Self>) -> Counted {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Counted::new(self, |status| &status.requests)
    }
}

/// One more, until dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    status: std::sync::Arc<Status>,
    counter: fn(&Status) -> &AtomicU64,
}

impl Counted {
    fn new(status: &std::sync::Arc<Status>, counter: fn(&Status) -> &AtomicU64) -> Self {
        counter(status).fetch_add(1, Ordering::Relaxed);
        Self { status: std::sync::Arc::clone(status), counter }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.status).fetch_sub(1, Ordering::Relaxed);
    }
}
