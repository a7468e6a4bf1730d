//! Schemas as functions declare them, and values that fit and do not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Reading, Schema};
use crate::document::Looks;

/// A schema that comes in alone.
fn declared(schema: Value) -> Result<Schema, String> {
    Schema::new(schema, &mut Reading::default())
}

fn looked_at(schema: &Value) -> Result<(), String> {
    Schema::look_at(schema, &mut Looks::default())
}

/// Whether the value fits, and that it fits for the reason that is named.
#[track_caller]
fn check(schema: &Value, value: &Value, expected: Result<(), &str>) {
    let found = declared(schema.clone()).expect("a schema").check(value);
    match (&found, expected) {
        (Ok(()), Ok(())) => {}
        (Err(reason), Err(words)) if reason.contains(words) => {}
        _ => panic!("{schema} {value}: {found:?}, not {expected:?}"),
    }
}

#[test]
fn arguments_of_a_function() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "maxLength": 20, "pattern": "^[A-Z]"},
            "days": {"type": "integer", "minimum": 1, "exclusiveMaximum": 15},
            "unit": {"enum": ["C", "F", null], "default": "C"},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": true},
            "at": {"$ref": "#/$defs/Point"},
        },
        "required": ["city"],
        "additionalProperties": false,
        "$defs": {"Point": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "items": false}},
    });
    for (value, expected) in [
        (json!({"city": "Oslo"}), Ok(())),
        (
            json!({"city": "Oslo", "days": 14, "unit": null, "tags": ["a", "b"], "at": [1, 2.5]}),
            Ok(()),
        ),
        (json!({"city": "Oslo", "days": 2.0}), Ok(())),
        (json!({}), Err("has no `city`")),
        (json!([]), Err("not of type object")),
        (json!({"city": 1}), Err("`/city` is not of type string")),
        (json!({"city": "oslo"}), Err("does not match")),
        (json!({"city": ""}), Err("fewer than 1")),
        (json!({"city": "Llanfairpwllgwyngyllgogerychwyrn"}), Err("more than 20")),
        (json!({"city": "Oslo", "days": 0}), Err("below 1")),
        (json!({"city": "Oslo", "days": 15}), Err("not below 15")),
        (json!({"city": "Oslo", "days": 1.5}), Err("integer")),
        (json!({"city": "Oslo", "unit": "K"}), Err("none of")),
        (json!({"city": "Oslo", "tags": ["a", "a"]}), Err("`/tags/1` is there twice")),
        (json!({"city": "Oslo", "tags": ["a", "b", "c"]}), Err("more than 2")),
        (json!({"city": "Oslo", "tags": [1]}), Err("`/tags/0`")),
        (json!({"city": "Oslo", "at": [1, "x"]}), Err("`/at/1`")),
        (json!({"city": "Oslo", "at": [1, 2, 3]}), Err("not allowed")),
        (json!({"city": "Oslo", "town": 1}), Err("`/town` is not known")),
    ] {
        check(&schema, &value, expected);
    }
}

#[test]
fn alternatives() {
    let any = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
    check(&any, &json!("x"), Ok(()));
    check(&any, &json!(1.5), Err("none of the alternatives"));
    let one = json!({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]});
    check(&one, &json!(4), Ok(()));
    check(&one, &json!(6), Err("exactly one"));
    let all = json!({"allOf": [{"minimum": 1}, {"maximum": 3}], "not": {"const": 2}});
    check(&all, &json!(3), Ok(()));
    check(&all, &json!(4), Err("above 3"));
    check(&all, &json!(2.0), Err("must not"));
    let names =
        json!({"propertyNames": {"maxLength": 1}, "additionalProperties": {"type": "null"}});
    check(&names, &json!({"a": null}), Ok(()));
    check(&names, &json!({"ab": null}), Err("`/ab` has 2 characters"));
    check(&json!({"const": {"a": [1]}}), &json!({"a": [1.0]}), Ok(()));
    check(&json!({"const": u64::MAX}), &json!(u64::MAX - 1), Err("is not"));
}

