//! DNS questions from any bytes: whatever is answered can be read again and fits a datagram.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| belljar_egress::fuzzing::question(bytes));
