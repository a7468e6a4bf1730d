//! Python code from any text: the scan ends, its findings are in order and inside the text, and a second scan says the same.
#![no_main]

use belljar_policy::scan::{MAX_FINDINGS, python};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|code: &str| {
    let findings = python(code);
    assert!(findings.len() <= MAX_FINDINGS + 2);
    assert!(findings.is_sorted());
    assert_eq!(python(code), findings);
    let lines: Vec<&str> = code.split('\n').collect();
    for finding in &findings {
        let line = lines[finding.line as usize - 1];
        assert!(finding.column as usize <= line.chars().count() + 1);
    }
});