#[test]
fn what_cannot_be_checked_cannot_be_declared() {
    for schema in [
        json!({"if": {}, "then": {}}),
        json!({"patternProperties": {}}),
        json!({"type": "text"}),
        json!({"type": []}),
        json!({"properties": []}),
        json!({"properties": {"a": 1}}),
        json!({"items": [{}]}),
        json!({"pattern": "(?=a)"}),
        json!({"pattern": "a{1000}{1000}"}),
        json!({"pattern": "a".repeat((16 << 10) + 1)}),
        json!({"required": "a"}),
        json!({"minimum": "1"}),
        json!({"minLength": -1}),
        json!({"multipleOf": 0}),
        json!({"anyOf": []}),
        json!({"$ref": "https://example.com/schema"}),
        json!({"$ref": "#/$defs/Missing"}),
        json!({"$ref": "#/properties/a", "properties": {"a": {}}}),
        json!([]),
    ] {
        assert!(declared(schema.clone()).is_err(), "{schema}");
    }
    assert!(declared(json!({"pattern": "a".repeat(16 << 10)})).is_ok());
    assert!(declared(json!({"pattern": "a{100}{100}"})).is_ok());
}

#[test]
fn patterns_of_ordinary_names_can_be_declared() {
    let nested = format!("^{}a{}$", "(".repeat(100), ")".repeat(100));
    for (pattern, fits, does_not) in [
        (r"^\w{1,32}$", "größe_1", "a b"),
        (r"^\w{1,64}$", "größe_1", "a b"),
        (r"^[\w.-]{3,50}$", "a.b-c", "a/b"),
        (r"^[\p{L} ]{1,50}$", "Åse Ø", "Åse 1"),
        (r"^[^\s@]+@[^\s@]+\.[^\s@]{2,63}$", "a@b.example", "a@b"),
        (nested.as_str(), "a", "b"),
    ] {
        let schema = json!({"pattern": pattern});
        check(&schema, &json!(fits), Ok(()));
        check(&schema, &json!(does_not), Err("does not match"));
    }
}

#[test]
fn what_patterns_take_is_judged_when_they_come_in() {
    let of = |count: usize| {
        let pattern = |n: usize| json!({"pattern": format!(r"^\w{{1,25}}{n}$")});
        json!({"anyOf": (0..count).map(pattern).collect::<Vec<_>>()})
    };
    for (schema, words) in [
        (json!({"pattern": r"\w{100}x"}), r"pattern `\\w{100}x` would take more than 8 MiB"),
        (of(64), "patterns would take more than 128 MiB together"),
    ] {
        assert_eq!(declared(schema.clone()).unwrap_err(), words);
        // One that came in before is what it was.
        let schema = Schema::kept(schema).expect("it was let in");
        assert_eq!(
            schema.check(&json!(format!("{}x", "w".repeat(100)))).is_ok(),
            words.contains('x')
        );
    }
    assert!(declared(of(40)).is_ok());
}

#[test]
fn no_schema_runs_away() {
    check(&json!({"$ref": "#"}), &json!(1), Err("too long"));
    let twice = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
    check(&twice, &json!(1), Err("too long"));
    let unique = json!({"uniqueItems": true});
    check(&unique, &(0..10_000).collect::<Vec<_>>().into(), Err("too long"));
    // A tree is no loop.
    let tree = json!({"properties": {"next": {"$ref": "#"}}, "additionalProperties": false});
    check(&tree, &json!({"next": {"next": {}}}), Ok(()));
    check(&tree, &json!({"next": {"other": {}}}), Err("`/next/other`"));
}

#[test]
fn matching_is_counted() {
    // No letter of it is certain, so each character of the text meets each of its places.
    let slow = json!({"pattern": "[ab]*a[ab]{20000}[^ab]"});
    let text = |length: usize| json!("a".repeat(length));
    check(&slow, &text(100), Err("does not match"));
    check(&slow, &text(128 << 10), Err("too long"));
    let often = |pattern: &str| {
        let each = vec![json!({"$ref": "#/$defs/p"}); 4000];
        json!({"$defs": {"p": {"pattern": pattern}}, "anyOf": each})
    };
    check(&often("[ab]{9}x"), &text(64), Err("fits none"));
    check(&often("[ab]{9}x"), &text(4096), Err("too long"));
    check(&often("y"), &text(128 << 10), Err("too long"));
    check(&json!({"pattern": "^[a-z]+$"}), &text(128 << 10), Ok(()));
}

