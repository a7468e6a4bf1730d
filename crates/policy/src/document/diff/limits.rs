//! Limits, the wall, and what counts where no rule does.

use super::{Changes, Effect, Subject};
use crate::document::{Document, Isolation};

pub(super) fn compare(old: &Document, new: &Document, changes: &mut Changes) {
    let (before, after) = (&old.defaults, &new.defaults);
    limit("CPUs", before.max_cpu, after.max_cpu, changes);
    limit("memory in MiB", before.max_memory_mb, after.max_memory_mb, changes);
    limit("seconds of a command", before.timeout_seconds, after.timeout_seconds, changes);
    let count = |document: &Document| document.processes.as_ref().and_then(|p| p.count);
    limit("processes", count(old), count(new), changes);
    let lifetime = |document: &Document| document.processes.as_ref()?.lifetime_seconds;
    limit("seconds of the sandbox's life", lifetime(old), lifetime(new), changes);
    if old.processes.is_some() != new.processes.is_some() {
        let text = "the processes section comes or goes".to_owned();
        changes.add(Subject::Limit, Effect::Other, text);
    }
    if old.isolation != new.isolation {
        let name = |floor: Option<Isolation>| floor.map_or("none", Isolation::as_str);
        let text = format!(
            "the weakest isolation is `{}`, was `{}`",
            name(new.isolation),
            name(old.isolation)
        );
        changes.turn(Subject::Isolation, new.isolation < old.isolation, text);
    }
    if before.action != after.action {
        let text = format!("what no rule names is `{}`, was `{}`", after.action, before.action);
        let effect = match (before.action.permits(), after.action.permits()) {
            (false, true) => Effect::Wider,
            (true, false) => Effect::Narrower,
            _ => Effect::Other,
        };
        changes.add(Subject::Default, effect, text);
    }
    let kept = [
        ("max_tokens", before.max_tokens != after.max_tokens),
        ("max_tool_calls", before.max_tool_calls != after.max_tool_calls),
        (
            "confidence_threshold",
            before.confidence_threshold.to_bits() != after.confidence_threshold.to_bits(),
        ),
    ];
    for (name, changed) in kept.into_iter().filter(|(_, changed)| *changed) {
        let _ = changed;
        changes.add(Subject::Limit, Effect::Other, format!("`{name}` changes"));
    }
}

fn limit<T: PartialOrd + std::fmt::Display>(
    name: &str,
    before: Option<T>,
    after: Option<T>,
    changes: &mut Changes,
) {
    let (effect, text) = match (&before, &after) {
        (Some(old), Some(new)) if new > old => {
            (Effect::Wider, format!("limit on {name} rises from {old} to {new}"))
        }
        (Some(old), Some(new)) if new < old => {
            (Effect::Narrower, format!("limit on {name} falls from {old} to {new}"))
        }
        (Some(old), None) => {
            (Effect::Other, format!("limit on {name} of {old} gives way to the default"))
        }
        (None, Some(new)) => {
            (Effect::Other, format!("limit on {name} is {new} instead of the default"))
        }
        _ => return,
    };
    changes.add(Subject::Limit, effect, text);
}
