//! The globs of `scope`: `*` is anything (slashes too), `?` one character, `[a-z]` and `[!a-z]` one of a set.

/// Linear in the text for each `*`: only the last one is ever gone back to.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p + 1, t));
            p += 1;
        } else if let Some(width) = one(&pattern[p..], text[t]) {
            p += width;
            t += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            p = after;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|character| *character == '*')
}

/// How much of the pattern stands for `character`; `None` if its beginning does not.
fn one(pattern: &[char], character: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => match set_end(pattern) {
            Some(end) => in_set(&pattern[1..end], character).then_some(end + 1),
            None => (character == '[').then_some(1),
        },
        plain => (*plain == character).then_some(1),
    }
}

/// Where the closing bracket is; the first place inside cannot be it.
fn set_end(pattern: &[char]) -> Option<usize> {
    let first = if pattern.get(1) == Some(&'!') { 3 } else { 2 };
    (first..pattern.len()).find(|index| pattern[*index] == ']')
}

fn in_set(set: &[char], character: char) -> bool {
    let (negated, mut set) = match set {
        ['!', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut found = false;
    while let [low, rest @ ..] = set {
        set = match rest {
            ['-', high, after @ ..] => {
                found |= (*low..=*high).contains(&character);
                after
            }
            _ => {
                found |= *low == character;
                rest
            }
        };
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("src/*", "src/a/b.rs", true),
            ("src/*", "lib/a", false),
            ("*.py", "a/b.py", true),
            ("*.py", "a/b.pyc", false),
            ("?.rs", "a.rs", true),
            ("?.rs", "ab.rs", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[]a]", "]", true),
            ("[a", "[a", true),
            ("[a-]", "-", true),
            ("a*b*c", "a__b__b__c", true),
            ("a*b*c", "a__c__b", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