#[test]
fn places_are_written_only_for_a_message() {
    // Each place below would be thousands of gigabytes together.
    let long = "n".repeat(8 << 20);
    let many: serde_json::Map<_, _> = (0..90_000).map(|n| (format!("a{n}"), json!({}))).collect();
    let mut schema = json!({"properties": {long.clone(): {"properties": many}}});
    assert!(declared(schema.clone()).is_ok());
    schema["properties"][&long]["properties"]["a5"] = json!({"type": 1});
    let refused = declared(schema).unwrap_err();
    assert!(refused.starts_with("`/properties/nnn"), "{refused}");
    let each = json!({"additionalProperties": {"items": {"not": {"type": "string"}}}});
    check(&each, &json!({long.clone(): vec![1; 40_000]}), Ok(()));
    check(&each, &json!({long: ["x"]}), Err("`/nnn"));
}

#[test]
fn what_nobody_hears_is_not_said() {
    let large = "x".repeat(8 << 20);
    let unlike = json!({"items": {"not": {"enum": [large, 2]}}});
    check(&unlike, &json!(vec![1; 20_000]), Ok(()));
    check(&unlike, &json!([1, 2]), Err("`/1` is what it must not be"));
    // What is inside alternatives is heard of by nobody, but what is beside them is.
    let beside = json!({"anyOf": [{"not": {"const": 1}}, {"type": "integer"}], "maximum": 1});
    check(&beside, &json!(1), Ok(()));
    check(&beside, &json!(2), Err("above 1"));
}

#[test]
fn steps_are_as_large_as_what_is_done() {
    let often = |schema: Value| {
        let each = vec![json!({"$ref": "#/$defs/d"}); 2000];
        json!({"$defs": {"d": schema}, "allOf": each})
    };
    let long = "a".repeat(1 << 20);
    let names: serde_json::Map<_, _> = (0..1000).map(|n| (n.to_string(), json!(1))).collect();
    for (schema, value) in [
        (json!({"const": long}), json!(long)),
        (json!({"enum": [1, long]}), json!(long)),
        (json!({"minLength": 1}), json!(long)),
        (json!({"pattern": "a"}), json!(long)),
        (json!({"required": [long]}), json!({long.as_str(): 1})),
        (json!({"propertyNames": true}), json!({long.as_str(): 1})),
        (json!({"properties": {"x": {}}}), json!({long.as_str(): 1})),
        (json!({"properties": {"x": {}}}), Value::Object(names)),
        (json!({"const": {long.as_str(): 1}}), json!({long.as_str(): 1})),
        (json!({"type": vec!["integer"; 1000]}), json!(1)),
    ] {
        check(&schema, &value, Ok(()));
        check(&often(schema), &value, Err("too long"));
    }
    let named = json!({"$defs": {long.as_str(): {}}, "items": {"$ref": format!("#/$defs/{long}")}});
    check(&named, &json!([1]), Ok(()));
    check(&named, &json!(vec![1; 2000]), Err("too long"));
    check(
        &often(json!({"properties": {"a": {"type": ["integer", "null"]}}})),
        &json!({"a": 1}),
        Ok(()),
    );
}

