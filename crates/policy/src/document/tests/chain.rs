use super::*;
use crate::document::{Action, Chain, Decision, Inheritance, Layer, Reason, Refusal, extended};

fn chain(inheritance: Inheritance, documents: &[&str]) -> Chain {
    let layers = documents
        .iter()
        .enumerate()
        .map(|(index, yaml)| Layer { origin: format!("d{index}"), document: document(yaml) })
        .collect();
    Chain::new(layers, inheritance).unwrap()
}

fn decide(inheritance: Inheritance, documents: &[&str], json: &str) -> Decision {
    chain(inheritance, documents).policy().decide(&context(json))
}

fn rule(name: &str, action: &str, priority: i64, more: &str) -> String {
    format!(
        "rules: [{{name: '{name}', condition: {{field: x, operator: eq, value: 1}}, action: {action}, \
         priority: {priority}{more}}}]"
    )
}

const X: &str = r#"{"x": 1}"#;

#[test]
fn a_deny_above_stays() {
    let deny = rule("no", "deny", 1, "");
    for below in [
        rule("no", "allow", 9, ", override: true"),
        rule("yes", "allow", 9, ""),
        format!("inherit: false\n{}", rule("yes", "allow", 9, "")),
        "inherit: false\nname: open".to_owned(),
    ] {
        let found = decide(Inheritance::DeniesStay, &[&deny, &below], X);
        assert_eq!(found.verdict, Action::Deny, "{below}");
        assert_eq!(found.rule.as_deref(), Some("no"));
        let other = decide(Inheritance::DeniesStay, &[&deny, &below], r#"{"x": 2}"#);
        assert!(other.permits());
    }
    let found = decide(Inheritance::DeniesStay, &[&deny, &rule("yes", "allow", 9, "")], X);
    assert_eq!(found.reason, Reason::DeniedAbove("d0".to_owned()));
}

#[test]
fn as_written_only_the_name_protects() {
    let deny = rule("no", "deny", 1, "");
    let mode = Inheritance::AsWritten;
    assert!(!decide(mode, &[&deny, &rule("no", "allow", 9, ", override: true")], X).permits());
    assert!(decide(mode, &[&deny, &rule("yes", "allow", 9, "")], X).permits());
    assert!(decide(mode, &[&deny, "inherit: false"], X).permits());
}

#[test]
fn an_exception_above_is_no_denial() {
    let above = "rules:\n\
        - {name: some, condition: {field: x, operator: eq, value: 1}, action: allow, priority: 9}\n\
        - {name: rest, condition: {field: x, operator: gt, value: 0}, action: deny}\n";
    let below = rule("some", "audit", 9, ", override: true");
    for mode in [Inheritance::DeniesStay, Inheritance::AsWritten] {
        assert_eq!(decide(mode, &[above, &below], X).verdict, Action::Audit);
        assert_eq!(decide(mode, &[above, &below], r#"{"x": 2}"#).verdict, Action::Deny);
    }
}

#[test]
fn names_are_replaced_only_by_override() {
    let above = rule("r", "block", 1, "");
    for mode in [Inheritance::DeniesStay, Inheritance::AsWritten] {
        let replaced = decide(mode, &[&above, &rule("r", "allow", 0, ", override: true")], X);
        assert_eq!(replaced.verdict, Action::Allow);
        assert_eq!(decide(mode, &[&above, &rule("r", "allow", 9, "")], X).verdict, Action::Block);
    }
}

#[test]
fn the_default_is_that_of_the_nearest() {
    let mode = Inheritance::DeniesStay;
    let found = decide(mode, &["defaults: {action: allow}", "defaults: {action: deny}"], X);
    assert_eq!((found.verdict, found.reason), (Action::Deny, Reason::Default));
}

#[test]
fn scopes_choose_documents() {
    let scoped = format!("scope: 'src/*'\n{}", rule("no", "deny", 1, ""));
    let all = chain(Inheritance::DeniesStay, &["name: root", &scoped]);
    let at = |path: &str| all.at(path).unwrap().policy().decide(&context(X)).verdict;
    assert_eq!(at("src/a/b.rs"), Action::Deny);
    assert_eq!(at("docs/a.md"), Action::Allow);
    assert!(chain(Inheritance::DeniesStay, &[&scoped]).at("docs").is_none());
}

#[test]
fn the_effective_document_has_the_lowest_limits_and_nearest_lists() {
    let all = chain(
        Inheritance::DeniesStay,
        &[
            "defaults: {max_memory_mb: 512, timeout_seconds: 10}\ntool_allowlist: [a]\nisolation: vm",
            "name: near\ndefaults: {max_memory_mb: 1024}\ntool_allowlist: [b]\nisolation: kernel",
        ],
    );
    let found = all.effective();
    assert_eq!(found.defaults.max_memory_mb, Some(512));
    assert_eq!(found.defaults.timeout_seconds, Some(10));
    assert_eq!(found.tool_allowlist, ["b"]);
    assert_eq!(found.isolation.map(|floor| floor.as_str()), Some("vm"));
    assert_eq!(found.name, "near");
}

#[test]
fn extends_puts_the_general_first() {
    let files = |file: &str| match file {
        "base" => Ok("name: base\ntool_allowlist: [a]"),
        "mid" => Ok("name: mid\nextends: [base]"),
        "loop" => Ok("extends: [loop]"),
        _ => Err(Refusal::whole("missing", "")),
    };
    let load = |yaml: &str| {
        extended("top", document(yaml), &mut |file: &str, _: &str| {
            files(file).map(|yaml| (file.to_owned(), document(yaml)))
        })
    };
    let found = load("name: top\nextends: [mid, base]").unwrap();
    let names: Vec<_> = found.layers().iter().map(|layer| layer.origin.as_str()).collect();
    assert_eq!(names, ["base", "mid", "top"]);
    assert_eq!(found.effective().tool_allowlist, ["a"]);
    assert!(load("extends: [loop]").unwrap_err().message.contains("extends itself"));
    assert!(load("extends: [none]").is_err());
}
