//! Extended headers of a tar archive: the few words that concern us, each at most once.

/// What extended headers say about the entry that follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

impl Extended {
    /// Reads the records of one extended header. `global`: of one for all entries that follow, which may say nothing
    /// about any of them.
    pub(super) fn read(&mut self, mut records: &[u8], global: bool) -> Result<(), &'static str> {
        while !records.is_empty() {
            let (key, value, rest) = record(records).ok_or("has a malformed extended header")?;
            records = rest;
            let target = match key {
                b"path" => &mut self.path,
                b"linkpath" => &mut self.link,
                b"size" => {
                    let size = decimal(value).ok_or("has a malformed size")?;
                    if global || self.size.replace(size).is_some() {
                        return Err("has contradictory extended headers");
                    }
                    continue;
                }
                // Times, owners, comments, attributes: not kept.
                _ if !key.starts_with(b"GNU.sparse") => continue,
                _ => return Err("is a sparse file"),
            };
            if value.is_empty() || value.contains(&0) {
                return Err("has a malformed name");
            }
            if global || target.replace(value.to_vec()).is_some() {
                return Err("has contradictory extended headers");
            }
        }
        Ok(())
    }
}

/// `<length> <key>=<value>\n`, where the length counts the whole record.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(8).position(|&byte| byte == b' ')?;
    let length = usize::try_from(decimal(records.get(..space)?)?).ok()?;
    let (record, rest) = (records.get(space + 1..length)?, records.get(length..)?);
    let record = record.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=').filter(|&equals| equals > 0)?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_records() {
        for (records, allowed) in [
            ("", true),
            ("10 path=a\n", true),
            ("30 mtime=1700000000.123456789\n", true),
            ("10 path=a\n14 linkpath=b\n", true),
            ("10 size=5\n", true),
            ("10 path=a\n10 path=b\n", false),
            ("10 size=5\n10 size=6\n", false),
            ("11 size=-5\n", false),
            ("8 path=\n", false),
            ("11 path=a\0\n", false),
            ("9 path=a\n", true),
            ("9 path=ab\n", false),
            ("11 path=a\n", false),
            ("99 path=a\n", false),
            ("path=a\n", false),
            ("5 =a\n", false),
            ("0 path=a\n", false),
            ("99999999999999999999 path=a\n", false),
            ("22 GNU.sparse.major=1\n", false),
        ] {
            let read = Extended::default().read(records.as_bytes(), false);
            assert_eq!(read.is_ok(), allowed, "{records:?} {read:?}");
        }
        let mut extended = Extended::default();
        assert!(extended.read(b"15 comment=abc\n", true).is_ok());
        assert_eq!(extended, Extended::default());
        assert!(extended.read(b"10 path=a\n", true).is_err());
    }
}
