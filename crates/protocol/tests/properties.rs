//! Properties of the codec for any input.

use belljar_protocol::v1::{Argv, Data, Frame, Output, Start, frame::Body, start::Program};
use belljar_protocol::{Decoder, encode};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn any_body() -> impl Strategy<Value = Body> {
    prop_oneof![
        (vec(any::<u8>(), 0..2000), any::<bool>())
            .prop_map(|(data, end)| Body::Data(Data { data, end })),
        (any::<i32>(), any::<u64>(), vec(any::<u8>(), 0..2000))
            .prop_map(|(channel, offset, data)| Body::Output(Output { channel, offset, data })),
        (
            ".*",
            vec(vec(any::<u8>(), 0..50), 0..5),
            btree_map(".{0,9}", ".{0,9}", 0..4),
            any::<u64>()
        )
            .prop_map(|(process, args, environment, timeout_ms)| {
                Body::Start(Start {
                    process,
                    program: Some(Program::Argv(Argv { args })),
                    environment,
                    timeout_ms,
                    ..Start::default()
                })
            }),
    ]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    (any::<u64>(), proptest::option::of(any_body()))
        .prop_map(|(stream, body)| Frame { stream, body })
}

fn decode_in_pieces(bytes: &[u8], sizes: &[usize]) -> Vec<Frame> {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    let mut rest = bytes;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = (*sizes.next().expect("cycle of a non-empty list")).clamp(1, rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        decoder.push(piece);
        while let Ok(Some(frame)) = decoder.next() {
            frames.push(frame);
        }
    }
    frames
}

proptest! {
    #[test]
    fn decode_undoes_encode_however_it_is_split(
        frames in vec(any_frame(), 0..6),
        sizes in vec(1usize..700, 1..8),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            encode(frame, &mut bytes).expect("frames of this test are small");
        }
        prop_assert_eq!(decode_in_pieces(&bytes, &sizes), frames);
    }

    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..4000), sizes in vec(1usize..99, 1..8)) {
        decode_in_pieces(&bytes, &sizes);
    }

    #[test]
    fn any_body_with_a_right_length_never_panics(body in vec(any::<u8>(), 0..4000)) {
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(body);
        decode_in_pieces(&bytes, &[bytes.len()]);
    }
}
