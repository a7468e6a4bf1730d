//! Rules and what concerns the document as a whole.

use super::{Changes, Effect, Subject};
use crate::document::{Document, Rule};

pub(super) fn compare(old: &Document, new: &Document, changes: &mut Changes) {
    rules(old, new, changes);
    let whole = [
        ("version", old.version != new.version),
        ("name", old.name != new.name),
        ("description", old.description != new.description),
        ("extends", old.extends != new.extends),
        ("inherit", old.inherit != new.inherit),
        ("scope", old.scope != new.scope),
        ("strategy", old.strategy != new.strategy),
    ];
    for (field, changed) in whole {
        if changed {
            changes.add(Subject::Document, Effect::Other, format!("`{field}` changes"));
        }
    }
}

fn rules(old: &Document, new: &Document, changes: &mut Changes) {
    // Equal rules meet in order, so that a name used twice is compared one to one.
    let mut unmet: Vec<&Rule> = old.rules.iter().collect();
    let mut fresh = Vec::new();
    for rule in &new.rules {
        match unmet.iter().position(|known| *known == rule) {
            Some(index) => {
                unmet.remove(index);
            }
            None => fresh.push(rule),
        }
    }
    if unmet.is_empty() && fresh.is_empty() && old.rules != new.rules {
        let text = "rules of equal priority are asked in another order".to_owned();
        changes.add(Subject::Rule, Effect::Other, text);
    }
    for rule in fresh {
        match unmet.iter().position(|known| known.name == rule.name) {
            Some(index) => {
                let known = unmet.remove(index);
                let text = format!("rule `{}` was {}, is {}", rule.name, said(known), said(rule));
                changes.add(Subject::Rule, Effect::Other, text);
            }
            None => {
                let text = format!("rule `{}` comes: {}", rule.name, said(rule));
                changes.turn(Subject::Rule, rule.action.permits(), text);
            }
        }
    }
    for rule in unmet {
        let text = format!("rule `{}` goes: {}", rule.name, said(rule));
        changes.turn(Subject::Rule, !rule.action.permits(), text);
    }
}

fn said(rule: &Rule) -> String {
    format!("{} where {} (priority {})", rule.action, rule.condition, rule.priority)
}
