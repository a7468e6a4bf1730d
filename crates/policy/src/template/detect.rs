//! Finds the family of a command or project.
//!
//! First the words of the command speak, then the manifests of the workspace, then the default. A guess only chooses a
//! template; it never widens what a sandbox may do.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Family;

/// A command as the caller gave it.
#[derive(Clone, Copy, Debug)]
pub enum CommandText<'a> {
    None,
    Argv(&'a [OsString]),
    /// A line for the shell.
    Line(&'a str),
}

/// Manifests in order of weight: a project that has several belongs to the first.
pub const MANIFESTS: &[(&str, Family)] = &[
    ("pyproject.toml", Family::Python),
    ("requirements.txt", Family::Python),
    ("setup.py", Family::Python),
    ("setup.cfg", Family::Python),
    ("Pipfile", Family::Python),
    ("uv.lock", Family::Python),
    ("package.json", Family::Node),
    ("deno.json", Family::Node),
    ("go.mod", Family::Go),
    ("Cargo.toml", Family::Rust),
];

const PROGRAMS: &[(&str, Family)] = &[
    ("python", Family::Python),
    ("python2", Family::Python),
    ("python3", Family::Python),
    ("pypy", Family::Python),
    ("pypy3", Family::Python),
    ("pip", Family::Python),
    ("pip3", Family::Python),
    ("pipx", Family::Python),
    ("uv", Family::Python),
    ("uvx", Family::Python),
    ("poetry", Family::Python),
    ("pytest", Family::Python),
    ("ipython", Family::Python),
    ("mypy", Family::Python),
    ("ruff", Family::Python),
    ("tox", Family::Python),
    ("node", Family::Node),
    ("nodejs", Family::Node),
    ("npm", Family::Node),
    ("npx", Family::Node),
    ("yarn", Family::Node),
    ("pnpm", Family::Node),
    ("bun", Family::Node),
    ("bunx", Family::Node),
    ("deno", Family::Node),
    ("tsc", Family::Node),
    ("ts-node", Family::Node),
    ("tsx", Family::Node),
    ("go", Family::Go),
    ("gofmt", Family::Go),
    ("cargo", Family::Rust),
    ("rustc", Family::Rust),
    ("rustup", Family::Rust),
    ("rustfmt", Family::Rust),
];

/// Programs that run the command after their own options.
const WRAPPERS: &[&str] = &[
    "sudo", "env", "exec", "command", "nice", "nohup", "time", "timeout", "stdbuf", "setsid",
    "xargs",
];

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// A line inside a line inside a line is as deep as anybody writes it.
const MAX_DEPTH: usize = 4;
/// A command's family shows early; a ten-megabyte line is not read to its end.
const MAX_WORDS: usize = 4096;
const MAX_LINE: usize = 64 * 1024;

/// The family and the reason, for people.
#[must_use]
pub fn detect(command: CommandText<'_>, manifests: &[&str]) -> (Family, String) {
    let found = match command {
        CommandText::None => None,
        CommandText::Line(line) => from_line(line, 0),
        CommandText::Argv(argv) => {
            let words: Vec<String> = argv.iter().take(MAX_WORDS).map(|word| lossy(word)).collect();
            from_words(&words, 0)
        }
    };
    if let Some((program, family)) = found {
        return (family, format!("the command uses `{program}`"));
    }
    let manifest = MANIFESTS.iter().find(|(name, _)| manifests.contains(name));
    match manifest {
        Some((name, family)) => (*family, format!("the workspace has `{name}`")),
        None => (Family::Base, "neither the command nor a manifest tells".to_owned()),
    }
}

fn lossy(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_LINE)]).into_owned()
}

/// The first simple command of a line whose program is known.
fn from_line(line: &str, depth: usize) -> Option<(&'static str, Family)> {
    let mut end = line.len().min(MAX_LINE);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    simple_commands(&line[..end]).iter().find_map(|words| from_words(words, depth))
}

fn from_words(words: &[String], depth: usize) -> Option<(&'static str, Family)> {
    if depth > MAX_DEPTH {
        return None;
    }
    let start = words.iter().position(|word| !is_assignment(word))?;
    let program = base_name(&words[start]);
    let rest = &words[start + 1..];
    if let Some(known) = known_program(program) {
        return Some(known);
    }
    if SHELLS.contains(&program) {
        let flag = rest.iter().position(|word| is_command_flag(word))?;
        return from_line(rest.get(flag + 1)?, depth + 1);
    }
    if WRAPPERS.contains(&program) {
        // Options may take values, so every later word gets a try as the start of the command.
        return (0..rest.len().min(8))
            .filter(|&start| !rest[start].starts_with('-') && !is_assignment(&rest[start]))
            .find_map(|start| from_words(&rest[start..], depth + 1));
    }
    None
}

