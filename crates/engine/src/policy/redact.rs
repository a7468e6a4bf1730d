//! What of a question goes on record: its fields, without secrets, short enough for a line.
//!
//! Secrets are found by what they are called (`token`, `password`), by how they look, and by being told. Somebody who
//! hides a secret in other words puts it on record; keeping secrets out of commands is what credential bindings are for.

use std::sync::LazyLock;

use belljar_policy::document::{Context, Value};
use regex::Regex;

/// Stands for what is left out.
const HIDDEN: &str = "[redacted]";

/// What is kept of one text; the rest of a command is in the process's own record.
const MAX_TEXT: usize = 240;
const MAX_ITEMS: usize = 16;
const MAX_DEPTH: usize = 4;

/// The whole, as JSON. Less than what the audit log takes, so that it stays JSON.
const MAX_JSON: usize = 1000;

/// Shorter texts would be found everywhere.
const MIN_SECRET: usize = 6;

/// The fields of a question as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) json: String,
    /// Something did not fit.
    pub(super) shortened: bool,
}

pub(super) fn snapshot(context: &Context, secrets: &[String]) -> Snapshot {
    let mut writer = Writer { secrets, shortened: false };
    // What is inside maps is in the maps, too.
    let plain = context.iter().filter(|(field, _)| !field.contains('.'));
    let mut fields: Vec<(String, Value)> =
        plain.map(|(field, value)| (field.to_owned(), writer.field(field, value, 0))).collect();
    let mut shortened = writer.shortened;
    loop {
        let json = Value::Map(fields.clone()).to_string();
        if json.len() <= MAX_JSON {
            return Snapshot { json, shortened };
        }
        shortened = true;
        let length = |(_, value): &(String, Value)| value.to_string().len();
        let longest = (0..fields.len()).max_by_key(|at| length(&fields[*at]));
        let Some(longest) = longest else { return Snapshot { json: "{}".to_owned(), shortened } };
        fields.remove(longest);
    }
}

struct Writer<'a> {
    secrets: &'a [String],
    shortened: bool,
}

