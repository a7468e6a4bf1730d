//! Python code from any text.
#![no_main]

#[path = "../checks/policy.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|code: &str| checks::code(code));
