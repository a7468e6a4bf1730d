//! What expressions stand for: names, dotted names, and look-ups with written-out text.
//!
//! One table for the whole text, without scopes and without order: a name stands for everything that it is ever bound
//! to. Only what concerns the watched names is kept.

use std::cell::Cell;
use std::collections::HashMap;

use tree_sitter::Node;
use unicode_normalization::UnicodeNormalization;

use super::literal::literal;
use super::parse::Text;
use super::watched;

/// How many meanings a name may have; further ones are dropped.
pub(super) const MAX_MEANINGS: usize = 8;

/// How deep an expression is followed. Deeper is not written by hand, and each level costs time at every use.
pub(super) const MAX_DEPTH: u8 = 16;

/// How many expressions are followed in all. Plain code of the longest kind needs a tenth.
pub(super) const MAX_STEPS: u32 = 4_000_000;

/// No watched name is longer.
const MAX_NAME_BYTES: usize = 64;

/// A value that is nothing known.
pub(super) const UNKNOWN: &str = "?";

/// The names that `globals()` and its like hold.
const NAMESPACE: &str = "globals()";

pub(super) struct Names<'a> {
    pub(super) text: &'a Text<'a>,
    pub(super) imported: HashMap<String, Vec<String>>,
    pub(super) assigned: HashMap<String, Vec<String>>,
    /// Modules of `from … import *`.
    pub(super) stars: Vec<String>,
    pub(super) steps: Cell<u32>,
}

/// A call: what its function may be, and its first two arguments.
struct Call<'t> {
    function: Vec<String>,
    first: Option<Node<'t>>,
    second: Option<Node<'t>>,
}

impl Call<'_> {
    fn is(&self, names: &[&str]) -> bool {
        let plain =
            |function: &String| function.strip_prefix("builtins.").unwrap_or(function).to_owned();
        self.function.iter().map(plain).any(|function| names.contains(&function.as_str()))
    }
}

impl<'a> Names<'a> {
    /// Everything that an expression may stand for, as dotted names.
    pub(super) fn resolve(&self, node: Node<'_>) -> Vec<String> {
        self.followed(node, MAX_DEPTH)
    }

    /// Whether there was more to follow than is allowed, so that what was found is a part only.
    pub(super) fn exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// The watched modules in which a call or subscript looks something up by a name that is not written out.
    pub(super) fn computed(&self, node: Node<'_>) -> Vec<String> {
        let lookup = match node.kind() {
            "call" => self.call(node, MAX_DEPTH).and_then(|call| self.lookup(&call, MAX_DEPTH)),
            _ => self.subscript(node, MAX_DEPTH),
        };
        let Some((from, key)) = lookup else { return Vec::new() };
        if literal(key, self.text).is_some() {
            return Vec::new();
        }
        let last = |path: &String| path.rsplit('.').next().unwrap_or_default().to_owned();
        from.iter().map(last).filter(|module| watched::is_module(module)).collect()
    }

    fn follow(&self, node: Node<'_>, depth: u8, out: &mut Vec<String>) {
        let (Some(depth), Some(steps)) = (depth.checked_sub(1), self.steps.get().checked_sub(1))
        else {
            return;
        };
        self.steps.set(steps);
        if out.len() >= MAX_MEANINGS {
            return;
        }
        let field = |name: &str| node.child_by_field_name(name);
        match node.kind() {
            "identifier" => out.extend(self.named(self.text.of(node))),
            "attribute" => {
                let (Some(object), Some(name)) = (field("object"), field("attribute")) else {
                    return;
                };
                let name = normal(self.text.of(name));
                let mut bases = self.followed(object, depth);
                if bases.is_empty() {
                    bases.push(UNKNOWN.to_owned());
                }
                out.extend(bases.into_iter().map(|base| join(&base, &name)));
            }
            "call" => {
                let Some(call) = self.call(node, depth) else { return };
                self.import_call(&call, out);
                self.namespace(&call, depth, out);
                if let Some((from, key)) = self.lookup(&call, depth) {
                    self.looked_up(&from, key, out);
                }
            }
            "subscript" => {
                if let Some((from, key)) = self.subscript(node, depth) {
                    self.looked_up(&from, key, out);
                }
            }
            "parenthesized_expression"
            | "await"
            | "conditional_expression"
            | "boolean_operator" => {
                for child in node.named_children(&mut node.walk()) {
                    self.follow(child, depth, out);
                }
            }
            "named_expression" => {
                if let Some(value) = field("value") {
                    self.follow(value, depth, out);
                }
            }
            _ => {}
        }
        out.truncate(MAX_MEANINGS);
    }

