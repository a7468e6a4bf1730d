//! The one place where a flow or request is allowed.

use std::sync::Arc;
use std::time::Duration;

use belljar_policy::NetworkMode;
use belljar_policy::document::{Flow, FlowDecision, NetworkVerdict, Transport};

use super::decisions::Decided;
use super::judge::Judge;
use super::live::Claim;
use super::meter::{self, Counter};
use super::permit::{Permit, Refusal};
use super::question::{Answer, Preview, Question};
use crate::decide::label;
use crate::names::is_foreign_resolver;
use crate::{Approval, Asked, Reason, Rules};

/// Whether requests on a flow could be seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Open,
    Opaque,
}

enum Step {
    Answer(Answer),
    /// Somebody must say yes first.
    Ask(Asked),
    /// A program decides first.
    Decide,
}

/// Who said yes so far.
enum Given {
    Nobody,
    Approver,
    Program(Decided),
}

/// What the rules say, with everything that the caller needs to go on.
enum Ruled {
    Allow {
        rule: Option<String>,
        counters: Vec<Arc<Counter>>,
    },
    Inspect {
        required: bool,
    },
    Ask {
        rule: Option<String>,
        counters: Vec<Arc<Counter>>,
        wait: Duration,
    },
    /// A program decides.
    Decide {
        counters: Vec<Arc<Counter>>,
    },
    Deny(Refusal),
}

impl Judge {
    /// What the rules say about a flow, without asking or counting.
    pub(crate) fn preview(&self, host: &str, port: u16, transport: Transport) -> Preview {
        let question = Question {
            host,
            address: None,
            port,
            transport,
            request: None,
            source: None,
            greeting: None,
        };
        match self.ruled(&self.rules(), &question, Sight::Open) {
            Ruled::Allow { .. } => Preview::Allow,
            Ruled::Inspect { required } => Preview::Inspect { required },
            Ruled::Ask { .. } | Ruled::Decide { .. } => Preview::Ask,
            Ruled::Deny(refusal) => Preview::Deny(refusal.reason),
        }
    }

    /// Decides, asks where the rules say so, and counts one request (for a flow without inspection, the flow).
    pub(crate) async fn judge(&self, question: Question<'_>) -> Answer {
        self.judge_as(question, Sight::Open).await
    }

    /// The same for a flow that is known to be no HTTP: there is nothing that a credential could be put into.
    pub(crate) async fn judge_opaque(&self, question: Question<'_>) -> Answer {
        self.judge_as(question, Sight::Opaque).await
    }

    async fn judge_as(&self, question: Question<'_>, sight: Sight) -> Answer {
        let mut given = Given::Nobody;
        loop {
            // The rules may have changed while somebody thought: they are asked again.
            given = match self.step(&question, sight, &given) {
                Step::Answer(answer) => return answer,
                Step::Ask(asked) => {
                    let rule = asked.rule.clone();
                    if self.approvals.ask(asked).await == Approval::Deny {
                        return Answer::Deny(Refusal {
                            rule,
                            ..Refusal::from(Reason::NotApproved)
                        });
                    }
                    Given::Approver
                }
                Step::Decide => match self.decide(&question).await {
                    Ok(decided) => Given::Program(decided),
                    Err(refusal) => return Answer::Deny(refusal),
                },
            };
        }
    }

    /// Judges and enters the flow, both under the lock of the rules.
    fn step(&self, question: &Question<'_>, sight: Sight, given: &Given) -> Step {
        self.live.locked(|live| {
            let rules = live.rules();
            let (rule, counters, reason, inspect) = match self.ruled(&rules, question, sight) {
                Ruled::Allow { rule, counters } => (rule, counters, Reason::Allowed, false),
                Ruled::Inspect { .. } => {
                    let counters = self.ledger.counters(None, &rules.budgets);
                    (None, counters, Reason::Allowed, true)
                }
                Ruled::Ask { rule, counters, wait } => {
                    let Question { host, port, transport, .. } = *question;
                    let approved = matches!(given, Given::Approver);
                    if !approved && !self.approvals.granted(host, port, transport) {
                        return Step::Ask(question.asked(rule, wait));
                    }
                    (rule, counters, Reason::Approved, false)
                }
                // The program has the last word about each request, just before it leaves.
                Ruled::Decide { counters } if question.request.is_some() => {
                    (Some(label("")), counters, Reason::CallbackAllows, false)
                }
                Ruled::Decide { counters } => {
                    let decided = match given {
                        Given::Program(decided) => Some(decided.clone()),
                        Given::Nobody | Given::Approver => self.lasting.find(question),
                    };
                    let Some(Decided { http, rule }) = decided else { return Step::Decide };
                    if http && question.transport != Transport::Tcp {
                        let refusal = Refusal::from(Reason::Unsupported);
                        return Step::Answer(Answer::Deny(refusal));
                    }
                    (Some(rule), counters, Reason::CallbackAllows, http)
                }
                Ruled::Deny(refusal) => return Step::Answer(Answer::Deny(refusal)),
            };
            // The requests of an inspected flow are counted one by one.
            if !inspect && meter::count_request(&counters).is_err() {
                let refusal = Refusal { rule, ..Refusal::from(Reason::BudgetSpent) };
                return Step::Answer(Answer::Deny(refusal));
            }
            let claim = question
                .claim(inspect, matches!(reason, Reason::Approved | Reason::CallbackAllows));
            let entered = live.enter(Some(claim));
            let ledger = Arc::clone(&self.ledger);
            let permit = Permit { rule, reason, entered, counters, ledger };
            Step::Answer(match inspect {
                true => Answer::Inspect(permit),
                false => Answer::Allow(permit),
            })
        })
    }

    fn ruled(&self, rules: &Rules, question: &Question<'_>, sight: Sight) -> Ruled {
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
                let flow = question.request.is_none() && question.transport == Transport::Tcp;
                if flow && rules.callback.requests {
                    return Ruled::Inspect { required: true };
                }
                let credentialed = sight == Sight::Open
                    && flow
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
            (Some(NetworkVerdict::Deny), FlowDecision::Default(_))
                if rules.callback.connections && rules.mode != NetworkMode::None =>
            {
                Ruled::Decide { counters: counters() }
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
    pub(super) fn holds(&self, rules: &Rules, claim: &Claim) -> bool {
        let question = Question {
            host: &claim.host,
            address: claim.address,
            port: claim.port,
            transport: claim.transport,
            request: claim.request.as_ref().map(|(method, path)| (&**method, &**path)),
            source: None,
            greeting: None,
        };
        // A flow that is not looked into stays so: it may go on if it need not be.
        let sight = if claim.inspected { Sight::Open } else { Sight::Opaque };
        match self.ruled(rules, &question, sight) {
            Ruled::Allow { .. } => true,
            Ruled::Inspect { .. } => claim.inspected,
            Ruled::Ask { .. } | Ruled::Decide { .. } => claim.approved,
            Ruled::Deny(_) => false,
        }
    }
}
