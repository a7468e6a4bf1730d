//! Policy documents from any text: reading ends, refuses with a place inside the text, and what is accepted is written,
//! normalised and asked without a difference.
#![no_main]

use belljar_policy::document::{Context, Document, Format, Policy, to_yaml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for format in [Format::Yaml, Format::Json] {
        match Document::parse(text, format) {
            Err(refusal) => {
                // To YAML a carriage return ends a line, too.
                let lines = text.matches(['\n', '\r']).count() + 1;
                assert!(refusal.line().is_none_or(|line| (1..=lines).contains(&(line as usize))));
            }
            Ok(document) => {
                let normal = document.normalised();
                assert_eq!(normal.normalised(), normal);
                assert_eq!(Document::parse(&to_yaml(&document), Format::Yaml), Ok(document.clone()));
                let policy = Policy::new(&document);
                let fields: Vec<String> = policy.fields().map(str::to_owned).collect();
                let context = fields.iter().fold(Context::new(), |context, field| {
                    context.with(field.as_str(), text)
                });
                assert_eq!(policy.decide(&context), Policy::new(&normal).decide(&context));
            }
        }
    }
});
