//! The policy that a sandbox runs under, and the questions it is asked.
//!
//! A sandbox has at most one policy for its whole life: the documents that were given at its creation, kept by their
//! digest. What they say about limits, directories and the network became the sandbox when it was made; what they say
//! about single actions is asked with [`crate::Engine::judge`], which answers and puts the answer on record. Whatever
//! cannot be answered is denied. A sandbox without a policy is asked nothing.
//!
//! Not here: the meaning of documents (`belljar_policy::document`), and reading files.

mod ask;
mod choice;
mod files;
mod governed;
mod judge;
mod kept;
mod learn;
mod narrow;
mod redact;

use std::fmt;
use std::sync::Arc;

use belljar_codes::Code;
use belljar_policy::document::{Chain, Document, Inheritance, Layer, Operator, Policy};
use belljar_policy::{Invalid, shown};

pub(crate) use ask::{Permitted, permit_create, permit_exec, permit_lease};
pub use choice::{PolicyChoice, PolicyName};
pub(crate) use choice::{govern, resolved, written};
pub(crate) use files::FileGuard;
pub(crate) use governed::{Governed, Policies as PolicyCache};
pub(crate) use judge::judge;
pub use judge::{Asker, Judged, Question, QuestionKind};
pub use kept::{KeptPolicy, Policies};
pub use learn::Learned;
pub(crate) use learn::learn;

use crate::{Error, Result};

/// What a sandbox is recorded to run under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRef {
    pub name: String,
    /// Of a policy that the server keeps.
    pub version: Option<u32>,
    /// SHA-256 of what the documents say, in hexadecimal.
    pub digest: String,
    /// Everything is permitted and put on record.
    pub recording: bool,
}

/// Documents made ready to answer.
pub struct SandboxPolicy {
    pub name: String,
    pub version: Option<u32>,
    pub digest: String,
    /// What the documents say together.
    pub document: Document,
    /// Their rules, ready to be asked.
    pub policy: Policy,
    layers: Vec<Layer>,
    recording: bool,
    quick: bool,
}

impl SandboxPolicy {
    /// Of documents that build on each other, the most general first.
    pub fn new(layers: Vec<Layer>) -> Result<Self> {
        if let [layer] = layers.as_slice()
            && let Some(file) = layer.document.extends.first()
        {
            return Err(Error::new(
                Code::InvalidPolicy,
                format!("the document extends `{}`, which did not come with it", shown(file)),
            )
            .with_remedy("send the documents that it extends too, as the command line does"));
        }
        Ok(Self::of(&Chain::new(layers, Inheritance::DeniesStay).map_err(Invalid::from)?))
    }

    /// Of documents that were kept, whatever is asked of new ones by now.
    pub(crate) fn kept(layers: Vec<Layer>) -> Result<Self> {
        Ok(Self::of(&Chain::kept(layers, Inheritance::DeniesStay).map_err(Invalid::from)?))
    }

    fn of(chain: &Chain) -> Self {
        let (document, policy) = (chain.effective(), chain.policy());
        Self {
            name: document.name.clone(),
            version: None,
            digest: policy.digest().to_owned(),
            document,
            policy,
            quick: is_quick(chain.layers()),
            layers: chain.layers().to_vec(),
            recording: false,
        }
    }

    /// Permits everything and has it put on record.
    #[must_use]
    pub fn recording() -> Self {
        let document = Document { name: "recording".to_owned(), ..Document::default() };
        let layer = Layer { origin: document.name.clone(), document };
        let policy = Self::new(vec![layer]).expect("a document that extends nothing");
        Self { recording: true, ..policy }
    }

    /// Documents of more bytes are read and written aside.
    pub const SHORT: usize = 8 << 10;

    /// Whether an answer about short texts takes next to no time: there are few rules, and none has a pattern.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// The documents it was made of, the most general first.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Everything is permitted and put on record; what the document says of limits and the network does not count.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.recording
    }

    /// Whether code in the sandbox may call tools at all.
    #[must_use]
    pub fn has_tools(&self) -> bool {
        !self.document.tool_allowlist.is_empty()
    }

    /// What it uses of the host, which is the operator's to give.
    #[must_use]
    pub fn uses_of_host(&self) -> Option<&'static str> {
        use belljar_policy::document::Source;
        let documents = || self.layers.iter().map(|layer| &layer.document);
        if documents().any(|document| !document.mounts().is_empty()) {
            return Some("directories of the host");
        }
        if documents().any(|document| !document.tools.is_empty()) {
            return Some("tools that the host runs");
        }
        let of_host = |source: &Source| {
            matches!(source, Source::Environment(_) | Source::File(_) | Source::Command(_))
        };
        documents()
            .flat_map(|document| &document.credentials)
            .any(|credential| of_host(&credential.source))
            .then_some("secrets of the host")
    }

    #[must_use]
    pub fn reference(&self) -> PolicyRef {
        PolicyRef {
            name: self.name.clone(),
            version: self.version,
            digest: self.digest.clone(),
            recording: self.recording,
        }
    }

    pub(crate) fn known_as(self, reference: &PolicyRef) -> Arc<Self> {
        Arc::new(Self {
            name: reference.name.clone(),
            version: reference.version,
            recording: reference.recording,
            ..self
        })
    }
}

fn is_quick(layers: &[Layer]) -> bool {
    const FEW: usize = 100;
    let rules = || layers.iter().flat_map(|layer| &layer.document.rules);
    rules().count() <= FEW && rules().all(|rule| rule.condition.operator != Operator::Matches)
}

/// Short, and different for policies that differ: requests are compared by this form.
impl fmt::Debug for SandboxPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SandboxPolicy").field(&self.reference()).finish()
    }
}

#[cfg(test)]
mod tests {
    use belljar_policy::document::Format;

    use super::*;

    fn layer(origin: &str, text: &str) -> Layer {
        let document = Document::parse(text, Format::Yaml).unwrap();
        Layer { origin: origin.to_owned(), document }
    }

    #[test]
    fn a_document_comes_with_what_it_extends() {
        let alone = SandboxPolicy::new(vec![layer("a", "extends: [base.yaml]")]);
        assert_eq!(alone.unwrap_err().code(), Code::InvalidPolicy);
        let base = layer("base.yaml", "name: base");
        assert!(SandboxPolicy::new(vec![base, layer("a", "extends: [base.yaml]")]).is_ok());
    }

    #[test]
    fn what_is_of_the_host_is_known() {
        let of = |text: &str| SandboxPolicy::new(vec![layer("a", text)]).unwrap().uses_of_host();
        assert_eq!(of("name: x"), None);
        assert_eq!(of("sandbox_mounts: {input_dir: /srv}"), Some("directories of the host"));
        let credential = |source: &str| {
            format!("credentials: [{{name: n, source: {source}, host: a.com, inject: bearer}}]")
        };
        let tool = "tools: [{name: a, command: [id]}]";
        assert_eq!(of(tool), Some("tools that the host runs"));
        assert_eq!(of(&credential("{store: s}")), None);
        assert_eq!(of(&credential("{environment: TOKEN}")), Some("secrets of the host"));
        assert_eq!(of(&credential("{command: {argv: [id]}}")), Some("secrets of the host"));
    }
}
