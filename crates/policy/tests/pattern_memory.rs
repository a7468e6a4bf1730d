//! What the patterns of policies and of the schemas of tools take, measured: in a process of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fmt::Write as _;

use belljar_policy::document::{Context, Document, Format, MAX_PATTERN_BYTES, Policy};
use belljar_policy::json_schema::Schema;

/// Of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Rules of a document that each have a pattern of their own.
fn document(pattern: &str, rules: usize) -> Option<Document> {
    let mut text = "rules:\n".to_owned();
    for number in 0..rules {
        let value = pattern.replace('N', &number.to_string());
        let condition = format!("{{field: x, operator: matches, value: '{value}'}}");
        writeln!(text, "- {{name: r{number}, condition: {condition}, action: deny}}").unwrap();
    }
    Document::parse(&text, Format::Yaml).ok()
}

/// A schema of a tool with about as many patterns as it may have.
fn schema(number: usize) -> Schema {
    let pattern =
        |index: usize| serde_json::json!({"pattern": format!(r"\w{{25}}x{number}y{index}")});
    let any: Vec<_> = (0..48).map(pattern).collect();
    Schema::kept(serde_json::json!({"anyOf": any})).unwrap()
}

/// Letters in an order that hardly repeats, so that matching finds something new at every letter.
fn varied(length: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| if random.bool() { 'a' } else { 'b' }).take(length).collect()
}

/// One test, because what is built of all together is bounded by twice what one document may have.
#[test]
fn all_patterns_take_what_was_counted() {
    let begin = resident();
    let check = |what: &str| {
        let taken = resident().saturating_sub(begin);
        assert!(taken < 3 * MAX_PATTERN_BYTES, "{what}: {taken}");
    };
    // Alone, each would take about 128 MiB.
    let schemas: Vec<_> = (0..6).map(schema).collect();
    for (number, schema) in schemas.iter().enumerate() {
        let word = "w".repeat(25);
        assert!(schema.check(&format!("{word}x{number}y7").into()).is_ok());
        assert!(schema.check(&format!("{word}x{number}z7").into()).is_err());
        check("schemas");
    }
    let short = Context::new().with("x", "äbc 12 no such text");
    let long = Context::new().with("x", varied(2048));
    let mut kept = Vec::new();
    // As many of each kind as there may be.
    for (pattern, rules) in
        [("[a-z] [N5]$", 2000), (r"\w{25}xN", 52), (r".{300}xN", 272), ("(a|b)*a(a|b){12}N", 1900)]
    {
        assert!(document(pattern, rules + rules / 20).is_none(), "more {pattern} would fit");
        let policy = Policy::new(&document(pattern, rules).expect(pattern));
        for context in [&short, &long] {
            assert!(policy.decide(context).permits(), "nothing matches {pattern}");
            check(pattern);
        }
        kept.push(policy);
    }
    for policy in &kept {
        assert!(policy.decide(&short).permits(), "what had to go is built again");
    }
    check("all");
}
