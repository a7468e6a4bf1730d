//! TLS greetings from any bytes: reading ends, never panics, and more bytes do not change what was decided.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| belljar_egress::fuzzing::hello(bytes));
