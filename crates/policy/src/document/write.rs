//! Documents written as YAML, for people to read and to keep.

use serde::Serialize;

use super::Value;

/// As block YAML that reads back as the same.
#[must_use]
pub fn to_yaml(document: &impl Serialize) -> String {
    let json = serde_json::to_string(document).expect("documents have text keys");
    let value: Value = serde_json::from_str(&json).expect("what was written is JSON");
    let mut out = String::new();
    write_block(&mut out, &value, 0);
    out
}

fn write_block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            for (index, (name, value)) in entries.iter().enumerate() {
                if index > 0 || !out.ends_with("- ") {
                    pad(out, indent);
                }
                write_text(out, name);
                out.push(':');
                write_nested(out, value, indent);
            }
        }
        Value::List(items) if !items.is_empty() => {
            for item in items {
                pad(out, indent);
                out.push_str("- ");
                match item {
                    Value::Map(entries) if !entries.is_empty() => {
                        write_block(out, item, indent + 2);
                    }
                    Value::List(inner) if !inner.is_empty() => {
                        out.pop();
                        out.push('\n');
                        write_block(out, item, indent + 2);
                    }
                    other => write_scalar_line(out, other),
                }
            }
        }
        other => write_scalar_line(out, other),
    }
}

fn write_nested(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            out.push('\n');
            write_block(out, value, indent + 2);
        }
        Value::List(items) if !items.is_empty() => {
            out.push('\n');
            write_block(out, value, indent + 2);
        }
        other => {
            out.push(' ');
            write_scalar_line(out, other);
        }
    }
}

fn write_scalar_line(out: &mut String, value: &Value) {
    match value {
        Value::Text(text) => write_text(out, text),
        // Every reader of YAML 1.1 wants a point and a sign in a number with an exponent.
        Value::Float(number) => out.push_str(&float(*number)),
        other => out.push_str(&other.to_string()),
    }
    out.push('\n');
}

fn float(number: f64) -> String {
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// Plain where no reader could take it for anything but text.
fn write_text(out: &mut String, text: &str) {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b' '))
        && !text.ends_with(' ')
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    if plain {
        out.push_str(text);
    } else {
        out.push_str(&quoted(text));
    }
}

/// In double quotes. JSON's escapes are YAML's too, but for what JSON leaves as it is.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(character),
            c if c.is_alphanumeric() => out.push(c),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}
