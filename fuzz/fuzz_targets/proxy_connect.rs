//! Heads of requests to the proxy door: a target is whole, and a refusal is one message.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| belljar_egress::fuzzing::connect(bytes));
