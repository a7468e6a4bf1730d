//! What a plain word of YAML means.
//!
//! The rules of YAML 1.1 as PyYAML has them, because that is what reads these documents elsewhere: `yes` is true, `017`
//! is fifteen, `1e3` is text. Where readers differ dangerously (dates, `12:30`, NaN) the word must be quoted.

use super::node::Content;

/// What a word stands for, `None` for text, or why the word has to be quoted.
pub(super) fn meaning(word: &str) -> Result<Option<Content<'static>>, &'static str> {
    let Some(first) = word.bytes().next() else { return Ok(Some(Content::Null)) };
    match first {
        b'0'..=b'9' | b'+' | b'-' | b'.' => number(word),
        b'~' | b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' => {
            Ok(keyword(word))
        }
        _ => Ok(None),
    }
}

fn keyword(word: &str) -> Option<Content<'static>> {
    Some(match word {
        "~" | "null" | "Null" | "NULL" => Content::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Content::Bool(true)
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Content::Bool(false)
        }
        _ => return None,
    })
}

fn number(word: &str) -> Result<Option<Content<'static>>, &'static str> {
    let (negative, digits) = match word.as_bytes()[0] {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(word, ".nan" | ".NaN" | ".NAN") {
        return Err("is not a finite number");
    }
    if is_date(word) {
        return Err("is a date to some readers and text to others");
    }
    if is_sexagesimal(digits) {
        return Err("is a number in base 60 to some readers and text to others");
    }
    if let Some(radix_digits) = integer_digits(digits) {
        let (radix, text) = radix_digits;
        let plain = text.replace('_', "");
        let plain = if radix == 8 && plain.is_empty() { "0" } else { &plain };
        let found = i128::from_str_radix(plain, radix).map(|n| if negative { -n } else { n });
        return match found {
            Ok(n) if n >= i128::from(i64::MIN) && n <= i128::from(u64::MAX) => {
                Ok(Some(Content::Int(n)))
            }
            _ => Err("is no number that fits"),
        };
    }
    if is_float(digits, digits.len() < word.len()) {
        return match word.replace('_', "").parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Some(Content::Float(value))),
            _ => Err("is not a finite number"),
        };
    }
    Ok(None)
}

/// The base and digits of an integer, with underscores; `None` if it is none.
fn integer_digits(digits: &str) -> Option<(u32, &str)> {
    let (radix, rest) = if let Some(rest) = digits.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = digits.strip_prefix("0x") {
        (16, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    let first_fits = radix != 10 || rest.starts_with(|c: char| c.is_ascii_digit());
    let all_fit = rest.chars().all(|c| c == '_' || c.is_digit(radix));
    (first_fits && all_fit && !rest.is_empty()).then_some((radix, rest))
}

/// `1.5`, `1.`, `.5`, `1.5e+3`: a point is needed, and so is the sign of an exponent. With a sign, a digit comes first.
fn is_float(digits: &str, signed: bool) -> bool {
    let Some((whole, rest)) = digits.split_once('.') else { return false };
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let run = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let exponent_fits = exponent.is_none_or(|text| {
        text.strip_prefix(['+', '-'])
            .is_some_and(|power| !power.is_empty() && power.bytes().all(|b| b.is_ascii_digit()))
    });
    let begins = if whole.is_empty() {
        !signed && fraction.starts_with(|c: char| c.is_ascii_digit())
    } else {
        whole.starts_with(|c: char| c.is_ascii_digit())
    };
    begins && run(whole) && run(fraction) && exponent_fits
}

fn is_date(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() >= 8
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && word[5..]
            .split(['-', 'T', 't', ' '])
            .take(2)
            .all(|part| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
        && word[5..].contains('-')
}

fn is_sexagesimal(digits: &str) -> bool {
    let mut parts = digits.split(':');
    let Some(first) = parts.next() else { return false };
    let numeric = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mut rest = parts.peekable();
    rest.peek().is_some()
        && first.starts_with(|c: char| c.is_ascii_digit())
        && numeric(first)
        && rest.all(|part| {
            let part = part.split('.').next().unwrap_or(part);
            let value = part.parse::<u8>();
            (1..=2).contains(&part.len()) && value.is_ok_and(|value| value < 60)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(word: &str) -> String {
        match meaning(word) {
            Ok(None) => format!("text {word}"),
            Ok(Some(Content::Null)) => "null".to_owned(),
            Ok(Some(Content::Bool(value))) => format!("bool {value}"),
            Ok(Some(Content::Int(value))) => format!("int {value}"),
            Ok(Some(Content::Float(value))) => format!("float {value:?}"),
            Ok(Some(_)) => unreachable!("words are scalars"),
            Err(_) => "refused".to_owned(),
        }
    }

    #[test]
    fn words_mean_what_pyyaml_makes_of_them() {
        for (word, expected) in [
            ("", "null"),
            ("~", "null"),
            ("Null", "null"),
            ("nULL", "text nULL"),
            ("yes", "bool true"),
            ("y", "text y"),
            ("Off", "bool false"),
            ("0", "int 0"),
            ("-12", "int -12"),
            ("+7", "int 7"),
            ("1_000", "int 1000"),
            ("017", "int 15"),
            ("018", "text 018"),
            ("0o17", "text 0o17"),
            ("0x1F", "int 31"),
            ("0b101", "int 5"),
            ("-0x10", "int -16"),
            ("1.0", "float 1.0"),
            ("1.", "float 1.0"),
            (".5", "float 0.5"),
            ("-.5", "text -.5"),
            ("0_", "int 0"),
            ("0x_", "refused"),
            ("-1.5e+3", "float -1500.0"),
            ("1e3", "text 1e3"),
            ("1.5e3", "text 1.5e3"),
            (".", "text ."),
            ("-", "text -"),
            ("...", "text ..."),
            ("1.2.3", "text 1.2.3"),
            ("18446744073709551615", "int 18446744073709551615"),
            ("18446744073709551616", "refused"),
            (".inf", "refused"),
            (".nan", "refused"),
            ("2024-01-31", "refused"),
            ("2024-1-3T10:00:00Z", "refused"),
            ("12:30", "refused"),
            ("1:90", "text 1:90"),
            ("10.0.0.1", "text 10.0.0.1"),
            ("3.11-slim", "text 3.11-slim"),
        ] {
            assert_eq!(shown(word), expected, "{word}");
        }
    }
}
