//! The one place where a flow or request is allowed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::document::{Flow, FlowDecision, NetworkVerdict, Transport};
use tokio::net::TcpStream;

use super::approvals::Approvals;
use super::live::{Claim, Entered, Live};
use super::meter::{self, Counter, Direction, Ledger};
use crate::{Approval, Approver, Asked, Identity, Reason, Record, Recorder, Rules, Secrets};

/// Judges for one sandbox.
pub(crate) struct Judge {
    identity: Identity,
    live: Arc<Live>,
    ledger: Arc<Ledger>,
    approvals: Arc<Approvals>,
    recorder: Arc<dyn Recorder>,
    secrets: Arc<dyn Secrets>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// A verified name, or the text of an address where there is none.
    pub(crate) host: &'a str,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) transport: Transport,
    /// Method and canonical path.
    pub(crate) request: Option<(&'a str, &'a str)>,
}

/// The answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Allow(Permit),
    /// Only requests can tell. Where `required` is false the flow is allowed as it is, but requests on it may get a
    /// credential.
    Inspect {
        permit: Permit,
        required: bool,
    },
    Deny(Refusal),
}

/// What an answer would be, without asking anybody and without counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preview {
    Allow,
    Inspect { required: bool },
    Ask,
    Deny(Reason),
}

/// An allowed flow or request. Holds while it is kept and not [`Permit::revoked`].
#[derive(Debug)]
pub(crate) struct Permit {
    /// What allowed it, for the record.
    pub(crate) rule: Option<String>,
    pub(crate) reason: Reason,
    entered: Entered,
    counters: Vec<Arc<Counter>>,
    ledger: Arc<Ledger>,
}

/// A denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) rule: Option<String>,
    pub(crate) reason: Reason,
    /// What the rule's author says about it.
    pub(crate) message: String,
}

enum Step {
    Answer(Answer),
    /// Somebody must say yes first.
    Ask(Asked),
}

/// What the rules say, with everything that the caller needs to go on.
enum Ruled {
    Allow { rule: Option<String>, counters: Vec<Arc<Counter>> },
    Inspect { required: bool },
    Ask { rule: Option<String>, counters: Vec<Arc<Counter>>, wait: Duration },
    Deny(Refusal),
}

