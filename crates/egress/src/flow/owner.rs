//! Whose a connection is, for its records: asked when it is made, and never waited for by what goes through it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::document::Transport;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Judge;
use crate::{Ends, Owner, Record, Search};

/// How long a record waits for a look that has begun.
const WAIT: Duration = Duration::from_millis(500);

/// The answer to whose a connection is, whenever it comes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Searched(Option<watch::Receiver<Search>>);

impl Searched {
    /// The owner, or whether it is worth waiting for one.
    fn known(&self) -> Result<Option<Owner>, watch::Receiver<Search>> {
        let Some(search) = &self.0 else { return Ok(None) };
        let gone = search.has_changed().is_err();
        match &*search.borrow() {
            Search::Found(owner) => Ok(Some(owner.clone())),
            Search::Looking if !gone => Err(search.clone()),
            // Where nobody has begun to look by the time the connection is over, nothing is left to be seen.
            Search::Looking | Search::Waiting => Ok(None),
        }
    }
}

impl Judge {
    /// Asks whose a connection is. To be called as soon as it is there: the socket inside may be gone a moment later.
    pub(crate) fn search(
        &self,
        transport: Transport,
        client: Option<SocketAddr>,
        meant: Option<SocketAddr>,
    ) -> Searched {
        let (Some(client), Some(meant)) = (client, meant) else { return Searched::default() };
        let plain = |end: SocketAddr| (end.ip().to_canonical(), end.port()).into();
        let ends = Ends { transport, local: plain(client), remote: plain(meant) };
        Searched(self.settings().owners.search(self.identity(), ends))
    }

    /// Writes a record about a connection down, as soon as it is known whose that is or that nobody will say.
    pub(crate) fn record_of(self: &Arc<Self>, searched: &Searched, mut record: Record) {
        let search = match (searched.known(), Handle::try_current()) {
            (Ok(owner), _) => {
                record.owner = owner;
                return self.record(record);
            }
            (Err(_), Err(_)) => return self.record(record),
            (Err(search), Ok(_)) => search,
        };
        let late = Late::new(self, record);
        tokio::spawn(late.complete(search));
    }
}

/// A record that waits. However its wait ends, it is written then.
struct Late {
    judge: Arc<Judge>,
    record: Option<Record>,
}

impl Late {
    fn new(judge: &Arc<Judge>, record: Record) -> Self {
        judge.late.send_modify(|late| *late += 1);
        Self { judge: Arc::clone(judge), record: Some(record) }
    }

    async fn complete(mut self, mut search: watch::Receiver<Search>) {
        let closed = self.judge.live().closed().clone();
        let found = timeout(WAIT, async {
            let found = search.wait_for(|search| matches!(search, Search::Found(_))).await;
            match found.as_deref() {
                Ok(Search::Found(owner)) => Some(owner.clone()),
                _ => None,
            }
        });
        let found = closed.run_until_cancelled(found).await;
        if let (Some(Ok(owner)), Some(record)) = (found, &mut self.record) {
            record.owner = owner;
        }
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.judge.record(record);
        }
        self.judge.late.send_modify(|late| *late -= 1);
    }
}
