//! Documents of folders, from the root down to the workspace.
//!
//! Rules of all of them count together. A rule below replaces one of the same name above if it says `override`, never
//! a `deny`; without `override` it is dropped. `inherit: false` cuts off what is above, `scope` limits a document to some
//! paths, and the default is that of the nearest document. On top of that, what the documents above deny by themselves
//! stays denied: a file in a workspace cannot talk its way out with a higher priority, another name or `inherit: false`.

mod glob;
mod merge;

use super::evaluate::{LayerRule, Policy, check_together};
use super::{Document, Refusal};

/// Folders from the root to a workspace, `extends` counted.
pub const MAX_LEVELS: usize = 64;

/// How much a document below can undo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inheritance {
    /// What the documents above deny stays denied.
    #[default]
    DeniesStay,
    /// As the Agent Governance Toolkit has it: only a `deny` of the same name is safe from the documents below.
    AsWritten,
}

/// One document and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// What people know it by: its path.
    pub origin: String,
    pub document: Document,
}

/// Documents in the order from the root down.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    layers: Vec<Layer>,
    /// For each document whether it, or one that is out of scope, cuts off those above.
    cuts: Vec<bool>,
    inheritance: Inheritance,
}

impl Chain {
    /// Documents that come in.
    ///
    /// # Errors
    /// Where there is no document, there are too many, or their patterns take too much.
    pub fn new(layers: Vec<Layer>, inheritance: Inheritance) -> Result<Self, Refusal> {
        let chain = Self::kept(layers, inheritance)?;
        check_together(chain.layers.iter().map(|layer| &layer.document))?;
        Ok(chain)
    }

    /// Documents that came in before. What their patterns take was judged then, as it was judged then.
    ///
    /// # Errors
    /// Where there is no document, or there are too many.
    pub fn kept(layers: Vec<Layer>, inheritance: Inheritance) -> Result<Self, Refusal> {
        match layers.len() {
            0 => Err(Refusal::whole("there is no policy document", "name at least one")),
            1..=MAX_LEVELS => {
                let cuts = layers.iter().map(|layer| !layer.document.inherit).collect();
                Ok(Self { layers, cuts, inheritance })
            }
            n => Err(Refusal::whole(
                format!("{n} documents build on each other, more than {MAX_LEVELS}"),
                "join some of them",
            )),
        }
    }

    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Documents that make the same chain by themselves: those that cut off what is above say so.
    #[must_use]
    pub fn resolved(&self) -> Vec<Layer> {
        let mut layers = self.layers.clone();
        for (layer, cuts) in layers.iter_mut().zip(&self.cuts) {
            layer.document.inherit = !cuts;
        }
        layers
    }

    /// The documents that count for `path` (relative to the root, with `/` between its parts). `None` if none does.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<Self> {
        let first = match self.inheritance {
            Inheritance::DeniesStay => 0,
            Inheritance::AsWritten => self.first_inherited(self.layers.len()),
        };
        let mut found =
            Self { layers: Vec::new(), cuts: Vec::new(), inheritance: self.inheritance };
        // A document out of scope still cuts off those above it, for the next one below.
        let mut cut = false;
        for (layer, cuts) in self.layers.iter().zip(&self.cuts).skip(first) {
            cut |= cuts;
            let scope = layer.document.scope.as_ref();
            if scope.is_none_or(|scope| glob::matches(scope, path)) {
                found.push(layer.clone(), std::mem::take(&mut cut));
            }
        }
        if found.layers.is_empty() {
            return None;
        }
        if cut {
            let nothing = Layer { origin: "nothing".to_owned(), document: Document::default() };
            found.push(nothing, true);
        }
        Some(found)
    }

    fn push(&mut self, layer: Layer, cuts: bool) {
        self.layers.push(layer);
        self.cuts.push(cuts);
    }

    /// Where the documents begin that count together for the first `length` ones.
    fn first_inherited(&self, length: usize) -> usize {
        self.cuts[..length].iter().rposition(|cuts| *cuts).unwrap_or(0)
    }

    /// The rules made ready to answer.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let last = &self.layers[self.layers.len() - 1].document;
        let names = self.layers.iter().map(|layer| layer.origin.clone()).collect();
        let counts = self.counts();
        let rules =
            self.layers.iter().enumerate().flat_map(|(level, layer)| {
                layer.document.rules.iter().map(move |rule| (level, rule))
            });
        let rules = rules
            .zip(counts)
            .filter(|(_, counts_in)| *counts_in != 0)
            .map(|((level, rule), counts_in)| LayerRule { rule, level, counts_in });
        Policy::compile(rules, last, names, self.digest())
    }

    /// For each rule, in the order of writing, the prefixes of the chain in which it counts.
    fn counts(&self) -> Vec<u64> {
        let length = self.layers.len();
        let mut counts = vec![0; self.layers.iter().map(|layer| layer.document.rules.len()).sum()];
        let prefixes = match self.inheritance {
            Inheritance::DeniesStay => 1..=length,
            Inheritance::AsWritten => length..=length,
        };
        for prefix in prefixes {
            let first = self.first_inherited(prefix);
            let before: usize =
                self.layers[..first].iter().map(|layer| layer.document.rules.len()).sum();
            for index in merge::surviving(&self.layers[first..prefix]) {
                counts[before + index] |= 1 << (prefix - 1);
            }
        }
        counts
    }

    /// One document that shows what counts: surviving rules in order, the nearest word for the rest.
    #[must_use]
    pub fn effective(&self) -> Document {
        merge::effective(&self.layers[self.first_inherited(self.layers.len())..])
    }

    /// Of one document its own; of several, of all of theirs together.
    fn digest(&self) -> String {
        match self.layers.as_slice() {
            [layer] => layer.document.digest(),
            layers => {
                let all: Vec<String> = layers.iter().map(|layer| layer.document.digest()).collect();
                super::normal::digest_of(&format!("{:?} {}", self.inheritance, all.join(" ")))
            }
        }
    }
}