impl Judge {
    pub(crate) fn new(
        identity: Identity,
        rules: Rules,
        recorder: Arc<dyn Recorder>,
        approver: Arc<dyn Approver>,
        secrets: Arc<dyn Secrets>,
    ) -> Self {
        let ledger = Arc::new(Ledger::default());
        ledger.up.set_rate(rules.bandwidth);
        ledger.down.set_rate(rules.bandwidth);
        Self {
            approvals: Arc::new(Approvals::new(identity.clone(), approver)),
            identity,
            live: Arc::new(Live::new(rules)),
            ledger,
            recorder,
            secrets,
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

    pub(crate) fn record(&self, record: Record) {
        self.recorder.record(&self.identity, record);
    }

    /// New rules: what they no longer allow is cut at once.
    pub(crate) fn set_rules(&self, rules: Rules) {
        self.ledger.up.set_rate(rules.bandwidth);
        self.ledger.down.set_rate(rules.bandwidth);
        self.live.change(rules, |rules, claim| self.holds(rules, claim));
    }

    /// What the rules say about a flow, without asking or counting.
    pub(crate) fn preview(&self, host: &str, port: u16, transport: Transport) -> Preview {
        let question = Question { host, address: None, port, transport, request: None };
        match self.ruled(&self.rules(), &question) {
            Ruled::Allow { .. } => Preview::Allow,
            Ruled::Inspect { required } => Preview::Inspect { required },
            Ruled::Ask { .. } => Preview::Ask,
            Ruled::Deny(refusal) => Preview::Deny(refusal.reason),
        }
    }

    /// Decides, asks where the rules say so, and counts one request (for a flow without inspection, the flow).
    pub(crate) async fn judge(&self, question: Question<'_>) -> Answer {
        let mut approved = false;
        loop {
            let asked = match self.step(&question, approved) {
                Step::Answer(answer) => return answer,
                Step::Ask(asked) => asked,
            };
            let rule = asked.rule.clone();
            if self.approvals.ask(asked).await == Approval::Deny {
                return Answer::Deny(Refusal { rule, ..Refusal::from(Reason::NotApproved) });
            }
            // The rules may have changed while somebody thought: they are asked again.
            approved = true;
        }
    }

    /// Judges and enters the flow, both under the lock of the rules.
    fn step(&self, question: &Question<'_>, approved: bool) -> Step {
        self.live.locked(|live| {
            let rules = live.rules();
            let (rule, counters, reason, inspect) = match self.ruled(&rules, question) {
                Ruled::Allow { rule, counters } => (rule, counters, Reason::Allowed, None),
                Ruled::Inspect { required } => {
                    let counters = self.ledger.counters(None, &rules.budgets);
                    (None, counters, Reason::Allowed, Some(required))
                }
                Ruled::Ask { rule, counters, wait } => {
                    let Question { host, port, transport, .. } = *question;
                    if !approved && !self.approvals.granted(host, port, transport) {
                        return Step::Ask(question.asked(rule, wait));
                    }
                    (rule, counters, Reason::Approved, None)
                }
                Ruled::Deny(refusal) => return Step::Answer(Answer::Deny(refusal)),
            };
            // The requests of an inspected flow are counted one by one.
            if inspect.is_none() && meter::count_request(&counters).is_err() {
                let refusal = Refusal { rule, ..Refusal::from(Reason::BudgetSpent) };
                return Step::Answer(Answer::Deny(refusal));
            }
            let claim = question.claim(inspect.is_some(), reason == Reason::Approved);
            let entered = live.enter(claim);
            let ledger = Arc::clone(&self.ledger);
            let permit = Permit { rule, reason, entered, counters, ledger };
            Step::Answer(match inspect {
                Some(required) => Answer::Inspect { permit, required },
                None => Answer::Allow(permit),
            })
        })
    }

    fn ruled(&self, rules: &Rules, question: &Question<'_>) -> Ruled {
        let decision = rules.flows.judge(&Flow {
            host: question.host,
            port: question.port,
            transport: question.transport,
            request: question.request,
        });
        let (label, own, message) = match &decision {
            FlowDecision::Rule(rule) => {
                let name = rule.name.clone().unwrap_or_else(|| rule.host.to_string());
                (Some(name), &rule.budgets[..], rule.message.clone())
            }
            FlowDecision::Listed(pattern) => (Some(pattern.to_string()), &[][..], String::new()),
            FlowDecision::Default(_) | FlowDecision::Inspect => (None, &[][..], String::new()),
        };
        let counters = || {
            let mut counters = self.ledger.counters(None, &rules.budgets);
            counters.extend(self.ledger.counters(label.as_deref(), own));
            counters
        };
        match (decision.verdict(), &decision) {
            (None, _) => Ruled::Inspect { required: true },
            (Some(NetworkVerdict::Allow), _) => {
                let credentialed = question.request.is_none()
                    && question.transport == Transport::Tcp
                    && rules.credentials.iter().any(|credential| {
                        credential.host.0.iter().any(|host| host.matches(question.host))
                    });
                if credentialed {
                    return Ruled::Inspect { required: false };
                }
                let rule = label.clone().or_else(|| Some(rules.mode.to_string()));
                Ruled::Allow { counters: counters(), rule }
            }
            (Some(NetworkVerdict::Ask), _) => {
                Ruled::Ask { counters: counters(), rule: label, wait: rules.ask_wait }
            }
            (Some(NetworkVerdict::Deny), FlowDecision::Default(_)) => match rules.ask {
                Some(wait) if rules.mode != belljar_policy::NetworkMode::None => {
                    Ruled::Ask { counters: counters(), rule: None, wait }
                }
                _ => Ruled::Deny(Refusal { rule: None, reason: Reason::NotListed, message }),
            },
            (Some(NetworkVerdict::Deny), _) => {
                Ruled::Deny(Refusal { rule: label, reason: Reason::RuleDenies, message })
            }
        }
    }

    /// Whether an open flow may go on under new rules.
    fn holds(&self, rules: &Rules, claim: &Claim) -> bool {
        let question = Question {
            host: &claim.host,
            address: claim.address,
            port: claim.port,
            transport: claim.transport,
            request: claim.request.as_ref().map(|(method, path)| (&**method, &**path)),
        };
        match self.ruled(rules, &question) {
            Ruled::Allow { .. } => true,
            Ruled::Inspect { required } => claim.inspected || !required,
            Ruled::Ask { .. } => claim.approved,
            Ruled::Deny(_) => false,
        }
    }

    /// Resolves `host` where `address` is no longer known to be its own, checks the address and connects.
    pub(crate) async fn dial(
        &self,
        _host: &str,
        _port: u16,
        _address: Option<SocketAddr>,
    ) -> Result<TcpStream, Refusal> {
        Err(Reason::Unsupported.into())
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { rule: None, reason, message: String::new() }
    }
}

impl Question<'_> {
    fn claim(&self, inspected: bool, approved: bool) -> Claim {
        Claim {
            host: self.host.to_owned(),
            address: self.address,
            port: self.port,
            transport: self.transport,
            request: self.owned_request(),
            inspected,
            approved,
        }
    }

    fn asked(&self, rule: Option<String>, wait: Duration) -> Asked {
        Asked {
            host: self.host.to_owned(),
            address: self.address,
            port: self.port,
            transport: self.transport,
            request: self.owned_request(),
            rule,
            wait,
        }
    }

    fn owned_request(&self) -> Option<(String, String)> {
        self.request.map(|(method, path)| (method.to_owned(), path.to_owned()))
    }
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

    /// Ends when the rules no longer allow it, or the doors are closed.
    pub(crate) async fn revoked(&self) {
        self.entered.token().cancelled().await;
    }

    fn bucket(&self, direction: Direction) -> &meter::Bucket {
        match direction {
            Direction::Up => &self.ledger.up,
            Direction::Down => &self.ledger.down,
        }
    }
}
