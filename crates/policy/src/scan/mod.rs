//! What Python code does that a reader would look at twice: shelling out, code from text, imports by computed name,
//! native libraries.
//!
//! A hint, never a wall: code that wants to hide from it can, and a finding says nothing of whether the line ever runs.
//! What holds code back is the sandbox. The scan leans towards saying too much: a name counts as what it was once
//! imported or assigned as, anywhere in the text.
//!
//! Guarantees: ends for any text in bounded time and memory, however deep it nests; never fails. Code that Python would
//! not accept is itself a finding, and what is readable around the mistake is scanned all the same.

mod bindings;
mod literal;
mod names;
mod parse;
mod walk;
mod watched;

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use tree_sitter::Node;

use crate::document::{Context, Value};
use names::Names;
use parse::Text;

pub use parse::MAX_CODE_BYTES;

/// More findings than anybody reads; one more says that there were more.
pub const MAX_FINDINGS: usize = 200;

/// One place in the code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// Counted from one.
    pub line: u32,
    /// Counted from one, in characters.
    pub column: u32,
    pub rule: Rule,
    /// The name behind any alias, such as `os.system`; what is missing, for other rules.
    pub name: String,
}

/// Why a place is worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Starts another program.
    Shell,
    /// Runs text as code.
    DynamicCode,
    /// Imports by a name that is made at run time.
    DynamicImport,
    /// Loads a native library into the interpreter.
    NativeCode,
    /// Looks up, by a name made at run time, in a module where the above live.
    ComputedName,
    /// Python would not accept this.
    SyntaxError,
    /// From here on nothing was looked at.
    NotScanned,
}

impl Rule {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::DynamicCode => "dynamic-code",
            Self::DynamicImport => "dynamic-import",
            Self::NativeCode => "native-code",
            Self::ComputedName => "computed-name",
            Self::SyntaxError => "syntax-error",
            Self::NotScanned => "not-scanned",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, rule, name } = self;
        let says = match rule {
            Rule::Shell => "starts a program",
            Rule::DynamicCode => "runs text as code",
            Rule::DynamicImport => "imports by a name made at run time",
            Rule::NativeCode => "loads a native library",
            Rule::ComputedName => "looks up a name made at run time",
            Rule::SyntaxError => "is no Python",
            Rule::NotScanned => "was not scanned",
        };
        write!(f, "line {line}, column {column}: {}: `{name}` {says}", rule.as_str())
    }
}

/// Scans Python code. Findings are in the order of the text.
#[must_use]
pub fn python(code: &str) -> Vec<Finding> {
    let text = Text::new(code);
    let mut found = Found::default();
    match text.tree() {
        None => found.add(&text, 0, Rule::NotScanned, "code too involved to read"),
        Some(tree) => {
            let names = Names::of(&tree, &text);
            walk::walk(&tree, &mut |place| {
                look(place, &names, &text, &mut found);
                !place.node.kind().starts_with("import_")
            });
            if names.exhausted() {
                found.add(&text, 0, Rule::NotScanned, "code too involved to follow");
            }
        }
    }
    if let Some(cut) = text.cut() {
        found.add(&text, cut, Rule::NotScanned, "code beyond the limit");
    }
    found.sorted()
}

/// The findings as fields of a question: `findings` has the words of the rules, `finding_names` the names.
pub fn describe(findings: &[Finding], context: &mut Context) {
    let rules: BTreeSet<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    let names: BTreeSet<&str> = findings.iter().map(|finding| finding.name.as_str()).collect();
    context.set("findings", rules.into_iter().collect::<Value>());
    context.set("finding_names", names.into_iter().collect::<Value>());
}

/// What one place of the tree gives.
fn look(place: &walk::Place<'_>, names: &Names<'_>, text: &Text<'_>, found: &mut Found) {
    let node = place.node;
    if node.is_error() || node.is_missing() {
        found.syntax_error(text, node.start_byte());
        return;
    }
    match node.kind() {
        "exec_statement" => found.add(text, node.start_byte(), Rule::DynamicCode, "exec"),
        "identifier" if place.is_use() => judge(node, names, text, found),
        "attribute" if place.is_use() => judge(node, names, text, found),
        "call" | "subscript" => {
            judge(node, names, text, found);
            for module in names.computed(node) {
                found.add(text, node.start_byte(), Rule::ComputedName, &format!("{module}.*"));
            }
        }
        _ => {}
    }
}

fn judge(node: Node<'_>, names: &Names<'_>, text: &Text<'_>, found: &mut Found) {
    for path in names.resolve(node) {
        if let Some((rule, name)) = watched::judge(&path) {
            found.add(text, node.start_byte(), rule, &name);
        }
    }
}

/// Findings, each once, no more than [`MAX_FINDINGS`].
#[derive(Default)]
struct Found {
    seen: HashSet<Finding>,
    syntax_error: bool,
    more: Option<Finding>,
}

impl Found {
    fn add(&mut self, text: &Text<'_>, at: usize, rule: Rule, name: &str) {
        let (line, column) = text.position(at);
        let finding = Finding { line, column, rule, name: name.to_owned() };
        if self.seen.len() < MAX_FINDINGS {
            self.seen.insert(finding);
        } else if self.more.is_none() && !self.seen.contains(&finding) {
            let name = "further findings".to_owned();
            self.more = Some(Finding { rule: Rule::NotScanned, name, ..finding });
        }
    }

    /// Only the first: what follows one is often no mistake by itself.
    fn syntax_error(&mut self, text: &Text<'_>, at: usize) {
        if !self.syntax_error {
            self.syntax_error = true;
            self.add(text, at, Rule::SyntaxError, text.word(at));
        }
    }

    fn sorted(self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.seen.into_iter().chain(self.more).collect();
        findings.sort();
        findings
    }
}

#[cfg(test)]
mod tests;
