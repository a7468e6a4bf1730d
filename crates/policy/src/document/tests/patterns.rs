use super::*;
use crate::document::{Chain, Document, Inheritance, Layer, Policy, Reason, Refusal, Value};

/// Rules that each have a pattern of their own.
fn rules(numbers: std::ops::Range<usize>, pattern: &str) -> String {
    let rule = |number: usize| {
        let value = pattern.replace('N', &number.to_string());
        format!(
            "- {{name: r{number}, condition: {{field: x, operator: matches, value: '{value}'}}, action: deny}}\n"
        )
    };
    format!("rules:\n{}", numbers.map(rule).collect::<String>())
}

fn parsed(text: &str) -> Result<Document, Refusal> {
    Document::parse(text, Format::Yaml)
}

#[test]
fn patterns_are_bounded_together() {
    let refused = parsed(&rules(0..100, r"\w{25}xN")).unwrap_err();
    assert!(refused.message.contains("more than 128 MiB of memory"), "{refused}");
    assert!(refused.remedy.contains('|'), "{refused:?}");
    assert!(parsed(&rules(0..4000, "^xN[a-z]+$")).is_err());
    // As many as documents of people have, also of the greatest cost.
    assert!(parsed(&rules(0..1500, "^xN[a-z]+$")).is_ok());
    assert!(parsed(&rules(0..40, r"\w{25}xN")).is_ok());
    // The same pattern is built once, and plain text never.
    assert!(parsed(&rules(0..4000, r"\w{25}x")).is_ok());
    assert!(parsed(&rules(0..4000, "plain N")).is_ok());
}

#[test]
fn patterns_of_documents_that_build_on_each_other_are_bounded_together() {
    let layer = |origin: &str, numbers| {
        let document = parsed(&rules(numbers, r"\w{25}xN")).unwrap();
        Layer { origin: origin.to_owned(), document }
    };
    let chain = |second| {
        Chain::new(vec![layer("above", 0..40), layer("below", second)], Inheritance::DeniesStay)
    };
    assert!(chain(40..80).unwrap_err().message.contains("together"));
    assert!(chain(40..45).is_ok());
    assert!(chain(0..40).is_ok(), "the same ones");
}

#[test]
fn what_takes_long_to_read_is_refused_unread() {
    // Each takes some ten milliseconds.
    let large = "(?i)N[ -\\U0010ffff][ -\\U0010fffe][ -\\U0010fffd]";
    let refused = parsed(&rules(0..1000, large)).unwrap_err();
    assert!(refused.message.contains("take too long to read"), "{refused}");
    assert!(parsed(&rules(0..10, large)).is_ok());
    assert!(parsed(&rules(0..1000, &large.replace("(?i)", ""))).is_ok());
    assert!(parsed(&rules(0..1000, r"^(?i:rmN)\s+[a-z]+$")).is_ok());
    // Nor are alternatives that become one class, which each is put together with those before it.
    let many = "[ac]|".repeat(800) + "N";
    let refused = parsed(&rules(0..500, &many)).unwrap_err();
    assert!(refused.message.contains("take too long to read"), "{refused}");
    assert!(parsed(&rules(0..50, &many)).is_ok());
    assert!(parsed(&rules(0..100, &("name|".repeat(800) + "N"))).is_ok());
    // What `\w` and `\d` stand for is large, but far from all there is.
    for pattern in [r"(?i)\w+N", r"(?i)[\w.-]N", r"(?i)\d+xN"] {
        assert_eq!(parsed(&rules(0..500, pattern)).map(drop), Ok(()), "{pattern}");
    }
    // What is read with all others is judged all the same.
    let costly = r"(?i)[^a]\W{20000}";
    let refused = parsed(&rules(0..1, costly)).unwrap_err();
    assert!(refused.message.contains("its repetitions multiply"), "{refused}");
}

#[test]
fn schemas_of_many_tools_are_read_in_the_time_of_one() {
    let tools = |count: usize| {
        let tool = |number: usize| {
            let pattern = format!("(?i){number}{}", "[b-\\U0010ffff]".repeat(10));
            format!(
                "- {{name: t{number}, command: ['true'], input_schema: {{pattern: \"{pattern}\"}}}}\n"
            )
        };
        parsed(&format!("tools:\n{}", (0..count).map(tool).collect::<String>()))
    };
    assert!(tools(5).is_ok());
    let refused = tools(1000).unwrap_err();
    assert!(refused.message.contains("takes too long to read"), "{refused}");
}

#[test]
fn what_many_patterns_take_to_look_at_is_bounded() {
    // Each is looked at in no time, but all of them take a minute. What is malformed is told wherever it is.
    let quick = r"(?i)[ -\u7000]N";
    let refused = parsed(&rules(0..20_001, quick)).unwrap_err();
    assert!(refused.message.contains("more than 20000"), "{refused}");
    let refused =
        parsed(&(rules(0..5000, quick) + &rules(0..1, "(N")["rules:\n".len()..])).unwrap_err();
    assert_eq!(refused.line(), Some(5002), "{refused}");
    let tool = |number: usize, pattern: &str| {
        let patterns = format!("{{pattern: '{pattern}'}}, ").repeat(20);
        format!("- {{name: t{number}, command: [a], input_schema: {{anyOf: [{patterns}]}}}}\n")
    };
    let many: String = (0..2000).map(|number| tool(number, r"(?i)[ -\x{7000}]")).collect();
    let refused = parsed(&format!("tools:\n{many}{}", tool(0, "(?=a)"))).unwrap_err();
    assert_eq!(refused.line(), Some(2002), "{refused}");
}

#[test]
fn looking_for_patterns_is_bounded_for_each_answer() {
    let asked = |pattern: &str, count: usize, length: usize| {
        let policy = Policy::new(&parsed(&rules(0..count, pattern)).expect(pattern));
        policy.decide(&Context::new().with("x", "a".repeat(length)))
    };
    // No letter of it is certain, so each character of the text meets each of its places.
    let slow = "[ab]*a[ab]{9000}[^ab]N";
    assert!(asked(slow, 1, 1000).permits());
    // Thousands of gigabytes to compare, none of which is.
    let refused = asked(slow, 50, 4 << 20);
    assert!(!refused.permits());
    assert!(matches!(&refused.reason, Reason::Error(error) if error.contains("`r0`: its pattern")));
    // All of them together; plain text takes little.
    assert!(asked("^[b-z]+N$", 500, 16 << 10).permits());
    assert!(!asked("^[b-z]+N$", 500, 128 << 10).permits());
    assert!(asked("yN", 4000, 128 << 10).permits());
}

#[test]
fn a_value_is_written_once_for_all_patterns() {
    let list = Value::List(vec![Value::from("b"); 20_000]);
    let policy = Policy::new(&parsed(&rules(0..4000, "yN")).unwrap());
    assert!(policy.decide(&Context::new().with("x", list)).permits());
}

#[test]
fn the_greatest_pattern_can_be_built() {
    // Each close to the greatest cost, and of a kind of its own.
    for pattern in [r"\w{25}x", r"(?i)[a-z]{4900}", ".{9900}x", "(a?){19900}", r"\d{250}"] {
        let policy = Policy::new(&parsed(&rules(0..1, pattern)).expect(pattern));
        let decision = policy.decide(&context(r#"{"x": "no such text"}"#));
        assert_eq!(decision.permits(), pattern != "(a?){19900}", "{pattern}: {decision:?}");
    }
}
