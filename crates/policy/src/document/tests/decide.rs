use super::*;
use crate::document::{Action, Policy, Reason, Strategy};

const RULES: &str = r#"
name: tools
defaults: {action: deny}
rules:
  - {name: low, condition: {field: tool, operator: eq, value: rm}, action: allow, priority: 1}
  - {name: high, condition: {field: tool, operator: eq, value: rm}, action: block, priority: 9, message: no rm}
  - {name: first, condition: {field: tool, operator: in, value: [ls, cat]}, action: audit}
  - {name: second, condition: {field: tool, operator: in, value: [ls, cat]}, action: deny}
  - {name: nested, condition: {field: arguments.path, operator: contains, value: etc}, action: allow}
"#;

fn verdict(yaml: &str, json: &str) -> (Action, Option<String>) {
    let decision = Policy::new(&document(yaml)).decide(&context(json));
    (decision.verdict, decision.rule)
}

fn by(action: Action, rule: &str) -> (Action, Option<String>) {
    (action, Some(rule.to_owned()))
}

#[test]
fn priority_then_order_then_default() {
    assert_eq!(verdict(RULES, r#"{"tool": "rm"}"#), by(Action::Block, "high"));
    assert_eq!(verdict(RULES, r#"{"tool": "ls"}"#), by(Action::Audit, "first"));
    assert_eq!(verdict(RULES, r#"{"tool": "vi"}"#), (Action::Deny, None));
    assert_eq!(verdict(RULES, r#"{"arguments.path": "/etc/x"}"#), by(Action::Allow, "nested"));
    assert_eq!(verdict("name: empty", "{}"), (Action::Allow, None));
}

#[test]
fn nested_values_get_dotted_names() {
    let mut asked = Context::new();
    asked.nest("arguments", serde_json::from_str(r#"{"path": "/etc/x"}"#).unwrap());
    let decision = Policy::new(&document(RULES)).decide(&asked);
    assert_eq!(decision.rule.as_deref(), Some("nested"));
}

#[test]
fn a_missing_field_never_matches() {
    for operator in ["eq", "ne", "gt", "lt", "gte", "lte", "in", "not_in", "matches", "contains"] {
        let yaml = format!(
            "rules: [{{name: a, condition: {{field: x, operator: {operator}, value: [1]}}, action: deny}}]"
        );
        assert_eq!(verdict(&yaml, r#"{"y": 1}"#).0, Action::Allow, "{operator}");
        assert_eq!(verdict(&yaml, r#"{"x": null}"#).0, Action::Allow, "{operator}");
    }
}

#[test]
fn what_cannot_be_evaluated_is_denied() {
    let yaml = "rules:\n\
        - {name: sure, condition: {field: ok, operator: eq, value: 1}, action: allow, priority: 5}\n\
        - {name: bad, condition: {field: n, operator: gt, value: 5}, action: allow}\n";
    let policy = Policy::new(&document(yaml));
    let decision = policy.decide(&context(r#"{"n": "many"}"#));
    assert_eq!((decision.verdict, decision.rule), (Action::Deny, None));
    assert!(matches!(decision.reason, Reason::Error(_)));
    assert!(policy.decide(&context(r#"{"n": 6}"#)).permits());
    // The rule that decides comes before the one that fails.
    assert!(policy.decide(&context(r#"{"n": "many", "ok": 1}"#)).permits());
}

#[test]
fn strategies() {
    let rules = "
rules:
  - {name: a, condition: {field: x, operator: eq, value: 1}, action: allow, priority: 1}
  - {name: b, condition: {field: x, operator: eq, value: 1}, action: deny, priority: 0}
  - {name: c, condition: {field: x, operator: eq, value: 1}, action: audit, priority: 9}
";
    for (strategy, expected) in [
        (Strategy::PriorityFirstMatch, "c"),
        (Strategy::DenyOverrides, "b"),
        (Strategy::AllowOverrides, "a"),
        (Strategy::MostSpecificWins, "c"),
    ] {
        let yaml = format!("strategy: {}{rules}", strategy.as_str());
        assert_eq!(verdict(&yaml, r#"{"x": 1}"#).1.as_deref(), Some(expected), "{strategy:?}");
    }
}

#[test]
fn explanations_name_rule_reason_and_next() {
    let policy = Policy::new(&document(RULES));
    let found = policy.explain(&context(r#"{"tool": "rm"}"#));
    assert_eq!(found.decision, policy.decide(&context(r#"{"tool": "rm"}"#)));
    assert_eq!(found.next.as_ref().unwrap().rule, "low");
    assert_eq!(found.next_verdict, Action::Allow);
    assert_eq!(found.missing_fields, ["arguments.path"]);
    let text = found.to_string();
    for part in ["block", "`high`", "priority 9", "tool equals \"rm\"", "no rm", "`low`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let found = policy.explain(&context(r#"{"tool": "vi"}"#));
    assert_eq!((found.decided_by, found.next), (None, None));
}

#[test]
fn the_digest_is_that_of_what_is_said() {
    let one = document("name: a\ntool_allowlist: [x, y]\n");
    let same = document("tool_allowlist: ['y', x, x]\nname: \"a\"\n");
    let other = document("name: a\ntool_allowlist: [x]\n");
    assert_eq!(one.digest(), same.digest());
    assert_ne!(one.digest(), other.digest());
    assert_eq!(one.digest().len(), 64);
    assert_eq!(Policy::new(&one).digest(), one.digest());
}
