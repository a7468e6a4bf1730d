//! Cases: documents and contexts of a small world, so that rules meet fields often.

use serde_json::{Map, Value, json};

use crate::random::Random;

const FIELDS: [&str; 5] = ["tool", "n", "args", "context.time.hour", "missing"];
const TEXTS: [&str; 12] =
    ["", "a", "b", "rm", "rm -rf /", "ab", "Ä", "1", "True", "it's", "x\n", "None"];
const PATTERNS: [&str; 14] = [
    "a",
    "^rm",
    "rm$",
    "^$",
    "[ab]+",
    "(?i)AB",
    r"\d",
    r"\w\b",
    "True|None",
    "'a'",
    r"\[",
    "x$",
    r"rm -rf\s+/",
    "1",
];
const OPERATORS: [&str; 10] =
    ["eq", "ne", "gt", "lt", "gte", "lte", "in", "not_in", "matches", "contains"];
const ACTIONS: [&str; 4] = ["allow", "deny", "audit", "block"];
pub(crate) const SCOPES: [&str; 4] = ["global", "tenant", "organization", "agent"];
pub(crate) const STRATEGIES: [&str; 4] =
    ["deny_overrides", "allow_overrides", "priority_first_match", "most_specific_wins"];

pub(crate) fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => json!(random.chance(2)),
        2 | 3 => json!(random.below(5) as i64 - 1),
        4 => json!((random.below(8) as f64 - 2.0) / 2.0),
        5 | 6 => json!(random.pick(&TEXTS)),
        7 => (0..random.below(3)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let entries = (0..random.below(3)).map(|_| {
                let name = random.pick(&TEXTS).to_owned();
                (name, value(random, depth - 1))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

pub(crate) fn context(random: &mut Random) -> Value {
    let mut fields = Map::new();
    for field in &FIELDS[..4] {
        if !random.chance(4) {
            fields.insert((*field).to_owned(), value(random, 2));
        }
    }
    Value::Object(fields)
}

fn rule(random: &mut Random, name: String) -> Value {
    let operator = random.pick(&OPERATORS);
    let operand = match operator {
        "matches" if !random.chance(6) => json!(random.pick(&PATTERNS)),
        // What is neither text nor a list becomes a pattern by its digits.
        "matches" => json!(random.below(3)),
        "in" | "not_in" if !random.chance(3) => {
            (0..random.below(4)).map(|_| value(random, 1)).collect()
        }
        _ => value(random, 2),
    };
    let mut rule = json!({
        "name": name,
        "condition": {"field": random.pick(&FIELDS), "operator": operator, "value": operand},
        "action": random.pick(&ACTIONS),
    });
    if !random.chance(3) {
        rule["priority"] = json!(random.below(4) as i64 - 1);
    }
    if random.chance(4) {
        rule["override"] = json!(true);
    }
    if random.chance(2) {
        rule["message"] = json!("because");
    }
    rule
}

/// As YAML: JSON is YAML, and the test of words has the rest.
pub(crate) fn document(random: &mut Random, folder: bool) -> String {
    let count = random.below(6);
    let names = if folder { 4 } else { 100 };
    let rules: Vec<Value> = (0..count)
        .map(|_| {
            let name = format!("r{}", random.below(names));
            rule(random, name)
        })
        .collect();
    let mut document = json!({"name": "generated", "version": "1.0", "rules": rules});
    if random.chance(2) {
        document["defaults"] = json!({"action": random.pick(&ACTIONS)});
    }
    if folder && random.chance(5) {
        document["inherit"] = json!(false);
    }
    if folder && random.chance(4) {
        document["scope"] =
            json!(random.pick(&["*", "d1/*", "d1/d2/*", "*.py", "x*", "d?/*.p[xy]"]));
    }
    document.to_string()
}

pub(crate) fn candidates(random: &mut Random) -> Vec<Value> {
    let count = 1 + random.below(6);
    let mut found: Vec<(usize, Value)> = (0..count)
        .map(|index| {
            let scope = random.below(SCOPES.len());
            let candidate = json!({
                "action": random.pick(&ACTIONS),
                "priority": random.below(3),
                "scope": SCOPES[scope],
                "rule_name": format!("c{index}"),
            });
            (scope, candidate)
        })
        .collect();
    // Documents are asked from the most general to the most specific.
    found.sort_by_key(|(scope, _)| *scope);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

const PIECES: [&str; 50] = [
    "a", "b", "-", "/", " ", ".", "^", "$", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\b", r"\A",
    r"\Z", "[ab]", "[^a]", "[a-c-]", "[]x]", "[[a]", r"[\w-]", r"[\]\d]", "[&&a]", "(a|b)",
    "(?:ab)", "(?P<n>a)", "(?i:A)", "(?m:^b$)", "(?s:.)", "a*", "b+?", "x{2}", "a{,2}", "b{1,3}",
    "{", "}", "]", "{}", "|", r"\.", r"\-", r"\<", r"\x41", r"\n", r"\0", r"\141", "é", "(?#c)",
];
/// What is not for linear matching, or unknown to Python.
pub(crate) const UNSUPPORTED: [&str; 12] = [
    "(?=a)", "(?!a)", "(?<=a)", "(a)\\1", "a++", "(?>a)", r"\q", "(", ")", "**", "(?x)a", r"[b-a]",
];
const CHARACTERS: [&str; 24] = [
    "a", "b", "c", "A", "B", "x", "xx", "-", "/", " ", "\n", "\t", "1", "٣", "_", "é", "[", "]",
    "{", "}", "&", "<", "\u{1c}", ".",
];

pub(crate) fn pattern(random: &mut Random) -> (String, String) {
    let mut pattern = if random.chance(6) { "(?i)".to_owned() } else { String::new() };
    for _ in 0..1 + random.below(5) {
        pattern.push_str(random.pick(&PIECES));
    }
    if random.chance(12) {
        pattern.push_str(random.pick(&UNSUPPORTED));
    }
    let text = (0..random.below(6)).map(|_| random.pick(&CHARACTERS)).collect();
    (pattern, text)
}

pub(crate) fn glob(random: &mut Random) -> (String, String) {
    let pieces = ["a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", "/", ".", "[", "]", "[]a]", "é"];
    let pattern = (0..random.below(6)).map(|_| random.pick(&pieces)).collect();
    let characters = ["a", "b", "c", "/", ".", "[", "]", "é", "-"];
    let text = (0..random.below(6)).map(|_| random.pick(&characters)).collect();
    (pattern, text)
}

pub(crate) fn word(random: &mut Random) -> String {
    let known = [
        "yes", "No", "on", "OFF", "y", "true", "FALSE", "null", "~", "Null", "nULL", "1e3",
        "1.5e3", "1.5e+3", "0o17", "017", "018", "0x1f", "0b11", "1_000", "-0x10", "+12", ".5",
        "-.5", "1.", "._", "..", "12.30",
    ];
    if random.chance(3) {
        return random.pick(&known).to_owned();
    }
    let characters = ["0", "1", "7", "9", "_", ".", "-", "+", "e", "x", "a", "b", "o"];
    (0..1 + random.below(6)).map(|_| random.pick(&characters)).collect()
}
