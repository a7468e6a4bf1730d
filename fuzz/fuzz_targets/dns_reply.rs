//! Replies of upstream servers from any bytes: only bounded aliases and addresses come out.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| belljar_egress::fuzzing::reply(bytes));
