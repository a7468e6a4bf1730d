//! What the fuzz targets check, on every run of the tests.

use belljar_egress::fuzzing;
use proptest::prelude::*;

proptest! {
    #[test]
    fn parsers_hold_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzzing::hello(&bytes);
        fuzzing::question(&bytes);
        fuzzing::reply(&bytes);
        fuzzing::connect(&bytes);
    }

    #[test]
    fn questions_with_damage_are_answered_or_not(
        labels in prop::collection::vec("[a-zA-Z0-9_-]{1,12}", 1..6),
        kind: u16,
        at: prop::sample::Index,
        value: u8,
    ) {
        let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in &labels {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        fuzzing::question(&bytes);
        fuzzing::reply(&bytes);
        let at = at.index(bytes.len());
        bytes[at] = value;
        fuzzing::question(&bytes);
        fuzzing::reply(&bytes);
    }

    #[test]
    fn tunnels_are_read_from_any_line(line in "CONNECT [a-zA-Z0-9.:\\[\\]@%/-]{0,40} HTTP/1.[01]") {
        fuzzing::connect(line.as_bytes());
    }
}
