//! Text that is written out in the code: strings, and strings joined by `+` or by standing side by side.

use tree_sitter::Node;

use super::parse::Text;

/// No watched name is longer.
const MAX_CHARS: usize = 128;

/// How deep an expression of strings may nest.
const MAX_DEPTH: u8 = 16;

/// The value of an expression, if it is known from the text alone.
pub(super) fn literal(node: Node<'_>, text: &Text<'_>) -> Option<String> {
    let mut out = String::new();
    append(node, text, MAX_DEPTH, &mut out)?;
    Some(out)
}

fn append(node: Node<'_>, text: &Text<'_>, depth: u8, out: &mut String) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match node.kind() {
        "string" => string(text.of(node), out)?,
        "concatenated_string" => {
            for part in node.named_children(&mut node.walk()) {
                append(part, text, depth, out)?;
            }
        }
        "parenthesized_expression" => append(node.named_child(0)?, text, depth, out)?,
        "binary_operator" if text.of(node.child_by_field_name("operator")?) == "+" => {
            append(node.child_by_field_name("left")?, text, depth, out)?;
            append(node.child_by_field_name("right")?, text, depth, out)?;
        }
        _ => return None,
    }
    (out.len() <= MAX_CHARS).then_some(())
}

/// A string as written, with prefix and quotes.
fn string(written: &str, out: &mut String) -> Option<()> {
    if written.len() > 8 * MAX_CHARS {
        return None;
    }
    let quote = written.find(['"', '\''])?;
    let prefix = written[..quote].to_ascii_lowercase();
    let quoted = &written[quote..];
    let mark = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|mark| quoted.starts_with(mark))?;
    let inner = quoted.strip_prefix(mark)?.strip_suffix(mark)?;
    if prefix.contains('b') || prefix.contains(['f', 't']) && inner.contains(['{', '}']) {
        return None;
    }
    if prefix.contains('r') {
        out.push_str(inner);
        return Some(());
    }
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = escape(&rest[at + 1..], out)?;
    }
    out.push_str(rest);
    Some(())
}

/// One escape sequence after its backslash; what follows it is returned.
fn escape<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    let first = rest.chars().next()?;
    let digits = match first {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        // By name: nobody writes a name so who does not mean to hide it.
        'N' => return None,
        '0'..='7' => {
            let length = rest.bytes().take(3).take_while(|digit| (b'0'..=b'7').contains(digit));
            let (octal, rest) = rest.split_at(length.count());
            out.push(char::from_u32(u32::from_str_radix(octal, 8).ok()?)?);
            return Some(rest);
        }
        '\n' => return Some(&rest[1..]),
        'n' | 'r' | 't' | 'a' | 'b' | 'f' | 'v' => {
            out.push(' ');
            return Some(&rest[1..]);
        }
        '\\' | '\'' | '"' => {
            out.push(first);
            return Some(&rest[1..]);
        }
        other => {
            out.push('\\');
            out.push(other);
            return Some(&rest[other.len_utf8()..]);
        }
    };
    let hexadecimal = rest.get(1..=digits)?;
    out.push(char::from_u32(u32::from_str_radix(hexadecimal, 16).ok()?)?);
    rest.get(digits + 1..)
}
