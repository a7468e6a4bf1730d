//! One header block of a tar archive, read strictly: what could be read in two ways is refused.

use super::super::archive::BLOCK;

/// What a header says, before extended headers have their say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: u8,
    pub(super) mode: u32,
    pub(super) size: u64,
}

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Self, &'static str> {
        let field = |from: usize, length: usize| &block[from..from + length];
        let expected = number(field(148, 8))?;
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        // The sum is made as if its own field were spaces.
        let own: u64 = field(148, 8).iter().map(|&byte| u64::from(byte)).sum();
        if sum - own + 8 * u64::from(b' ') != expected {
            return Err("has a header with a wrong checksum");
        }
        let mut name = text(field(0, 100))?;
        match field(257, 8) {
            b"ustar\x0000" => {
                let prefix = text(field(345, 155))?;
                if !prefix.is_empty() {
                    name = [&prefix[..], b"/", &name].concat();
                }
            }
            b"ustar  \0" | [0, 0, 0, 0, 0, 0, 0, 0] => {}
            _ => return Err("has a header of an unknown format"),
        }
        Ok(Self {
            name,
            link: text(field(157, 100))?,
            kind: block[156],
            mode: u32::try_from(number(field(100, 8))? & 0o7777).unwrap_or_default(),
            size: number(field(124, 12))?,
        })
    }
}

/// Text up to a NUL, with nothing behind it.
fn text(field: &[u8]) -> Result<Vec<u8>, &'static str> {
    let length = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let (text, rest) = field.split_at(length);
    match rest.iter().all(|&byte| byte == 0) {
        true => Ok(text.to_vec()),
        false => Err("has something behind the end of a name"),
    }
}

/// Octal digits, padded by spaces or NULs, or binary with the first bit set.
fn number(field: &[u8]) -> Result<u64, &'static str> {
    const WRONG: &str = "has a header with a malformed number";
    if let Some((&0x80, rest)) = field.split_first() {
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        if high.iter().any(|&byte| byte != 0) {
            return Err(WRONG);
        }
        return Ok(low.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)));
    }
    let is_padding = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let rest = field.get(start..).unwrap_or_default();
    let length = rest.iter().position(is_padding).unwrap_or(rest.len());
    let (digits, padding) = rest.split_at(length);
    if !padding.iter().all(is_padding) {
        return Err(WRONG);
    }
    digits.iter().try_fold(0u64, |number, byte| match byte {
        b'0'..=b'7' if number < 1 << 60 => Ok(number << 3 | u64::from(byte - b'0')),
        _ => Err(WRONG),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_one_way() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644\0\0\0\0\0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777", Some(0o77_777_777)),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\x80\0\0\0\x01\0\0\0\0\0\0\0", Some(1 << 56)),
            (b"\x80\0\x01\0\0\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"644\0 644", None),
            (b"-0000644", None),
            (b"0x1\0\0\0\0\0", None),
            (b"8888\0\0\0\0", None),
        ] {
            assert_eq!(number(field).ok(), expected, "{field:?}");
        }
    }

    #[test]
    fn text_ends_once() {
        assert_eq!(text(b"abc\0\0"), Ok(b"abc".to_vec()));
        assert_eq!(text(b"abcde"), Ok(b"abcde".to_vec()));
        assert!(text(b"a\0b\0\0").is_err());
    }
}
