//! Loop devices and the files behind them.

use std::fs;

use super::Scope;

pub(super) fn list(scope: &Scope) -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let attached = entries.filter_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some(format!("{} {}", entry.file_name().to_string_lossy(), file.trim()))
    });
    match scope {
        Scope::Machine => attached.collect(),
        Scope::Marked { .. } => attached.filter(|name| scope.holds(name)).collect(),
    }
}
