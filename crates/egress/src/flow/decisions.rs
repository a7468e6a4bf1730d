//! Asking the program that decides in place of rules.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use belljar_policy::document::Transport;
use tokio::time::timeout;

use super::judge::Judge;
use super::permit::Refusal;
use super::question::Question;
use crate::decide::label;
use crate::{Connecting, DECISION_TIME, Decision, Reason};

/// Destinations that are remembered as decided.
const MAX_LASTING: usize = 4096;

/// A yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    /// Only for requests that the program sees.
    pub(super) http: bool,
    /// How the record calls it.
    pub(super) rule: String,
}

/// What was decided for as long as the gate is open.
#[derive(Debug, Default)]
pub(super) struct Lasting(Mutex<HashMap<(String, u16, Transport), Decided>>);

impl Lasting {
    pub(super) fn find(&self, question: &Question<'_>) -> Option<Decided> {
        let lasting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lasting.is_empty() {
            return None;
        }
        lasting.get(&(question.host.to_owned(), question.port, question.transport)).cloned()
    }

    fn keep(&self, question: &Question<'_>, decided: &Decided) {
        let mut lasting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lasting.len() < MAX_LASTING {
            let place = (question.host.to_owned(), question.port, question.transport);
            lasting.insert(place, decided.clone());
        }
    }
}

impl Judge {
    /// Asks the program about a connection.
    pub(super) async fn decide(&self, question: &Question<'_>) -> Result<Decided, Refusal> {
        let asked = Connecting {
            transport: question.transport,
            source: question.source,
            address: question.address,
            port: question.port,
            host: question.name().map(str::to_owned),
            question: None,
            greeting: question.greeting.cloned(),
            rule: None,
        };
        let (http, lasting, _, words) = self.asked(&asked).await?;
        let decided = Decided { http, rule: label(&words) };
        if lasting {
            self.lasting.keep(question, &decided);
        }
        Ok(decided)
    }

    /// Asks the program whether a name may be resolved, and by whom.
    pub(crate) async fn decide_name(
        &self,
        asked: &Connecting,
    ) -> Result<Option<std::net::SocketAddr>, Refusal> {
        self.asked(asked).await.map(|(_, _, resolver, _)| resolver)
    }

    async fn asked(
        &self,
        asked: &Connecting,
    ) -> Result<(bool, bool, Option<std::net::SocketAddr>, String), Refusal> {
        let decider = &self.settings().decider;
        let answer = decider.connection(self.identity(), asked, DECISION_TIME);
        let (reason, words) = match timeout(DECISION_TIME, answer).await {
            Ok(Decision::Allow { http, lasting, resolver, words }) => {
                return Ok((http, lasting, resolver, words));
            }
            Ok(Decision::Deny { words }) => (Reason::CallbackDenies, words),
            Ok(Decision::Unanswered(why)) => (Reason::CallbackUnanswered, why),
            Err(_) => (Reason::CallbackUnanswered, "no answer in time".to_owned()),
        };
        let rule = Some(label(&words));
        // Told inside are the words of a no, and not how the program failed.
        let message = if reason == Reason::CallbackDenies { words } else { String::new() };
        Err(Refusal { rule, reason, message })
    }
}
