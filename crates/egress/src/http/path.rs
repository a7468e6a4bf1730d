//! Paths of requests: one form that is judged and sent, and every way in which a server might read it.
//!
//! What is forwarded is what was judged: dots are resolved, doubled slashes are one, escapes of plain characters are
//! decoded and other escapes are upper-case. Servers disagree about the rest (is `%2F` a slash, does `;x` belong to the
//! name, are escapes decoded twice?), so a path has several *readings*, and a request is allowed only where the rules
//! allow each of them. A path that means something else entirely in one of them is refused as ambiguous.

/// Longer paths are refused; servers refuse them too.
const MAX_LENGTH: usize = 16 << 10;

/// A path that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CanonicalPath {
    /// As it is sent.
    path: String,
    /// As it may be understood, decoded; the first is the plain one.
    readings: Vec<String>,
}

/// Why a path is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ambiguous {
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    #[error("the path is too long")]
    TooLong,
    #[error("the path has an escape that is none")]
    BadEscape,
    #[error("the path has a control character or a backslash")]
    BadCharacter,
    #[error("the path goes up in a way that servers understand differently")]
    HiddenDots,
}

impl CanonicalPath {
    /// `path` is without its query.
    pub(crate) fn parse(path: &str) -> Result<Self, Ambiguous> {
        if path.len() > MAX_LENGTH {
            return Err(Ambiguous::TooLong);
        }
        if !path.starts_with('/') {
            return Err(Ambiguous::NotAbsolute);
        }
        let sent = resolve(&normal_escapes(path)?);
        let plain = decode(&sent)?;
        let mut readings = vec![plain];
        // Is an escaped slash a slash, do parameters count, are escapes decoded once more?
        for (slashes, parameters, twice) in
            [(true, false, false), (false, true, false), (true, true, false), (true, true, true)]
        {
            let mut reading = decode_with(&sent, slashes)?;
            if twice {
                // Escapes of escapes that are none are left alone by servers that decode twice.
                reading = decode_with(&reading, true).unwrap_or(reading);
            }
            if parameters {
                reading = without_parameters(&reading);
            }
            if has_dots(&reading) {
                return Err(Ambiguous::HiddenDots);
            }
            let reading = joined(&reading);
            if !readings.contains(&reading) {
                readings.push(reading);
            }
        }
        Ok(Self { path: sent, readings })
    }

    /// It may be taken for `other`, too.
    pub(crate) fn or(&mut self, other: Self) {
        for reading in other.readings {
            if !self.readings.contains(&reading) {
                self.readings.push(reading);
            }
        }
    }

    /// As it is sent.
    pub(crate) fn as_str(&self) -> &str {
        &self.path
    }

    /// As rules see it: the plain reading first.
    pub(crate) fn readings(&self) -> impl Iterator<Item = &str> {
        self.readings.iter().map(String::as_str)
    }
}

/// Decodes escapes of unreserved characters and makes the others upper-case.
fn normal_escapes(path: &str) -> Result<String, Ambiguous> {
    let mut normal = String::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let byte = escaped(&mut rest)?;
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    normal.push(char::from(byte));
                } else {
                    normal.push_str(&format!("%{byte:02X}"));
                }
            }
            b'\\' | 0..=0x20 | 0x7f => return Err(Ambiguous::BadCharacter),
            // Bytes beyond ASCII are escaped, as clients should have done.
            0x80.. => normal.push_str(&format!("%{byte:02X}")),
            _ => normal.push(char::from(byte)),
        }
    }
    Ok(normal)
}

fn escaped(rest: &mut std::str::Bytes<'_>) -> Result<u8, Ambiguous> {
    let mut digit = || {
        let digit = rest.next().and_then(|byte| char::from(byte).to_digit(16));
        digit.and_then(|digit| u8::try_from(digit).ok()).ok_or(Ambiguous::BadEscape)
    };
    let byte = digit()? << 4 | digit()?;
    // A control character or a backslash behind an escape is never meant well.
    if matches!(byte, 0..0x20 | 0x7f | b'\\') { Err(Ambiguous::BadCharacter) } else { Ok(byte) }
}

/// Resolves `.`, `..` and empty segments. A slash at the end stays.
fn resolve(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut directory = false;
    for segment in path.split('/').skip(1) {
        directory = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let end = if directory && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

fn decode(path: &str) -> Result<String, Ambiguous> {
    decode_with(path, false)
}

/// Decodes every escape; that of a slash only where `slashes` says so.
fn decode_with(path: &str, slashes: bool) -> Result<String, Ambiguous> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => match escaped(&mut rest)? {
                b'/' if !slashes => decoded.extend_from_slice(b"%2F"),
                byte => decoded.push(byte),
            },
            byte => decoded.push(byte),
        }
    }
    // Rules are ASCII: what is no text matches only rules that look at what is before it.
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

