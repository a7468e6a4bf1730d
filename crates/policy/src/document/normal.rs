//! One form for all documents that say the same, and its digest.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::{Document, OneOrMany};

impl Document {
    /// Rules in the order of asking, lists that are sets sorted and without doubles. Says the same as before; twice is
    /// the same as once.
    #[must_use]
    pub fn normalised(&self) -> Self {
        let mut document = self.clone();
        document.rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        sort(&mut document.network_allowlist);
        sort(&mut document.tool_allowlist);
        if let Some(filesystem) = &mut document.filesystem {
            sort(&mut filesystem.read_only);
        }
        if let Some(allowed) = document.environment.as_mut().and_then(|e| e.allow.as_mut()) {
            sort(allowed);
        }
        for rule in document.network.iter_mut().flat_map(|network| &mut network.rules) {
            sort(&mut rule.port.0);
            sort_text(&mut rule.method);
            sort_text(&mut rule.path);
        }
        document
    }

    /// SHA-256 of the normalised document, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        let canonical = serde_json::to_string(&self.normalised())
            .expect("documents have text keys and finite numbers");
        digest_of(&canonical)
    }
}

pub(super) fn digest_of(text: &str) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        write!(out, "{byte:02x}").expect("writing to a string succeeds");
    }
    out
}

fn sort<T: Ord>(list: &mut Vec<T>) {
    list.sort();
    list.dedup();
}

fn sort_text<T: ToString + PartialEq>(list: &mut OneOrMany<T>) {
    list.0.sort_by_key(ToString::to_string);
    list.0.dedup();
}
