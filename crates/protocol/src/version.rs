//! Which protocol version both sides will speak. See `VERSIONING.md`.

use crate::v1::Hello;

/// The newest version this build speaks.
pub const VERSION: u32 = 1;

/// The oldest version this build still speaks.
pub const OLDEST_VERSION: u32 = 1;

/// The newest version that both the greeting host and this build know; none if the ranges do not meet.
pub fn negotiate(hello: &Hello) -> Option<u32> {
    let newest = hello.newest_version.min(VERSION);
    let oldest = hello.oldest_version.max(OLDEST_VERSION);
    (oldest <= newest && hello.oldest_version <= hello.newest_version).then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_the_newest_common_version() {
        for (oldest, newest, expected) in [
            (1, 1, Some(1)),
            (1, 7, Some(1)),
            (0, 1, Some(1)),
            (2, 7, None),
            (0, 0, None),
            (1, 0, None),
            (u32::MAX, 0, None),
        ] {
            let hello = Hello { oldest_version: oldest, newest_version: newest };
            assert_eq!(negotiate(&hello), expected, "{oldest}..={newest}");
        }
    }
}