#[test]
fn patterns_that_take_long_to_read_are_not_read() {
    let classes = |count: usize, flag: &str| json!({"pattern": format!("{flag}{}", "[ -\u{10ffff}]".repeat(count))});
    assert!(declared(classes(10, "(?i)")).is_ok());
    assert!(declared(classes(1000, "")).is_ok());
    let refused = declared(classes(1000, "(?i)")).unwrap_err();
    assert!(refused.contains("too long to read"), "{refused}");
    // What is part of a class counts as what it stands for, and not as what it is written with.
    let negated = json!({"pattern": format!("(?i){}", "[a[:^alpha:]]".repeat(1000))});
    assert!(declared(negated.clone()).unwrap_err().contains("too long to read"));
    // Where it is only looked at, too, and what is malformed is told there.
    assert_eq!(looked_at(&negated), Ok(()));
    assert!(looked_at(&json!({"pattern": "(?=a)"})).is_err());
    // Nor what is long by itself.
    for long in [r"\w".repeat(1 << 20), "a".repeat(1 << 20)] {
        let long = json!({"pattern": long});
        assert!(declared(long.clone()).unwrap_err().contains("longer than 16 KiB"));
        assert_eq!(looked_at(&long), Ok(()));
    }
    // All of a schema, together.
    let each: Vec<_> = (0..20)
        .map(|n| json!({"pattern": format!("(?i){n}{}", "[b-\u{10ffff}]".repeat(4))}))
        .collect();
    let refused = declared(json!({"anyOf": each})).unwrap_err();
    assert!(refused.contains("too long to read"), "{refused}");
    // Alternatives that become one class, which each is put together with those before it.
    let many = (0..20).map(|n| json!({"pattern": "[ac]|".repeat(3000) + &n.to_string()}));
    let refused = declared(json!({"anyOf": many.collect::<Vec<_>>()})).unwrap_err();
    assert!(refused.contains("too long to read"), "{refused}");
    // And all that come together.
    let mut reading = Reading::default();
    let come: Vec<_> = each.iter().map(|one| Schema::new(one.clone(), &mut reading)).collect();
    assert!(come[0].is_ok() && come[19].is_err());
}

#[test]
fn a_long_pattern_that_came_in_before_is_what_it_was() {
    let names: Vec<_> = (0..2000).map(|n| format!("name-{n:05}")).collect();
    let schema = json!({"pattern": format!("^(?:{})$", names.join("|"))});
    assert!(declared(schema.clone()).unwrap_err().contains("longer than 16 KiB"));
    let kept = Schema::kept(schema).unwrap();
    assert_eq!(kept.check(&json!("name-01234")), Ok(()));
    assert!(kept.check(&json!("name-x")).is_err());
    // Little is built of what only people read.
    let schema = json!({"pattern": format!("(?x) ^a {} b$", "# Said at length.\n".repeat(5000))});
    assert!(declared(schema.clone()).unwrap_err().contains("longer than 16 KiB"));
    assert_eq!(looked_at(&schema), Ok(()));
    let kept = Schema::kept(schema).unwrap();
    assert_eq!(kept.check(&json!("ab")), Ok(()));
    assert!(kept.check(&json!("a b")).is_err());
}

#[test]
fn a_pattern_that_takes_long_to_read_and_came_in_before_is_what_it_was() {
    let schema = json!({"pattern": format!("(?i)^{}$", "[b-\u{10ffff}]".repeat(64))});
    assert!(declared(schema.clone()).unwrap_err().contains("too long to read"));
    let kept = Schema::kept(schema).unwrap();
    assert_eq!(kept.check(&json!("x".repeat(64))), Ok(()));
    assert!(kept.check(&json!("xa")).is_err());
}

#[test]
fn what_takes_long_is_told_before() {
    let takes = |schema: Value, bytes: usize| declared(schema).unwrap().takes_long(bytes);
    let plain =
        || json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
    assert!(!takes(plain(), 500));
    assert!(takes(plain(), 8 << 10));
    assert!(!takes(json!({"pattern": "plain"}), 500));
    assert!(takes(json!({"pattern": "^a"}), 1));
    assert!(takes(json!({"items": {"uniqueItems": true}}), 1));
    assert!(takes(json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}), 1));
    assert!(takes(json!({"items": {"anyOf": vec![json!({"type": "null"}); 100]}}), 100));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z$]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let word = prop_oneof![
            Just("type"),
            Just("properties"),
            Just("items"),
            Just("$ref"),
            Just("anyOf"),
            Just("not"),
            Just("enum"),
            Just("required"),
            Just("minimum"),
            Just("pattern"),
            Just("$defs"),
            Just("a"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(word.prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics(schema in any_json(), value in any_json()) {
        if let Ok(schema) = declared(schema) {
            let _ = schema.check(&value);
        }
    }
}
