//! The forms in which a secret may come back: as it is, and as hosts write texts into addresses, JSON, HTML, base64 and
//! hexadecimal numbers.
//!
//! Not here: what hosts do to it beyond writing it down. One that encrypts or reverses it is not to be given one.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What RFC 3986 leaves as it is, and nearly everyone with it.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// All of them, some more than once.
pub(super) fn of(secret: &[u8]) -> Vec<Vec<u8>> {
    if secret.is_empty() {
        return Vec::new();
    }
    let mut forms = vec![secret.to_vec(), in_json(secret), in_html(secret)];
    // Some escape the slash as well, so that no `</script>` is ever written.
    forms.push(replaced(&in_json(secret), b"/", b"\\/"));
    for set in [NON_ALPHANUMERIC, RESERVED] {
        let escaped = percent_encode(secret, set).to_string().into_bytes();
        forms.push(replaced(&escaped, b"%20", b"+"));
        forms.push(lower_escapes(&escaped));
        forms.push(escaped);
    }
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        forms.extend((0..3).map(|before| in_base64(secret, before, engine)));
    }
    let digits = |byte: &u8| format!("{byte:02x}");
    let number: String = secret.iter().map(digits).collect();
    forms.push(number.to_ascii_uppercase().into_bytes());
    forms.push(number.into_bytes());
    forms
}

/// As JSON writes it between quotes.
pub(super) fn in_json(text: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'"' | b'\\' => written.extend_from_slice(&[b'\\', byte]),
            b'\n' => written.extend_from_slice(b"\\n"),
            b'\r' => written.extend_from_slice(b"\\r"),
            b'\t' => written.extend_from_slice(b"\\t"),
            0..0x20 => written.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => written.push(byte),
        }
    }
    written
}

fn in_html(text: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'&' => written.extend_from_slice(b"&amp;"),
            b'<' => written.extend_from_slice(b"&lt;"),
            b'>' => written.extend_from_slice(b"&gt;"),
            b'"' => written.extend_from_slice(b"&quot;"),
            _ => written.push(byte),
        }
    }
    written
}

/// What base64 makes of it behind so many bytes of something else (a scheme, a user's name): the part that depends on
/// nothing but the secret.
fn in_base64(secret: &[u8], before: usize, engine: &GeneralPurpose) -> Vec<u8> {
    let mut text = vec![0; before];
    text.extend_from_slice(secret);
    let written = engine.encode(&text).into_bytes();
    // Each letter is six bits: the first whole one after what is before, the last whole one of the secret.
    let (from, to) = ((before * 8).div_ceil(6), text.len() * 8 / 6);
    written.get(from..to).unwrap_or_default().to_vec()
}

/// `%2F` as `%2f`.
fn lower_escapes(text: &[u8]) -> Vec<u8> {
    let mut lower = text.to_vec();
    for at in 0..lower.len() {
        if lower[at] == b'%' {
            let end = lower.len().min(at + 3);
            lower[at..end].make_ascii_lowercase();
        }
    }
    lower
}

fn replaced(text: &[u8], one: &[u8], by: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = memchr::memmem::find(rest, one) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(by);
        rest = &rest[at + one.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    const SECRET: &str = "sk-live_a b/c+d\"e&f=";

    fn check(written: &str) {
        let masked = super::super::Replacements::masking(of(SECRET.as_bytes()));
        assert!(masked.apply(written.as_bytes()).is_some(), "{written}");
    }

    #[test]
    fn as_hosts_write_it() {
        check("sk-live_a b/c+d\"e&f=");
        check("sk-live_a%20b%2Fc%2Bd%22e%26f%3D");
        check("sk-live_a%20b%2fc%2bd%22e%26f%3d");
        check("sk-live_a+b%2Fc%2Bd%22e%26f%3D");
        check("sk%2Dlive%5Fa%20b%2Fc%2Bd%22e%26f%3D");
        check(r#"sk-live_a b/c+d\"e&f="#);
        check(r#"sk-live_a b\/c+d\"e&f="#);
        check("sk-live_a b/c+d&quot;e&amp;f=");
        check("736b2d6c6976655f6120622f632b64226526663d");
        check("736B2D6C6976655F6120622F632B64226526663D");
    }

    #[test]
    fn in_base64_wherever_it_stands() {
        for before in ["", "u", "me", "Bearer ", "user:", "a name: "] {
            for after in ["", "\n", "!!", " and more"] {
                let text = format!("{before}{SECRET}{after}");
                check(&STANDARD.encode(&text));
                check(&URL_SAFE.encode(&text));
                check(&STANDARD_NO_PAD.encode(&text));
            }
        }
    }

    #[test]
    fn nothing_else_is_hidden() {
        let masked = super::super::Replacements::masking(of(SECRET.as_bytes()));
        for harmless in ["sk-live_", "a b/c+d", "736b2d", &STANDARD.encode("another secret")] {
            assert!(masked.apply(harmless.as_bytes()).is_none(), "{harmless}");
        }
        assert!(of(b"").is_empty());
    }
}
