//! The one place where a flow or request is allowed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::NetworkMode;
use belljar_policy::document::{Flow, FlowDecision, NetworkVerdict, Transport};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::approvals::Approvals;
use super::live::{Claim, Entered, Live};
use super::meter::{self, Counter, Direction, Ledger};
use super::repeats::{Rate, Repeats};
use super::tally::Tally;
use crate::names::{Names, Resolver, Unresolved, is_foreign_resolver};
use crate::{
    Approval, Approver, Asked, Authority, Identity, Reason, Record, Recorder, Rules, Secrets,
    Settings, address,
};

/// Whoever does not answer a connection for this long is not there.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Judges for one sandbox.
pub(crate) struct Judge {
    identity: Identity,
    live: Arc<Live>,
    ledger: Arc<Ledger>,
    approvals: Arc<Approvals>,
    recorder: Arc<dyn Recorder>,
    secrets: Arc<dyn Secrets>,
    names: Names,
    authority: Option<Authority>,
    settings: Arc<Settings>,
    questions: Rate,
    denied_names: Repeats,
    tally: Tally,
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
    pub(crate) fn new(parts: Parts) -> Self {
        let ledger = Arc::new(Ledger::default());
        ledger.up.set_rate(parts.rules.bandwidth);
        ledger.down.set_rate(parts.rules.bandwidth);
        Self {
            approvals: Arc::new(Approvals::new(parts.identity.clone(), parts.approver)),
            identity: parts.identity,
            live: Arc::new(Live::new(parts.rules)),
            ledger,
            recorder: parts.recorder,
            secrets: parts.secrets,
            names: Names::new(parts.resolver),
            authority: parts.authority,
            questions: Rate::new(parts.settings.questions_per_second),
            settings: parts.settings,
            denied_names: Repeats::default(),
            tally: Tally::default(),
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

    /// Whether the sandbox may ask for one more name now.
    pub(crate) fn question_allowed(&self) -> bool {
        self.questions.take()
    }

    /// One record per denied name, however often it is asked for.
    pub(crate) fn record_denied_name(&self, record: Record) {
        let what = format!("{} {}", record.reason.as_str(), record.host.as_deref().unwrap_or(""));
        if self.denied_names.is_new(what) {
            self.record(record);
        }
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
            let entered = live.enter(Some(claim));
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
                let by_default = matches!(decision, FlowDecision::Default(_));
                if by_default && is_foreign_resolver(question.host, question.address, question.port)
                {
                    return Ruled::Deny(Reason::ForeignResolver.into());
                }
                let rule = label.clone().or_else(|| Some(rules.mode.to_string()));
                Ruled::Allow { counters: counters(), rule }
            }
            (Some(NetworkVerdict::Ask), _) => {
                Ruled::Ask { counters: counters(), rule: label, wait: rules.ask_wait }
            }
            (Some(NetworkVerdict::Deny), FlowDecision::Default(_)) => match rules.ask {
                Some(wait) if rules.mode != NetworkMode::None => {
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

    /// Whether connections to addresses without a name can be allowed at all.
    pub(crate) fn allows_addresses(&self) -> bool {
        let rules = self.rules();
        rules.mode == NetworkMode::Full || rules.ask.is_some()
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

    /// Where `host` (a name, or an address as text) is: at `wanted` while that is known to be its own.
    pub(crate) async fn locate(
        &self,
        host: &str,
        wanted: Option<IpAddr>,
    ) -> Result<IpAddr, Refusal> {
        let rules = self.rules();
        let located = match host.parse::<IpAddr>() {
            Ok(literal) if address::admits(literal, &rules.cidrs) => Ok(literal),
            Ok(literal) => Err(Unresolved::NotPublic(literal)),
            Err(_) => self.names.locate(host, wanted, &rules.cidrs).await,
        };
        located.map_err(|unresolved| unresolved.reason().into())
    }

    /// Connects to `host`: at `address` while that is known to be its own, else where the name is now. What may not be
    /// reached is refused, whoever says that the name is there.
    pub(crate) async fn dial(
        &self,
        host: &str,
        port: u16,
        address: Option<IpAddr>,
    ) -> Result<TcpStream, Refusal> {
        let address = self.locate(host, address).await?;
        let connected = timeout(CONNECT_TIME, TcpStream::connect((address, port))).await;
        match connected {
            Ok(Ok(stream)) => {
                // Bytes go on as they come: whoever wants them gathered has gathered them already.
                let _ = stream.set_nodelay(true);
                Ok(stream)
            }
            Ok(Err(error)) => {
                tracing::debug!(host, port, %error, "a connection outwards failed");
                Err(Reason::ConnectFailed.into())
            }
            Err(_) => Err(Reason::ConnectFailed.into()),
        }
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

    pub(crate) fn token(&self) -> &CancellationToken {
        self.entered.token()
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
