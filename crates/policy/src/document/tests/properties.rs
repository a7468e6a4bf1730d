use proptest::prelude::*;

use crate::document::{
    Action, Condition, Context, Document, Format, Operator, Policy, Rule, Strategy as Conflict,
    Value, diff, to_yaml,
};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-5i64..5).prop_map(Value::from),
        (-4..4i32).prop_map(|n| Value::Float(f64::from(n) / 2.0)),
        "[ab]{0,2}".prop_map(Value::Text),
        any::<String>().prop_map(Value::Text),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            prop::collection::btree_map("[abc]", inner, 0..3)
                .prop_map(|map| Value::Map(map.into_iter().collect())),
        ]
    })
}

fn operator() -> impl Strategy<Value = Operator> {
    use Operator::*;
    prop::sample::select(vec![Eq, Ne, Gt, Lt, Gte, Lte, In, NotIn, Contains, Matches])
}

fn action() -> impl Strategy<Value = Action> {
    prop::sample::select(vec![Action::Allow, Action::Deny, Action::Audit, Action::Block])
}

fn rule() -> impl Strategy<Value = Rule> {
    ("[a-c]", "[xyz]", operator(), value(), action(), -2i64..3, any::<bool>()).prop_map(
        |(name, field, operator, value, action, priority, overrides)| Rule {
            name,
            // Text of all kinds is seldom a pattern.
            condition: match operator {
                Operator::Matches => Condition { field, operator, value: Value::from("a|b$") },
                _ => Condition { field, operator, value },
            },
            action,
            priority,
            message: String::new(),
            overrides,
        },
    )
}

fn document() -> impl Strategy<Value = Document> {
    let strategy = prop::sample::select(vec![
        Conflict::PriorityFirstMatch,
        Conflict::DenyOverrides,
        Conflict::AllowOverrides,
        Conflict::MostSpecificWins,
    ]);
    (
        any::<String>(),
        prop::collection::vec(rule(), 0..6),
        action(),
        strategy,
        prop::collection::vec("[a-d]", 0..4),
    )
        .prop_map(|(name, rules, default, strategy, tools)| {
            let mut document =
                Document { name, rules, strategy, tool_allowlist: tools, ..Document::default() };
            document.defaults.action = default;
            document
        })
}

fn context() -> impl Strategy<Value = Context> {
    prop::collection::btree_map("[xyz]", value(), 0..4).prop_map(|fields| {
        fields.into_iter().fold(Context::new(), |context, (name, value)| context.with(name, value))
    })
}

proptest! {
    #[test]
    fn a_deny_of_top_priority_never_allows_more(
        document in document(),
        condition in rule(),
        context in context(),
    ) {
        // Under `allow_overrides` the word of an allow counts more by definition; it still never gains by a deny.
        let before = Policy::new(&document).decide(&context);
        let mut stricter = document;
        stricter.rules.insert(0, Rule { action: Action::Deny, priority: i64::MAX, ..condition });
        let after = Policy::new(&stricter).decide(&context);
        prop_assert!(before.permits() || !after.permits(), "{before:?} {after:?}");
    }

    #[test]
    fn normalising_twice_is_the_same_and_answers_alike(document in document(), context in context()) {
        let once = document.normalised();
        prop_assert_eq!(&once.normalised(), &once);
        prop_assert_eq!(once.digest(), document.digest());
        prop_assert_eq!(Policy::new(&once).decide(&context), Policy::new(&document).decide(&context));
    }

    #[test]
    fn only_equal_documents_have_no_changes(one in document(), other in document()) {
        prop_assert_eq!(diff(&one, &one), vec![]);
        prop_assert_eq!(diff(&one, &other).is_empty(), one.normalised() == other.normalised());
    }

    #[test]
    fn what_is_written_reads_back(document in document()) {
        let yaml = to_yaml(&document);
        let found = Document::parse(&yaml, Format::Yaml);
        prop_assert_eq!(found.as_ref(), Ok(&document), "{}", yaml);
        let json = serde_json::to_string(&document).unwrap();
        prop_assert_eq!(Document::parse(&json, Format::Json), Ok(document));
    }

    #[test]
    fn reading_never_panics(text in any::<String>(), lines in "[-a-c:{}\\[\\]&*|>\"' \n]{0,40}") {
        for text in [text, lines] {
            let _ = Document::parse(&text, Format::Yaml);
            let _ = Document::parse(&text, Format::Json);
        }
    }

    #[test]
    fn an_explanation_has_the_answer(document in document(), context in context()) {
        let policy = Policy::new(&document);
        prop_assert_eq!(policy.explain(&context).decision, policy.decide(&context));
    }
}
