//! JSON text from outside, looked at before anything takes it apart.

use serde::de::IgnoredAny;

use super::MAX_JSON_DEPTH;

/// Refuses text that is too long, too deep or no JSON, in words that follow on the name of the text.
///
/// # Errors
/// What is wrong with it.
pub fn check_json(text: &str, max_bytes: usize) -> Result<(), String> {
    if text.len() > max_bytes {
        return Err(format!("has {} bytes, more than {max_bytes}", text.len()));
    }
    if depth(text.as_bytes()) > MAX_JSON_DEPTH {
        return Err(format!("is nested more than {MAX_JSON_DEPTH} deep"));
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("is not JSON: {error}")),
    }
}

/// How many brackets are open at once, at most; those in strings do not count.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        let check = |text: &str, expected| assert_eq!(depth(text.as_bytes()), expected, "{text}");
        check("1", 0);
        check("[]", 1);
        check(r#"{"a": [1, {"b": 2}], "c": []}"#, 3);
        check(r#"["[[[[", "\"[[", "\\", []]"#, 2);
    }

    #[test]
    fn text_that_is_not_fit_is_refused() {
        assert_eq!(check_json(r#"{"a": [null, 1.5, "x"]}"#, 100), Ok(()));
        assert!(check_json("[1,", 100).unwrap_err().contains("not JSON"));
        assert!(check_json("[] []", 100).unwrap_err().contains("not JSON"));
        assert!(check_json("[1,2,3]", 6).unwrap_err().contains("more than 6"));
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check_json(&deep(MAX_JSON_DEPTH), 1000), Ok(()));
        assert!(check_json(&deep(MAX_JSON_DEPTH + 1), 1000).unwrap_err().contains("deep"));
        assert!(check_json(&"[".repeat(100_000), 1 << 20).unwrap_err().contains("deep"));
    }
}
