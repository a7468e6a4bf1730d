//! What came of a judgement: a permit that is kept while its flow is open, or a refusal.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::live::Entered;
use super::meter::{Bucket, Counter, Direction, Ledger};
use crate::Reason;

/// An allowed flow or request. Holds while it is kept and not [`Permit::revoked`].
#[derive(Debug)]
pub(crate) struct Permit {
    /// What allowed it, for the record.
    pub(crate) rule: Option<String>,
    pub(crate) reason: Reason,
    pub(super) entered: Entered,
    pub(super) counters: Vec<Arc<Counter>>,
    pub(super) ledger: Arc<Ledger>,
}

/// A denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) rule: Option<String>,
    pub(crate) reason: Reason,
    /// What the rule's author says about it.
    pub(crate) message: String,
}

impl Permit {
    /// Counts bytes that went through, and waits as the bandwidth says.
    pub(crate) async fn count(&self, direction: Direction, bytes: usize) -> Result<(), Refusal> {
        let bytes = bytes as u64;
        for counter in &self.counters {
            counter.count(bytes, 0).map_err(|_| Refusal {
                rule: self.rule.clone(),
                ..Refusal::from(Reason::BudgetSpent)
            })?;
        }
        let wait = self.bucket(direction).take(bytes);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// The most that should be moved before it is counted.
    pub(crate) fn at_once(&self, direction: Direction) -> Option<usize> {
        self.bucket(direction).at_once()
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        self.entered.token()
    }

    /// Ends when the rules no longer allow it, or the doors are closed.
    pub(crate) async fn revoked(&self) {
        self.entered.token().cancelled().await;
    }

    fn bucket(&self, direction: Direction) -> &Bucket {
        match direction {
            Direction::Up => &self.ledger.up,
            Direction::Down => &self.ledger.down,
        }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { rule: None, reason, message: String::new() }
    }
}
