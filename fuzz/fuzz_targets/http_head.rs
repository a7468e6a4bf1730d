//! Heads of requests that are looked into: what is understood is for one verified host, and its path has one form.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| belljar_egress::fuzzing::head(bytes));
