//! Every node of a tree in the order of the text, without recursion.

use tree_sitter::{Node, Tree};

/// A node and where it stands.
pub(super) struct Place<'tree> {
    pub(super) node: Node<'tree>,
    /// What the node is to its parent, such as `function` of a `call`.
    field: &'tree str,
    parent: &'tree str,
    /// Inside an annotation.
    in_type: bool,
}

impl Place<'_> {
    /// Whether a name or dotted name is used here as a value, and is not part of a longer one.
    pub(super) fn is_use(&self) -> bool {
        if self.in_type {
            // `x: subprocess.Popen` starts nothing; a call in an annotation is made.
            return self.parent == "call" && self.field == "function";
        }
        match self.parent {
            "attribute"
            | "parameters"
            | "lambda_parameters"
            | "typed_parameter"
            | "pattern_list"
            | "list_splat_pattern"
            | "dictionary_splat_pattern"
            | "global_statement"
            | "nonlocal_statement"
            | "delete_statement"
            | "as_pattern_target" => false,
            "assignment" | "augmented_assignment" | "for_statement" | "for_in_clause" => {
                self.field != "left"
            }
            _ => self.field != "name",
        }
    }
}

/// Visits every node; `visit` says whether to go into it.
pub(super) fn walk<'tree>(tree: &'tree Tree, visit: &mut dyn FnMut(&Place<'tree>) -> bool) {
    let mut cursor = tree.walk();
    // The kinds of the ancestors, and whether one of them is an annotation.
    let mut above: Vec<(&str, bool)> = Vec::new();
    loop {
        let node = cursor.node();
        let (parent, in_type) = above.last().copied().unwrap_or(("", false));
        let field = cursor.field_name().unwrap_or("");
        let into = visit(&Place { node, field, parent, in_type });
        if into && cursor.goto_first_child() {
            above.push((node.kind(), in_type || node.kind() == "type"));
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
            above.pop();
        }
    }
}
