//! What the context of a question takes, measured: in a process of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use belljar_policy::document::{Context, Document, Format, Policy, Value};

/// Of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_long_name_with_many_below_it_is_kept_once() {
    let many = (0..8000).map(|n| (format!("{n:x}"), Value::from(true))).collect();
    let long = "n".repeat(60 << 10);
    let arguments = Value::Map(vec![(long.clone(), Value::Map(many))]);
    let rule = format!(
        "{{name: r, condition: {{field: arguments.{long}.1f3f, operator: eq, value: true}}, action: deny}}"
    );
    let policy = Policy::new(&Document::parse(&format!("rules: [{rule}]"), Format::Yaml).unwrap());
    let begin = resident();
    let mut context = Context::new();
    context.nest("arguments", arguments);
    assert!(!policy.decide(&context).permits());
    let taken = resident().saturating_sub(begin);
    assert!(taken < 16 << 20, "{taken}");
}
