//! What holds for any text that is read as a policy document or as Python code; for the fuzz targets and the tests.

use belljar_policy::HostPattern;
use belljar_policy::document::{Context, Document, Format, Policy, to_yaml};
use belljar_policy::scan::{MAX_FINDINGS, python};

/// Reading ends, refuses with a place inside the text, and what is accepted is written, normalised and asked without a
/// difference.
pub(crate) fn document(text: &str) {
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
                let written = Document::parse(&to_yaml(&document), Format::Yaml);
                assert_eq!(written, Ok(document.clone()));
                let policy = Policy::new(&document);
                let fields: Vec<String> = policy.fields().map(str::to_owned).collect();
                let context = fields
                    .iter()
                    .fold(Context::new(), |context, field| context.with(field.as_str(), text));
                assert_eq!(policy.decide(&context), Policy::new(&normal).decide(&context));
            }
        }
    }
}

/// The scan ends, its findings are in order and inside the text, and a second scan says the same.
pub(crate) fn code(code: &str) {
    let findings = python(code);
    assert!(findings.len() <= MAX_FINDINGS + 2);
    assert!(findings.is_sorted());
    assert_eq!(python(code), findings);
    let lines: Vec<&str> = code.split('\n').collect();
    for finding in &findings {
        let line = lines[finding.line as usize - 1];
        assert!(finding.column as usize <= line.chars().count() + 1);
    }
}

/// An entry of an allowlist that is accepted is written as it is read, and never means every host.
pub(crate) fn host(text: &str) {
    let Ok(pattern) = HostPattern::parse(text) else { return };
    let written = pattern.to_string();
    assert_eq!(HostPattern::parse(&written).as_ref(), Ok(&pattern), "{written:?}");
    assert!(!pattern.matches("") && !pattern.matches("."));
    assert!(pattern.covers(&pattern));
}