fn without_parameters(path: &str) -> String {
    let names = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    names.collect::<Vec<_>>().join("/")
}

fn has_dots(path: &str) -> bool {
    path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

/// Doubled slashes are one.
fn joined(path: &str) -> String {
    let mut joined = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !joined.ends_with('/') {
            joined.push(c);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_sent() {
        let check = |path: &str, sent: &str| {
            assert_eq!(CanonicalPath::parse(path).unwrap().as_str(), sent, "{path}");
        };
        check("/", "/");
        check("/a/b", "/a/b");
        check("/a/b/", "/a/b/");
        check("//a///b", "/a/b");
        check("/./a/./b/.", "/a/b/");
        check("/a/../b", "/b");
        check("/../../b", "/b");
        check("/a/..", "/");
        check("/%2e%2e/b", "/b");
        check("/a/%2E%2e/b", "/b");
        check("/a/.%2e/b", "/b");
        check("/%61%2d%5F", "/a-_");
        check("/a%2fb", "/a%2Fb");
        check("/a%c3%a4", "/a%C3%A4");
        check("/aä", "/a%C3%A4");
        check("/a;x=1/b", "/a;x=1/b");
        check("/a+b@c:d$e", "/a+b@c:d$e");
        check("/@scope%2fname", "/@scope%2Fname");
        check("/...", "/...");
    }

    #[test]
    fn what_rules_see() {
        let check = |path: &str, readings: &[&str]| {
            let canonical = CanonicalPath::parse(path).unwrap();
            assert_eq!(canonical.readings().collect::<Vec<_>>(), readings, "{path}");
        };
        check("/a/b", &["/a/b"]);
        check("//admin", &["/admin"]);
        check("/public/%2e%2e/admin", &["/admin"]);
        check("/%61dmin", &["/admin"]);
        check("/Admin", &["/Admin"]);
        check("/public%2fadmin", &["/public%2Fadmin", "/public/admin"]);
        check("/admin;x=1/b", &["/admin;x=1/b", "/admin/b"]);
        check("/admin%3bx", &["/admin;x", "/admin"]);
        check("/a%2520b", &["/a%20b", "/a b"]);
        check("/%2561dmin", &["/%61dmin", "/admin"]);
        check("/a%2f%2fb", &["/a%2F%2Fb", "/a/b"]);
    }

    #[test]
    fn what_is_ambiguous() {
        let check = |path: &str, expected: Ambiguous| {
            assert_eq!(CanonicalPath::parse(path), Err(expected), "{path}");
        };
        check("", Ambiguous::NotAbsolute);
        check("a", Ambiguous::NotAbsolute);
        check("*", Ambiguous::NotAbsolute);
        check("/a%", Ambiguous::BadEscape);
        check("/a%2", Ambiguous::BadEscape);
        check("/a%zz", Ambiguous::BadEscape);
        check("/a%00", Ambiguous::BadCharacter);
        check("/a%0d%0a", Ambiguous::BadCharacter);
        check("/a\\b", Ambiguous::BadCharacter);
        check("/a%5cb", Ambiguous::BadCharacter);
        check("/a b", Ambiguous::BadCharacter);
        check("/public/..%2fadmin", Ambiguous::HiddenDots);
        check("/public%2f..%2fadmin", Ambiguous::HiddenDots);
        check("/public/..;/admin", Ambiguous::HiddenDots);
        check("/public/..;x=1/admin", Ambiguous::HiddenDots);
        check("/public/%2e%2e;/admin", Ambiguous::HiddenDots);
        check("/public/%252e%252e/admin", Ambiguous::HiddenDots);
        check("/public/..%252fadmin", Ambiguous::HiddenDots);
        check("/public/%2e%2e%3b/admin", Ambiguous::HiddenDots);
        check(&format!("/{}", "a".repeat(MAX_LENGTH)), Ambiguous::TooLong);
    }

    proptest! {
        #[test]
        fn a_canonical_path_is_its_own(path in "/([a-c./;%]|%2[eEfF5]|%3[bB]|%41){0,24}") {
            if let Ok(canonical) = CanonicalPath::parse(&path) {
                let again = CanonicalPath::parse(canonical.as_str());
                prop_assert_eq!(again.as_ref(), Ok(&canonical));
                for reading in canonical.readings() {
                    prop_assert!(reading.starts_with('/'));
                    prop_assert!(!has_dots(reading), "{}", reading);
                    prop_assert!(!reading.contains("//"), "{}", reading);
                }
            }
        }

        #[test]
        fn anything_is_read_or_refused(path in "\\PC{0,64}") {
            let _ = CanonicalPath::parse(&path);
        }
    }
}
