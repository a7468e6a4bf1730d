//! One request and its reply: what allowed it, what it moved, and the one record that it leaves.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use belljar_policy::document::Transport;

use super::service::Connection;
use crate::flow::{Direction, Permit, Place, Refusal};
use crate::{Reason, Record, Stage, Verdict};

/// Kept until the last byte of the reply has gone; the record is written then.
pub(super) struct Exchange {
    connection: Arc<Connection>,
    at: SystemTime,
    begun: Instant,
    pub(super) host: Option<String>,
    port: u16,
    method: String,
    path: Option<String>,
    outcome: Mutex<(Verdict, Reason, Option<String>)>,
    permit: Option<Permit>,
    up: AtomicU64,
    down: AtomicU64,
}

impl Exchange {
    /// A request whose head could be read as far as this.
    pub(super) fn new(
        connection: Arc<Connection>,
        at: (SystemTime, Instant),
        host: Option<String>,
        port: u16,
        method: String,
        path: Option<String>,
    ) -> Self {
        Self {
            connection,
            at: at.0,
            begun: at.1,
            host,
            port,
            method,
            path,
            outcome: Mutex::new((Verdict::Deny, Reason::Malformed, None)),
            permit: None,
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        }
    }

    pub(super) fn permitted(mut self, permit: Permit) -> Self {
        self.settle(Verdict::Allow, permit.reason, permit.rule.clone());
        self.permit = Some(permit);
        self
    }

    /// What the record will say.
    pub(super) fn settle(&self, verdict: Verdict, reason: Reason, rule: Option<String>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = (verdict, reason, rule);
    }

    /// It was allowed, and failed.
    pub(super) fn failed(&self, reason: Reason) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).1 = reason;
    }

    pub(super) fn rule(&self) -> Option<String> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).2.clone()
    }

    /// Counts bytes that pass; waits where bandwidth is limited.
    pub(super) async fn count(&self, direction: Direction, bytes: usize) -> Result<(), Refusal> {
        let (own, all) = match direction {
            Direction::Up => (&self.up, &self.connection.up),
            Direction::Down => (&self.down, &self.connection.down),
        };
        own.fetch_add(bytes as u64, Ordering::Relaxed);
        all.fetch_add(bytes as u64, Ordering::Relaxed);
        match &self.permit {
            Some(permit) => permit.count(direction, bytes).await,
            None => Ok(()),
        }
    }

    /// A place for the client's socket, for when it outlives the connection's own.
    pub(super) fn enter(&self) -> Option<Place> {
        self.connection.judge.enter()
    }

    /// Ends when the request is no longer allowed.
    pub(super) async fn revoked(&self) {
        match &self.permit {
            Some(permit) => permit.revoked().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let outcome = self.outcome.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (verdict, reason, rule) = outcome.clone();
        let record = Record {
            at: self.at,
            stage: Stage::Request,
            transport: Transport::Tcp,
            host: self.host.take(),
            address: self.connection.known(),
            port: self.port,
            sni: self.connection.sni(),
            method: Some(std::mem::take(&mut self.method)),
            path: self.path.take(),
            rule,
            verdict,
            reason,
            bytes_up: *self.up.get_mut(),
            bytes_down: *self.down.get_mut(),
            duration: self.begun.elapsed(),
            owner: None,
        };
        self.connection.judge.record_of(&self.connection.client.searched, record);
    }
}
