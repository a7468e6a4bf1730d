//! What all flows of one sandbox share: its rules, counters, names, and where records go.

use std::sync::Arc;

use belljar_policy::document::Transport;
use tokio::sync::watch;

use super::approvals::Approvals;
use super::decisions::Lasting;
use super::live::Live;
use super::meter::Ledger;
use super::permit::Permit;
use super::repeats::Repeats;
use super::room::{Place, Room};
use super::tally::Tally;
use crate::doors::Draft;
use crate::names::{Names, Resolver};
use crate::{
    Approver, Authority, Identity, Reason, Record, Recorder, Rules, Secrets, Settings, address,
};

/// Judges for one sandbox.
pub(crate) struct Judge {
    identity: Identity,
    pub(super) live: Arc<Live>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) lasting: Lasting,
    recorder: Arc<dyn Recorder>,
    secrets: Arc<dyn Secrets>,
    pub(super) names: Names,
    authority: Option<Authority>,
    settings: Arc<Settings>,
    denied_names: Repeats,
    tally: Tally,
    /// Records that wait to be told whose their connection was.
    pub(super) late: watch::Sender<usize>,
    pub(super) room: Arc<Room>,
}

/// What a judge is made of.
pub(crate) struct Parts {
    pub(crate) identity: Identity,
    pub(crate) rules: Rules,
    pub(crate) recorder: Arc<dyn Recorder>,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) authority: Option<Authority>,
    pub(crate) settings: Arc<Settings>,
    /// For the sockets of all sandboxes.
    pub(crate) room: Arc<Room>,
}

impl Judge {
    pub(crate) fn new(parts: Parts) -> Self {
        let ledger = Arc::new(Ledger::default());
        ledger.up.set_rate(parts.rules.bandwidth);
        ledger.down.set_rate(parts.rules.bandwidth);
        Self {
            approvals: Arc::new(Approvals::new(parts.identity.clone(), parts.approver)),
            lasting: Lasting::default(),
            identity: parts.identity,
            live: Arc::new(Live::new(parts.rules)),
            ledger,
            recorder: parts.recorder,
            secrets: parts.secrets,
            names: Names::new(parts.resolver, parts.settings.questions_per_second),
            authority: parts.authority,
            // A flow has two: the client's and ours outside.
            room: Room::of_sandbox(parts.room, parts.settings.max_flows.saturating_mul(2)),
            settings: parts.settings,
            denied_names: Repeats::default(),
            tally: Tally::default(),
            late: watch::Sender::default(),
        }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.live.rules()
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    pub(crate) fn secrets(&self) -> &dyn Secrets {
        &*self.secrets
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The certificate authority that this sandbox trusts; without one nothing can be intercepted.
    pub(crate) fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// One record per denied name, however often it is asked for.
    pub(crate) fn record_denied_name(&self, record: Record) {
        let what = format!("{} {}", record.reason.as_str(), record.host.as_deref().unwrap_or(""));
        if self.denied_names.is_new(what) {
            self.record(record);
        }
    }

    /// A place for one more socket; where there is none, that is recorded.
    pub(crate) fn enter(&self) -> Option<Place> {
        let place = self.room.enter();
        if place.is_none() && self.denied_names.is_new("room".to_owned()) {
            self.record(Draft::new(Transport::Tcp, None, 0).finish(Reason::TooMany, 0, 0));
        }
        place
    }

    pub(crate) fn late(&self) -> watch::Receiver<usize> {
        self.late.subscribe()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn record(&self, record: Record) {
        self.tally.add(&record);
        self.recorder.record(&self.identity, record);
    }

    /// New rules: what they no longer allow is cut at once.
    pub(crate) fn set_rules(&self, rules: Rules) {
        self.ledger.up.set_rate(rules.bandwidth);
        self.ledger.down.set_rate(rules.bandwidth);
        self.live.change(rules, |old, new, claim| {
            let admitted = |rules: &Rules| {
                claim.address.is_none_or(|address| address::admits(address, &rules.cidrs))
            };
            // An address that stands in for a name was never admitted; what it stands for was checked.
            self.holds(new, claim) && (admitted(new) || !admitted(old))
        });
    }

    /// A permit for a connection that goes nowhere by itself: its requests are judged.
    pub(crate) fn attend(&self) -> Permit {
        let entered = self.live.locked(|live| live.enter(None));
        Permit {
            rule: None,
            reason: Reason::Allowed,
            entered,
            counters: Vec::new(),
            ledger: Arc::clone(&self.ledger),
        }
    }
}
