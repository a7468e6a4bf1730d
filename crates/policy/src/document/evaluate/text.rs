//! A value as text for `matches`: what Python's `str` makes of it, so that patterns written for it find the same.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::document::Value;

/// Text stays what it is; everything else is written as Python writes it.
pub(crate) fn as_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Text(text) => Cow::Borrowed(text),
        other => {
            let mut out = String::new();
            write_literal(&mut out, other);
            Cow::Owned(out)
        }
    }
}

fn write_literal(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Float(value) => out.push_str(&float(*value)),
        Value::Text(text) => write_quoted(out, text),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_literal(out, item);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, (name, value)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_quoted(out, name);
                out.push_str(": ");
                write_literal(out, value);
            }
            out.push('}');
        }
    }
}

/// The shortest digits that mean the same number; an exponent below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(character),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let written = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                written.expect("writing to a string succeeds");
            }
        }
    }
    out.push(quote);
}

/// What Rust shows as it is, Python does too, but for marks, which Rust escapes only where they stand alone.
fn is_printable(c: char) -> bool {
    !c.is_control() && ("a".to_owned() + &c.to_string()).escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Format, read};

    #[test]
    fn values_are_written_as_python_does() {
        let check = |json: &str, expected: &str| {
            let value: Value = read(json, Format::Json).unwrap();
            assert_eq!(as_text(&value), expected);
        };
        check("\"it's\"", "it's");
        check("true", "True");
        check("null", "None");
        check("5", "5");
        check("5.0", "5.0");
        check("0.1", "0.1");
        check("-0.0", "-0.0");
        check("1e16", "1e+16");
        check("1234567890123456.0", "1234567890123456.0");
        check("12345678901234567.0", "1.2345678901234568e+16");
        check("0.0001", "0.0001");
        check("0.00001", "1e-05");
        check("1.5e300", "1.5e+300");
        check(r#"["a", 1, null, [true]]"#, "['a', 1, None, [True]]");
        check(r#"{"k": "v", "n": 1.5}"#, "{'k': 'v', 'n': 1.5}");
        check(r#"["it's"]"#, r#"["it's"]"#);
        check(r#"["it's \"x\""]"#, r#"['it\'s "x"']"#);
        check(r#"["a\nb\\c\u0001é\u00a0\u200b"]"#, r"['a\nb\\c\x01é\xa0\u200b']");
    }
}