    /// What a plain name stands for; a name that the code does not import stands for itself, since the code may go on
    /// from an earlier piece.
    fn named(&self, written: &str) -> Vec<String> {
        let name = normal(written);
        let of = |table: &HashMap<String, Vec<String>>| table.get(&name).cloned();
        let mut meanings = of(&self.imported).unwrap_or_else(|| {
            let starred = self.stars.iter().map(|module| join(module, &name));
            std::iter::once(name.clone()).chain(starred).collect()
        });
        meanings.extend(of(&self.assigned).unwrap_or_default());
        meanings.truncate(MAX_MEANINGS);
        meanings
    }

    /// `__import__("os")`, `importlib.import_module("os")`.
    fn import_call(&self, call: &Call<'_>, out: &mut Vec<String>) {
        let Some(module) = call.first.and_then(|first| literal(first, self.text)) else { return };
        if call.is(&["__import__", "importlib.__import__"]) {
            // Without a list of names, the outermost module comes back.
            out.extend(module.split('.').next().map(str::to_owned));
            out.push(module);
        } else if call.is(&["importlib.import_module"]) {
            out.push(module);
        }
    }

    /// `vars(os)`, `globals()`.
    fn namespace(&self, call: &Call<'_>, depth: u8, out: &mut Vec<String>) {
        match call.first {
            None if call.is(&["globals", "locals", "vars"]) => out.push(NAMESPACE.to_owned()),
            Some(object) if call.is(&["vars"]) => {
                let bases = self.followed(object, depth);
                out.extend(bases.iter().map(|base| join(base, "__dict__")));
            }
            _ => {}
        }
    }

    /// What is looked up by a written-out key.
    fn looked_up(&self, from: &[String], key: Node<'_>, out: &mut Vec<String>) {
        let Some(key) = literal(key, self.text) else { return };
        for base in from {
            match base.as_str() {
                NAMESPACE => out.extend(self.named(&key)),
                "sys.modules" => out.push(key.clone()),
                base => out.push(join(base, &key)),
            }
        }
    }

    /// Where a call looks something up, and by which key: `getattr(os, k)`, `sys.modules.get(k)`.
    fn lookup<'t>(&self, call: &Call<'t>, depth: u8) -> Option<(Vec<String>, Node<'t>)> {
        if call.is(&["getattr"]) {
            return Some((self.followed(call.first?, depth), call.second?));
        }
        let methods = call.function.iter().filter_map(|function| {
            let (base, method) = function.rsplit_once('.')?;
            match method {
                "get" | "pop" | "__getitem__" | "setdefault" => table(base),
                "__getattribute__" => Some(base.to_owned()),
                _ => None,
            }
        });
        Some((methods.collect(), call.first?))
    }

    /// The same for `vars(os)[k]`.
    fn subscript<'t>(&self, node: Node<'t>, depth: u8) -> Option<(Vec<String>, Node<'t>)> {
        let bases = self.followed(node.child_by_field_name("value")?, depth);
        let tables = bases.iter().filter_map(|base| table(base)).collect();
        Some((tables, node.child_by_field_name("subscript")?))
    }

    fn call<'t>(&self, node: Node<'t>, depth: u8) -> Option<Call<'t>> {
        let function = self.followed(node.child_by_field_name("function")?, depth);
        let arguments = node.child_by_field_name("arguments")?;
        let mut children = arguments.walk();
        let mut given = arguments.named_children(&mut children).filter(|child| !child.is_extra());
        let (first, second) = (given.next(), given.next());
        Some(Call { function, first, second })
    }

    fn followed(&self, node: Node<'_>, depth: u8) -> Vec<String> {
        let mut meanings = Vec::new();
        self.follow(node, depth, &mut meanings);
        meanings
    }
}

/// The mapping that a value is, if looking something up in it gives a member of a module, or a module.
fn table(path: &str) -> Option<String> {
    match path {
        "sys.modules" | NAMESPACE => Some(path.to_owned()),
        "__builtins__" => Some("builtins".to_owned()),
        path => path.strip_suffix(".__dict__").map(str::to_owned),
    }
}

/// As Python reads identifiers: `𝐨𝐬` is `os`.
pub(super) fn normal(name: &str) -> String {
    if name.is_ascii() {
        return short(name).to_owned();
    }
    short(&short(name).nfkc().collect::<String>()).to_owned()
}

fn short(name: &str) -> &str {
    if name.len() <= MAX_NAME_BYTES * 4 { name } else { UNKNOWN }
}

pub(super) fn join(base: &str, name: &str) -> String {
    // Beyond this no name is watched, and what is assigned in a circle would grow.
    if base.len() > MAX_NAME_BYTES * 8 { UNKNOWN.to_owned() } else { format!("{base}.{name}") }
}
