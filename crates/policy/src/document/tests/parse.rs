use super::*;
use crate::document::{Action, MAX_BYTES, Operator, Refusal, Source, Value, to_yaml};

const FULL: &str = r#"
version: "1.0"
name: everything
description: each section once
extends: [base.yaml]
inherit: false
scope: "src/*"
strategy: deny_overrides
defaults:
  action: deny
  max_cpu: 0.5
  max_memory_mb: 512
  timeout_seconds: 60
  network_default: deny
  max_tokens: 100
  max_tool_calls: 5
  confidence_threshold: 0.9
network_allowlist: [pypi.org, "*.GitHub.com", "example.com:8443/v1"]
tool_allowlist: [search]
sandbox_mounts: {input_dir: ./in, output_dir: ./out}
rules:
  - name: no-rm
    condition: {field: command, operator: matches, value: '\brm\b'}
    action: deny
    priority: 100
    message: removing is not for agents
    override: yes
isolation: kernel
filesystem:
  writable_root: false
  read_only: [/etc]
  mounts:
    - {source: ./data, target: /data, access: rw}
network:
  mode: allowlist
  ask_seconds: 30
  budgets: [{bytes: 1000000, per_seconds: 60}]
  rules:
    - host: api.example.com
      port: 443
      method: [get, HEAD]
      path: /v1/*
      verdict: allow
      budgets: [{requests: 10}]
    - {host: "*", verdict: ask}
credentials:
  - name: token
    source: {store: example}
    host: api.example.com
    inject: bearer
  - name: other
    source: {command: {argv: [pass, show, x], cache_seconds: 60}}
    host: [a.example.com, b.example.com]
    inject: {header: {name: X-Key, template: "{secret}"}}
    guest_header: refuse
tools:
  - name: add
    description: Adds two numbers.
    input_schema: {type: object, properties: {a: {type: number}, b: {type: number}}, required: [a, b]}
    command: [/usr/bin/add, --json]
    timeout_seconds: 5
  - {name: ask, http: {url: "http://127.0.0.1:8080/ask"}, calls_per_second: 2}
programs: [python3, cat]
processes: {count: 64, lifetime_seconds: 3600}
environment: {set: {LANG: C}, allow: [TERM]}
"#;

fn refused(yaml: &str) -> Refusal {
    Document::parse(yaml, Format::Yaml).expect_err(yaml)
}

#[test]
fn every_section_is_read() {
    let found = document(FULL);
    assert_eq!(found.defaults.max_cpu, Some(0.5));
    assert_eq!(found.rules[0].condition.operator, Operator::Matches);
    assert!(found.rules[0].overrides && !found.inherit);
    assert_eq!(found.network_allowlist[1].to_string(), "*.github.com");
    assert_eq!(found.mounts().len(), 3);
    assert_eq!(found.network.as_ref().unwrap().rules[0].method.0[0].as_str(), "GET");
    assert_eq!(found.tools[0].timeout().as_secs(), 5);
    assert_eq!(found.tools[1].schema(), serde_json::json!({"type": "object"}));
    assert!(matches!(&found.credentials[1].source, Source::Command(c) if c.cache_seconds == 60));
    assert_eq!(Document::parse(&to_yaml(&found), Format::Yaml), Ok(found.clone()));
    let json = serde_json::to_string_pretty(&found).unwrap();
    assert_eq!(Document::parse(&json, Format::Json), Ok(found));
}

#[test]
fn what_is_absent_has_the_known_defaults() {
    let found = document("name: x");
    assert_eq!(found, Document { name: "x".to_owned(), ..Document::default() });
    assert_eq!(found.version, "1.0");
    assert_eq!(found.defaults.action, Action::Allow);
    assert_eq!(found.defaults.max_tokens, 4096);
    assert!(found.inherit);
}

#[test]
fn mistakes_have_a_place_and_a_remedy() {
    let check = |yaml: &str, place: (u32, u32), message: &str, remedy: &str| {
        let found = refused(yaml);
        assert_eq!((found.line(), found.column()), (Some(place.0), Some(place.1)), "{found}");
        assert!(found.message.contains(message), "{found}");
        assert!(found.remedy.contains(remedy), "{}", found.remedy);
    };
    check("name: x\nrulez: []\n", (2, 1), "unknown field `rulez`", "did you mean `rules`?");
    check(
        "rules:\n  - name: a\n    actoin: deny\n",
        (3, 5),
        "unknown field `actoin`",
        "did you mean `action`?",
    );
    check(
        "rules:\n  - name: a\n    action: dney\n    condition: {field: a, operator: eq, value: 1}\n",
        (3, 13),
        "`dney` is not known here",
        "did you mean `deny`?",
    );
    check("rules:\n  - name: a\n", (2, 5), "`condition` is missing", "add `condition:`");
    check("rules: 5\n", (1, 8), "the number `5` is not a list", "write a list");
    check("defaults: {max_memory_mb: lots}", (1, 27), "text `lots`", "a whole number");
    check("defaults: {max_memory_mb: -1}", (1, 27), "the number `-1`", "not negative");
    check("defaults: {max_cpu: 0}", (1, 21), "CPU limit", "");
    check("network_allowlist:\n- a.com\n- 'https://b.com'\n", (3, 3), "has a scheme", "");
    check("network_allowlist:\n- '*'\n", (2, 3), "allows every host", "");
    check("inherit: maybe", (1, 10), "text `maybe`", "`true` or `false`");
    check("name: a\nname: b\n", (2, 1), "written twice", "keep one");
    check("name: [a\n", (2, 1), "", "YAML");
    check("name: 2024-01-31\n", (1, 7), "date", "'2024-01-31'");
    check("name: 5\n", (1, 7), "the number `5` is not text", "write text");
    check("version: 1.0\n", (1, 10), "is not text", "write text");
    check("--- \nname: a\n---\nname: b\n", (4, 1), "second document", "one document");
    check("name: !!python/object:os.system x\n", (1, 7), "tag", "leave the tag out");
    check("network: {rules: [{host: '*', verdict: allow}]}", (1, 19), "every host", "");
    check("network: {rules: [{host: 'a.com:1', verdict: deny}]}", (1, 26), "port or a path", "");
    check(
        "rules:\n- name: a\n  action: deny\n  condition: {field: a, operator: matches, value: '(?=x)'}",
        (2, 3),
        "looks ahead",
        "",
    );
    check(
        "credentials: [{name: a, source: {stor: x}, host: a.com, inject: bearer}]",
        (1, 34),
        "`stor` is not known",
        "did you mean `store`?",
    );
    check(
        "filesystem: {mounts: [{source: a, target: relative}]}",
        (1, 43),
        "plain absolute path",
        "",
    );
    check("filesystem: {mounts: [{source: a, target: /proc}]}", (1, 23), "mount target", "");
    for (tool, problem) in [
        ("{name: a b, command: [x]}", "no name that tools can have"),
        ("{name: a}", "exactly one of"),
        ("{name: a, command: [x], http: {url: 'http://b'}}", "exactly one of"),
        ("{name: a, http: {url: 'ftp://b'}}", "no address"),
        ("{name: a, command: [x], timeout_seconds: 0}", "timeout"),
        ("{name: a, command: [x], calls_per_second: 0}", "never be called"),
        ("{name: a, command: [x], input_schema: {type: text}}", "input schema whose `/type`"),
        ("{name: a, command: [x], input_schema: {if: {}}}", "not checked here"),
    ] {
        check(&format!("tools: [{tool}]"), (1, 9), problem, "");
    }
}

#[test]
fn json_has_places_too() {
    let found = Document::parse("{\n  \"nmae\": \"x\"\n}", Format::Json).unwrap_err();
    assert_eq!((found.line(), found.column()), (Some(2), Some(3)));
    assert!(found.remedy.starts_with("did you mean `name`?"));
    for bad in ["", "{", "{\"a\" 1}", "[1,]", "{} x", "{\"name\": 01}", "nul", "{\"a\":\"\n\"}"] {
        assert!(Document::parse(bad, Format::Json).is_err(), "{bad}");
    }
    let pair = Document::parse("{\"name\": \"\\ud83d\\ude00\"}", Format::Json).unwrap();
    assert_eq!(pair.name, "😀");
}

#[test]
fn anchors_and_merge_keys_work_within_bounds() {
    let found = document(
        "rules:\n- &r\n  name: a\n  action: deny\n  condition: &c {field: x, operator: eq, value: 1}\n\
         - <<: *r\n  name: b\n- {name: c, action: allow, condition: *c}\n",
    );
    assert_eq!(found.rules[1].name, "b");
    assert_eq!(found.rules[1].condition, found.rules[0].condition);
    assert_eq!(found.rules[2].condition.value, Value::Int(1));
    // A billion values of a few bytes: refused by count, long before there is memory for them.
    let mut bomb = String::from("a: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let before = format!("*a{},", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(refused(&bomb).message.contains("values"));
    // Few values, and each of them long; as a name it counts like as a value.
    let long = "x".repeat(1 << 20);
    for anchored in [format!("&b '{long}'"), format!("&b {{'{long}': 1}}")] {
        let text = |times: usize| {
            let values = ", *b".repeat(times);
            format!(
                "rules: [{{name: a, action: deny, condition: {{field: x, operator: in, value: [{anchored}{values}]}}}}]\n"
            )
        };
        document(&text(13));
        assert!(refused(&text(16)).message.contains("bytes of text"));
    }
}

#[test]
fn what_anchors_keep_is_bounded() {
    let nested = |anchors: usize, value: &str| {
        let open: String = (0..anchors).map(|level| format!("&a{level} [")).collect();
        let value = format!("{open}{value}{}", "]".repeat(anchors));
        format!(
            "rules: [{{name: a, action: deny, condition: {{field: x, operator: in, value: {value}}}}}]\n"
        )
    };
    // Each has all that is in those inside it.
    let many = "1,".repeat(100_000);
    document(&nested(5, &many));
    assert!(refused(&nested(20, &many)).message.contains("anchors"));
    let long = "x".repeat(1 << 20);
    document(&nested(10, &long));
    assert!(refused(&nested(20, &long)).message.contains("anchors"));
    // What is kept for one counts for itself, and not again with what is around it.
    document(&nested(25, "1"));
}

#[test]
fn large_maps_are_read_name_by_name() {
    // Each name beside each other would be thousands of millions of comparisons.
    const MANY: usize = 100_000;
    let entries = (0..MANY).map(|n| format!("\"a{n}\": {n}")).collect::<Vec<_>>().join(", ");
    let value = format!("[&m {{{entries}}}, {{<<: *m, b: 1}}]");
    let found = document(&format!(
        "rules: [{{name: a, action: deny, condition: {{field: x, operator: in, value: {value}}}}}]\n"
    ));
    let Value::List(maps) = &found.rules[0].condition.value else { panic!("not a list") };
    let mut entries: Vec<_> = (0..MANY).map(|n| (format!("a{n}"), Value::from(n as u64))).collect();
    assert_eq!(maps[0], Value::Map(entries.clone()));
    entries.insert(0, ("b".to_owned(), Value::Int(1)));
    assert_eq!(maps[1], Value::Map(entries));
}

#[test]
fn a_name_that_is_repeated_is_looked_up_once_each_time() {
    // Looking through all names for each would be a hundred thousand MiB.
    let long = (0..15).map(|n| format!("\"{}{n}\": 0, ", "x".repeat(64 << 10))).collect::<String>();
    let repeated = "\"a\": 1, ".repeat(100_000);
    let found: Value = serde_json::from_str(&format!("{{{long}{repeated}\"a\": 2}}")).unwrap();
    let Value::Map(entries) = found else { panic!("not a map") };
    assert_eq!((entries.len(), &entries[15]), (16, &("a".to_owned(), Value::Int(2))));
}

#[test]
fn size_and_depth_are_bounded() {
    let long = format!("name: {}", "x".repeat(MAX_BYTES));
    assert!(refused(&long).message.contains("bytes"));
    let deep = format!("name: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(refused(&deep).message.contains("nested"));
    let json = format!("{{\"name\": {}", "[".repeat(100_000));
    assert!(Document::parse(&json, Format::Json).is_err());
    let rule = "- {name: a, action: deny, condition: {field: a, operator: eq, value: 1}}\n";
    let many = format!("rules:\n{}", rule.repeat(20_001));
    assert!(refused(&many).message.contains("rules"));
}

#[test]
fn a_text_that_ends_too_early_does_so_where_it_ends() {
    let place = |text: &str| {
        let refusal = Document::parse(text, Format::Yaml).unwrap_err();
        (refusal.line(), refusal.column())
    };
    assert_eq!(place("{name: x, rules: [{name"), (Some(1), Some(24)));
    assert_eq!(place("name: x\r\nrules: ["), (Some(2), Some(9)));
    assert_eq!(place("name: x\nrules: [}\n"), (Some(2), Some(9)));
}
