//! Host names in one form: lower-case ASCII, without the last dot.

/// Limits of the DNS.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// `text` as rules and tables know it; none where it is no host name (an address is none either).
pub(crate) fn normalise(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() || name.len() > MAX_NAME {
        return None;
    }
    let sound = |label: &str| {
        !label.is_empty()
            && label.len() <= MAX_LABEL
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if !name.split('.').all(sound) {
        return None;
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    // As URL parsers see it: what ends in a number is an IPv4 address, in one of its many spellings.
    let number = last.bytes().all(|b| b.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .or_else(|| last.strip_prefix("0X"))
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    (!number).then(|| name.to_ascii_lowercase())
}

/// Whether a name means this machine or this link by convention, so that no server outside is ever asked.
pub(crate) fn is_local(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    !name.contains('.') || matches!(last, "localhost" | "local" | "localdomain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(normalise(text).as_deref(), expected, "{text:?}");
        };
        check("Example.COM.", Some("example.com"));
        check("a_b-c.example", Some("a_b-c.example"));
        check("a", Some("a"));
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a.b..",
            "1.2.3.4",
            "a.0x7f",
            "2130706433",
            "a b.c",
            "a\0.c",
            "é.fr",
            "a/b",
            "[::1]",
            "::1",
            "a:1",
            "*.a",
        ] {
            check(text, None);
        }
        check(&format!("{}.com", "a".repeat(64)), None);
        check(&"a.".repeat(127), Some("a.".repeat(127).strip_suffix('.').unwrap()));
        check(&"a.".repeat(128), None);
    }
}
