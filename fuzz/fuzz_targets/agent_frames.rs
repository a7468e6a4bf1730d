//! Any bytes, cut anywhere: the frame decoder never panics, and what it accepts survives a round trip.
#![no_main]

use belljar_protocol::{Decoder, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let mut decoder = Decoder::new();
    for piece in bytes.chunks(cut % 4096 + 1) {
        decoder.push(piece);
        while let Ok(Some(frame)) = decoder.next() {
            let mut again = Vec::new();
            // Re-encoding can be longer than the input: fields the input left out of order or repeated.
            if encode(&frame, &mut again).is_ok() {
                let mut second = Decoder::new();
                second.push(&again);
                assert_eq!(second.next(), Ok(Some(frame)));
            }
        }
    }
});
