//! The same questions to this crate and to the public implementation, and the same answers.
//!
//! Thousands of generated documents, contexts, folders, patterns, globs and words. Differences that are meant, each with
//! its reason, are in `docs/reference/policy-compatibility.md`; none of them is an answer to a document that both accept.
//! Where the implementation cannot be installed the test says `SKIPPED` and counts what it did not ask.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "oracle/environment.rs"]
mod environment;
#[path = "oracle/generate.rs"]
mod generate;
#[path = "oracle/random.rs"]
mod random;

use std::io::Write as _;
use std::process::Command;

use belljar_policy::document::{
    Chain, Context, Decision, Document, Format, Inheritance, Layer, Policy, Reason, Value as Ours,
    read,
};
use random::Random;
use serde_json::{Value, json};

const SEED: u64 = 20_250_601;
const CASES: [(&str, usize); 6] = [
    ("decide", 5000),
    ("folder", 1000),
    ("resolve", 1000),
    ("pattern", 3000),
    ("glob", 2000),
    ("word", 2000),
];

#[test]
fn answers_are_those_of_the_public_implementation() {
    let cases = cases();
    let python = match environment::python() {
        Ok(python) => python,
        Err(reason) => {
            println!(
                "SKIPPED {} comparisons with the public implementation: {reason}",
                cases.len()
            );
            return;
        }
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for case in &cases {
        writeln!(file, "{case}").unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/oracle.py");
    let output = Command::new(python).arg(script).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), cases.len());
    let mut refused = 0;
    let mut wrong = Vec::new();
    for (case, theirs) in cases.iter().zip(&answers) {
        match compare(case, theirs) {
            Verdict::Same => {}
            Verdict::RefusedByIntent => refused += 1,
            Verdict::Different(ours) => {
                wrong.push(format!("{case}\n  theirs {theirs}\n  ours {ours}"))
            }
        }
    }
    println!("{} cases compared, {refused} refused here by intent", cases.len());
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {} differ:\n{shown}", wrong.len(), cases.len());
    assert!(refused < cases.len() / 10, "{refused} cases say nothing");
}

fn cases() -> Vec<Value> {
    let mut random = Random::new(SEED);
    let random = &mut random;
    let mut cases = Vec::new();
    for (kind, count) in CASES {
        for _ in 0..count {
            let mut case = match kind {
                "decide" => json!({
                    "document": generate::document(random, false),
                    "context": generate::context(random),
                }),
                "folder" => json!({
                    "documents": (0..1 + random.below(4))
                        .map(|_| generate::document(random, true)).collect::<Vec<_>>(),
                    "context": generate::context(random),
                    "file": random.pick(&["a.py", "x.txt"]),
                }),
                "resolve" => json!({
                    "candidates": generate::candidates(random),
                    "strategy": random.pick(&generate::STRATEGIES),
                }),
                "word" => json!({"word": generate::word(random)}),
                _ => {
                    let (pattern, text) = match kind {
                        "pattern" => generate::pattern(random),
                        _ => generate::glob(random),
                    };
                    json!({"pattern": pattern, "text": text})
                }
            };
            case["kind"] = json!(kind);
            cases.push(case);
        }
    }
    cases
}

enum Verdict {
    Same,
    /// Ours refuses the text with a reason that the list of differences has.
    RefusedByIntent,
    Different(Value),
}

fn same(ours: Value, theirs: &Value) -> Verdict {
    if ours == *theirs { Verdict::Same } else { Verdict::Different(ours) }
}

fn compare(case: &Value, theirs: &Value) -> Verdict {
    match case["kind"].as_str().unwrap() {
        "decide" => {
            let document = parse(text(&case["document"]));
            same(shown(&Policy::new(&document).decide(&context(&case["context"]))), theirs)
        }
        "folder" => folder(case, theirs),
        "resolve" => same(json!({"rule": resolve(case)}), theirs),
        "pattern" => pattern(case, theirs),
        "glob" => {
            let yaml = json!({"scope": case["pattern"]}).to_string();
            let chain = chain(vec![parse(&yaml)], Inheritance::AsWritten);
            same(json!({"found": chain.at(text(&case["text"])).is_some()}), theirs)
        }
        "word" => word(case, theirs),
        other => panic!("{other}"),
    }
}