/// `python3.11` is `python3`.
fn known_program(program: &str) -> Option<(&'static str, Family)> {
    let exact = |name: &str| PROGRAMS.iter().find(|(known, _)| *known == name).copied();
    let unversioned = program
        .split_once('.')
        .filter(|(_, version)| version.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    exact(program).or_else(|| unversioned.and_then(|(name, _)| exact(name)))
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// `-c`, and `c` among joined flags such as `-lc`.
fn is_command_flag(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|flags| flags.ends_with('c') && flags.bytes().all(|b| b.is_ascii_alphabetic()))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// Splits a shell line into simple commands and their words. Knows quotes, backslashes and operators; that is enough
/// for a guess.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`') => {
                finish(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            (None, ' ' | '\t') => finish(&mut commands, &mut word),
            _ => word.get_or_insert_default().push(c),
        }
    }
    finish(&mut commands, &mut word);
    commands.retain(|words| !words.is_empty());
    commands
}

fn finish(commands: &mut [Vec<String>], word: &mut Option<String>) {
    if let (Some(words), Some(word)) = (commands.last_mut(), word.take()) {
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_tell() {
        let check = |line: &str, expected: Family| {
            assert_eq!(detect(CommandText::Line(line), &[]).0, expected, "{line}");
        };
        check("python3 -c 'print(1)'", Family::Python);
        check("python3.11 x.py", Family::Python);
        check("/usr/bin/python3 x.py", Family::Python);
        check("pip install requests", Family::Python);
        check("FOO=1 BAR='a b' pytest -q", Family::Python);
        check("cd app && npm test", Family::Node);
        check("npx tsc; echo done", Family::Node);
        check("sudo -u root env X=1 node index.js", Family::Node);
        check("go test ./...", Family::Go);
        check("bash -lc \"cd x && cargo build\"", Family::Rust);
        check("sh -c 'bash -c \"go run .\"'", Family::Go);
        check("timeout 5 cargo test", Family::Rust);
        check("cat x | python3", Family::Python);
        check("(cd a; uv run b)", Family::Python);
        check("echo python3", Family::Base);
        check("echo 'a; python3'", Family::Base);
        check("ls", Family::Base);
        check("", Family::Base);
        check("FOO=python3", Family::Base);
        check("pythonista x", Family::Base);
        check("python3.x", Family::Base);
        check("bash script.sh", Family::Base);
    }

    #[test]
    fn words_tell() {
        let check = |words: &[&str], expected: Family| {
            let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(detect(CommandText::Argv(&argv), &[]).0, expected, "{words:?}");
        };
        check(&["python3", "-c", "print(1)"], Family::Python);
        check(&["env", "A=1", "python3"], Family::Python);
        check(&["bash", "-c", "npm ci"], Family::Node);
        check(&["a b; python3"], Family::Base);
        check(&[], Family::Base);
    }

    #[test]
    fn manifests_tell_when_the_command_does_not() {
        let check = |line: &str, manifests: &[&str], expected: (Family, &str)| {
            let (family, reason) = detect(CommandText::Line(line), manifests);
            assert_eq!((family, reason.as_str()), expected);
        };
        check("make", &["go.mod"], (Family::Go, "the workspace has `go.mod`"));
        check(
            "make",
            &["Cargo.toml", "package.json"],
            (Family::Node, "the workspace has `package.json`"),
        );
        check("node x", &["pyproject.toml"], (Family::Node, "the command uses `node`"));
        check("make", &["Makefile"], (Family::Base, "neither the command nor a manifest tells"));
        let (family, _) = detect(CommandText::None, &["Cargo.toml"]);
        assert_eq!(family, Family::Rust);
    }

    proptest! {
        #[test]
        fn detection_never_panics(line: String, words: Vec<String>) {
            let _ = detect(CommandText::Line(&line), &[]);
            let argv: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            let _ = detect(CommandText::Argv(&argv), &[]);
        }

        #[test]
        fn nested_shells_end(depth in 0usize..40) {
            let line = "sudo ".repeat(depth) + "go";
            let _ = detect(CommandText::Line(&line), &[]);
        }
    }
}
