//! How names get their meaning: imports and assignments.

use std::cell::Cell;
use std::collections::HashMap;

use tree_sitter::{Node, Tree};

use super::names::{MAX_DEPTH, MAX_MEANINGS, MAX_STEPS, Names, UNKNOWN, join, normal};
use super::parse::Text;
use super::walk::walk;
use super::watched;

/// How many times assignments are gone through, so that `a = os; b = a; c = b.system` is understood in any order.
const MAX_ROUNDS: usize = 6;

impl<'a> Names<'a> {
    pub(super) fn of(tree: &Tree, text: &'a Text<'a>) -> Self {
        let mut names = Self {
            text,
            imported: HashMap::new(),
            assigned: HashMap::new(),
            stars: Vec::new(),
            steps: Cell::new(MAX_STEPS),
        };
        let mut bindings = Vec::new();
        walk(tree, &mut |place| {
            let node = place.node;
            match node.kind() {
                "import_statement" => names.import(node),
                "import_from_statement" => names.import_from(node),
                "assignment" => pairs(node, "left", "right", &mut bindings),
                "named_expression" | "default_parameter" | "typed_default_parameter" => {
                    pairs(node, "name", "value", &mut bindings);
                }
                _ => {}
            }
            true
        });
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for (name, value) in &bindings {
                for meaning in names.resolve(*value) {
                    changed |= watched::concerns(&meaning)
                        && add(&mut names.assigned, &normal(text.of(*name)), meaning);
                }
            }
            if !changed {
                break;
            }
        }
        names
    }

    /// `import a.b`, `import a.b as c`
    fn import(&mut self, node: Node<'_>) {
        for child in node.named_children(&mut node.walk()) {
            let (module, alias) = self.aliased(child);
            match alias {
                Some(alias) => add(&mut self.imported, &alias, module),
                None => {
                    let first = module.split('.').next().unwrap_or_default().to_owned();
                    add(&mut self.imported, &first.clone(), first)
                }
            };
        }
    }

    /// `from a import b as c`, `from a import *`
    fn import_from(&mut self, node: Node<'_>) {
        let Some(module) = node.child_by_field_name("module_name") else { return };
        let relative = module.kind() == "relative_import";
        let from = if relative { UNKNOWN.to_owned() } else { self.dotted(module) };
        for child in node.children(&mut node.walk()) {
            if child.kind() == "wildcard_import" && self.stars.len() < MAX_MEANINGS {
                self.stars.push(from.clone());
            }
        }
        for child in node.children_by_field_name("name", &mut node.walk()) {
            let (name, alias) = self.aliased(child);
            let bound = alias.unwrap_or_else(|| name.clone());
            let meaning = if relative { from.clone() } else { join(&from, &name) };
            add(&mut self.imported, &bound, meaning);
        }
    }

    fn aliased(&self, node: Node<'_>) -> (String, Option<String>) {
        match (node.child_by_field_name("name"), node.child_by_field_name("alias")) {
            (Some(name), Some(alias)) => (self.dotted(name), Some(normal(self.text.of(alias)))),
            _ => (self.dotted(node), None),
        }
    }

    /// A dotted name without the spaces and line breaks that may stand in it.
    fn dotted(&self, node: Node<'_>) -> String {
        let mut children = node.walk();
        let parts = node.named_children(&mut children).filter(|part| part.kind() == "identifier");
        let parts: Vec<String> =
            parts.take(MAX_DEPTH.into()).map(|part| normal(self.text.of(part))).collect();
        parts.join(".")
    }
}

/// Names and the expressions that are bound to them, `a, b = c, d` too.
fn pairs<'t>(node: Node<'t>, left: &str, right: &str, out: &mut Vec<(Node<'t>, Node<'t>)>) {
    let (Some(left), Some(right)) =
        (node.child_by_field_name(left), node.child_by_field_name(right))
    else {
        return;
    };
    match (left.kind(), right.kind()) {
        // `a = b = os.system`
        ("identifier", "assignment") => {
            if let Some(right) = innermost(right) {
                out.push((left, right));
            }
        }
        ("identifier", _) => out.push((left, right)),
        ("pattern_list" | "tuple_pattern", "expression_list" | "tuple") => {
            let (mut lefts, mut rights) = (left.walk(), right.walk());
            let both = left.named_children(&mut lefts).zip(right.named_children(&mut rights));
            out.extend(both.filter(|(left, _)| left.kind() == "identifier"));
        }
        _ => {}
    }
}

fn innermost(mut node: Node<'_>) -> Option<Node<'_>> {
    for _ in 0..MAX_DEPTH {
        if node.kind() != "assignment" {
            return Some(node);
        }
        node = node.child_by_field_name("right")?;
    }
    None
}

/// Whether the meaning is new.
fn add(table: &mut HashMap<String, Vec<String>>, name: &str, meaning: String) -> bool {
    let meanings = table.entry(name.to_owned()).or_default();
    let new = meanings.len() < MAX_MEANINGS && !meanings.contains(&meaning);
    if new {
        meanings.push(meaning);
    }
    new
}