impl Writer<'_> {
    fn field(&mut self, name: &str, value: &Value, depth: usize) -> Value {
        match value {
            Value::Null | Value::Bool(_) => value.clone(),
            _ if SECRET_NAME.is_match(name) => HIDDEN.into(),
            Value::Int(_) | Value::Float(_) => value.clone(),
            Value::Text(text) => self.text(text).into(),
            Value::List(_) | Value::Map(_) if depth == MAX_DEPTH => {
                self.shortened = true;
                "…".into()
            }
            Value::List(items) => {
                self.shortened |= items.len() > MAX_ITEMS;
                let mut hides_next = false;
                let items = items.iter().take(MAX_ITEMS).map(|item| {
                    let hidden = std::mem::take(&mut hides_next);
                    // As in `--password X`.
                    if let Value::Text(text) = item {
                        hides_next = text.starts_with('-')
                            && !text.contains('=')
                            && SECRET_NAME.is_match(text);
                    }
                    match hidden {
                        true => HIDDEN.into(),
                        false => self.field("", item, depth + 1),
                    }
                });
                Value::List(items.collect())
            }
            Value::Map(entries) => {
                self.shortened |= entries.len() > MAX_ITEMS;
                let entries = entries.iter().take(MAX_ITEMS);
                Value::Map(
                    entries
                        .map(|(name, value)| (name.clone(), self.field(name, value, depth + 1)))
                        .collect(),
                )
            }
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.iter().filter(|secret| secret.len() >= MIN_SECRET) {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
        for (pattern, replacement) in PATTERNS.iter() {
            text = pattern.replace_all(&text, *replacement).into_owned();
        }
        if let Some((cut, _)) = text.char_indices().nth(MAX_TEXT) {
            self.shortened = true;
            text.truncate(cut);
            text.push('…');
        }
        text
    }
}

/// What a field, variable or option with a secret in it is called.
const NAMES: &str = r"(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|token|passw(?:or)?d|passphrase|credentials?|authorization|cookie|bearer)";

static SECRET_NAME: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!("(?i){NAMES}|(?:^|[_-])key$")));

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    vec![
        // `Authorization: Bearer X`, in a header or a command.
        (regex(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), "$1 [redacted]"),
        // `TOKEN=x`, `token: "x"`, `--password=x`.
        (
            regex(&format!(
                r#"(?i)([A-Za-z0-9_-]*{NAMES}[A-Za-z0-9_-]*["']?\s*[=:]\s*)(?:"[^"]*"|'[^']*'|[^\s"'\[][^\s"',;)]*)"#
            )),
            "$1[redacted]",
        ),
        // `--password x`.
        (regex(&format!(r"(?i)(--?[a-z0-9-]*{NAMES}[a-z0-9-]*\s+)[^\s\[-][^\s]*")), "$1[redacted]"),
        // `https://user:password@host`.
        (regex(r"(://[^/\s:@]*:)[^/\s@]+@"), "$1[redacted]@"),
        // What well-known issuers make.
        (
            regex(
                r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{8,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|npm_[A-Za-z0-9]{20,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*)",
            ),
            HIDDEN,
        ),
        (regex(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*-----)?"), HIDDEN),
    ]
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("patterns of our own")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(field: &str, value: impl Into<Value>) -> String {
        snapshot(&Context::new().with(field, value), &[]).json
    }

    #[test]
    fn secrets_are_left_out_and_the_rest_is_not() {
        let check = |text: &str, expected: &str| {
            let Value::Text(found) =
                (Writer { secrets: &[], shortened: false }).field("command", &text.into(), 0)
            else {
                panic!()
            };
            assert_eq!(found, expected);
        };
        check("ls -la /tmp", "ls -la /tmp");
        check("python3 tokenize.py", "python3 tokenize.py");
        check("export API_KEY=abc123; run", "export API_KEY=[redacted]; run");
        check("GITHUB_TOKEN='a b' gh pr", "GITHUB_TOKEN=[redacted] gh pr");
        check("mysql --password=hunter2 x", "mysql --password=[redacted] x");
        check("mysql --password hunter2 x", "mysql --password [redacted] x");
        check(
            "curl -H 'Authorization: Bearer abcdef123456' u",
            "curl -H 'Authorization: [redacted] [redacted]' u",
        );
        check("git clone https://me:pw@host/r", "git clone https://me:[redacted]@host/r");
        check(&format!("echo ghp_{}", "a".repeat(36)), "echo [redacted]");
        check(r#"{"password": "x y", "n": 1}"#, r#"{"password": [redacted], "n": 1}"#);
    }

    #[test]
    fn fields_are_hidden_by_their_names() {
        assert_eq!(shown("password", "hunter2"), r#"{"password":"[redacted]"}"#);
        let arguments = Value::Map(vec![
            ("api_key".to_owned(), "abc".into()),
            ("query".to_owned(), "cats".into()),
        ]);
        assert_eq!(
            shown("arguments", arguments),
            r#"{"arguments":{"api_key":"[redacted]","query":"cats"}}"#
        );
        let argv: Value = ["login", "--token", "abc", "me"].into_iter().collect();
        assert_eq!(shown("argv", argv), r#"{"argv":["login","--token","[redacted]","me"]}"#);
    }

    #[test]
    fn what_is_told_to_be_secret_is() {
        let context = Context::new().with("command", "echo s3cr3t-value");
        let found = snapshot(&context, &["s3cr3t-value".to_owned(), "e".to_owned()]);
        assert_eq!(found.json, r#"{"command":"echo [redacted]"}"#);
    }

    #[test]
    fn the_whole_is_short_and_stays_json() {
        let mut context = Context::new();
        for number in 0..100 {
            context.set(format!("field{number}"), "\u{1}".repeat(1000));
        }
        context.set("action", "exec");
        let found = snapshot(&context, &[]);
        assert!(found.shortened && found.json.len() <= MAX_JSON);
        let read: serde_json::Value = serde_json::from_str(&found.json).unwrap();
        assert_eq!(read["action"], "exec");
    }
}