fn folder(case: &Value, theirs: &Value) -> Verdict {
    let documents = case["documents"].as_array().unwrap().iter().map(|yaml| parse(text(yaml)));
    let mut asked = context(&case["context"]);
    asked.set("path", "set by the implementation, and no rule asks for it");
    let chain = chain(documents.collect(), Inheritance::AsWritten);
    let path = text(&theirs["path"]);
    // Where no document counts, theirs falls back to documents that were loaded otherwise: here none.
    let mut ours = match chain.at(path) {
        Some(chain) => shown(&chain.policy().decide(&asked)),
        None => shown(&Policy::new(&Document::default()).decide(&asked)),
    };
    ours["path"] = json!(path);
    if ours != *theirs {
        return Verdict::Different(ours);
    }
    // And what our own way of inheriting adds: it never permits what theirs refuses.
    let stays = Chain::new(chain.layers().to_vec(), Inheritance::DeniesStay).unwrap();
    let permits = stays.at(path).is_none_or(|chain| chain.policy().decide(&asked).permits());
    if permits && theirs["allowed"] == json!(false) {
        return Verdict::Different(json!("permitted although theirs refuses"));
    }
    Verdict::Same
}

/// One document for each scope; every candidate is a rule that matches.
fn resolve(case: &Value) -> Value {
    let documents = generate::SCOPES.map(|scope| {
        let candidates = case["candidates"].as_array().unwrap();
        let rules: Vec<Value> = candidates
            .iter()
            .filter(|candidate| candidate["scope"] == json!(scope))
            .map(|candidate| {
                json!({
                    "name": candidate["rule_name"],
                    "condition": {"field": "x", "operator": "eq", "value": 1},
                    "action": candidate["action"],
                    "priority": candidate["priority"],
                })
            })
            .collect();
        parse(&json!({"strategy": case["strategy"], "rules": rules}).to_string())
    });
    let policy = chain(documents.to_vec(), Inheritance::AsWritten).policy();
    json!(policy.decide(&Context::new().with("x", 1_i64)).rule)
}

fn pattern(case: &Value, theirs: &Value) -> Verdict {
    let yaml = json!({"rules": [{
        "name": "r", "action": "deny",
        "condition": {"field": "x", "operator": "matches", "value": case["pattern"]},
    }]});
    let pattern = text(&case["pattern"]);
    match Document::parse(&yaml.to_string(), Format::Json) {
        Ok(document) => {
            let asked = Context::new().with("x", text(&case["text"]));
            let decision = Policy::new(&document).decide(&asked);
            same(json!({"found": decision.rule.is_some()}), theirs)
        }
        Err(_) if theirs["found"].is_null() => Verdict::Same,
        Err(refusal) => {
            let intended = generate::UNSUPPORTED.iter().any(|part| pattern.contains(part))
                || pattern.contains("++")
                || pattern.contains("*+")
                || pattern.contains("?+")
                || pattern.contains("}+")
                || refusal.message.contains("something after `$`");
            if intended {
                Verdict::RefusedByIntent
            } else {
                Verdict::Different(json!(refusal.message))
            }
        }
    }
}

fn word(case: &Value, theirs: &Value) -> Verdict {
    let kind = theirs["kind"].as_str().unwrap_or("");
    let Ok(found) = read::<Ours>(&format!("k: {}", text(&case["word"])), Format::Yaml) else {
        // Dates and base 60 must be quoted, and what is no YAML to both is the same to both.
        let dated = matches!(kind, "date" | "datetime");
        let sixty = text(&case["word"]).contains(':');
        return if dated || sixty || kind.is_empty() {
            Verdict::RefusedByIntent
        } else {
            Verdict::Different(json!("refused"))
        };
    };
    let Ours::Map(entries) = found else { return Verdict::Different(json!("no map")) };
    let ours = match &entries[0].1 {
        Ours::Null => json!({"kind": "NoneType", "text": "None"}),
        Ours::Bool(value) => {
            json!({"kind": "bool", "text": if *value { "True" } else { "False" }})
        }
        Ours::Int(value) => json!({"kind": "int", "text": value.to_string()}),
        // How floats are written is compared by `matches` in the documents.
        Ours::Float(value) => {
            let theirs: Option<f64> = theirs["text"].as_str().and_then(|text| text.parse().ok());
            let equal = kind == "float" && theirs == Some(*value);
            return if equal { Verdict::Same } else { Verdict::Different(json!(value)) };
        }
        Ours::Text(text) => json!({"kind": "str", "text": text}),
        other => json!(other.to_string()),
    };
    same(ours, theirs)
}

fn parse(yaml: &str) -> Document {
    Document::parse(yaml, Format::Yaml).unwrap_or_else(|refusal| panic!("{refusal}\n{yaml}"))
}

fn context(json: &Value) -> Context {
    read(&json.to_string(), Format::Json).unwrap()
}

fn chain(documents: Vec<Document>, inheritance: Inheritance) -> Chain {
    let layer = |document| Layer { origin: "document".to_owned(), document };
    Chain::new(documents.into_iter().map(layer).collect(), inheritance).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn shown(decision: &Decision) -> Value {
    json!({
        "action": decision.verdict.as_str(),
        "allowed": decision.permits(),
        "rule": decision.rule,
        "error": matches!(decision.reason, Reason::Error(_)),
    })
}
