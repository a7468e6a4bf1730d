//! Python's regular expressions in the syntax of the `regex` crate.
//!
//! Accepts what Python accepts, with its meaning (`$` also before a last newline, `\w` without marks, `[` plain inside a
//! class), and refuses what linear matching has no word for: look-around, back-references, atomic and possessive parts.

mod class;
mod escape;

use std::collections::HashSet;
use std::iter::Peekable;
use std::str::Chars;

/// Digits, space and word characters as Python's `str` knows them; for use inside a class.
const DIGIT: &str = r"\p{Nd}";
const SPACE: &str = r"\s\x1c-\x1f";
const WORD: &str = r"\p{L}\p{N}_";

type Refused = String;

pub(super) fn translate(pattern: &str) -> Result<String, Refused> {
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        multiline: vec![false],
        names: HashSet::new(),
        repeatable: false,
        at_start: true,
    };
    while let Some(character) = translator.rest.next() {
        translator.step(character)?;
    }
    if translator.multiline.len() > 1 {
        return Err("has an open `(`".to_owned());
    }
    Ok(translator.out)
}

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// For each open group whether `$` is the end of a line.
    multiline: Vec<bool>,
    names: HashSet<String>,
    /// Whether the last thing written can be repeated.
    repeatable: bool,
    /// Nothing but flags came before.
    at_start: bool,
}

impl Translator<'_> {
    fn step(&mut self, character: char) -> Result<(), Refused> {
        let at_start = std::mem::replace(&mut self.at_start, false);
        match character {
            '\\' => return self.escape(),
            '[' => return self.class(),
            '(' => return self.open(at_start),
            ')' => {
                self.multiline.pop();
                if self.multiline.is_empty() {
                    return Err("has a `)` too many".to_owned());
                }
                self.out.push(')');
                self.repeatable = true;
            }
            '|' => {
                self.out.push('|');
                self.repeatable = false;
            }
            '^' => {
                self.out.push('^');
                self.repeatable = false;
            }
            '$' => self.end()?,
            '.' => {
                self.out.push('.');
                self.repeatable = true;
            }
            '*' | '+' | '?' => return self.repeat(character.to_string()),
            '{' => return self.brace(),
            plain => self.literal(plain),
        }
        Ok(())
    }

    fn literal(&mut self, character: char) {
        self.out.push_str(&regex_syntax::escape(character.encode_utf8(&mut [0; 4])));
        self.repeatable = true;
    }

    /// `$` is the end of the text and the place before a newline that ends it. The newline may be swallowed where
    /// nothing can come after it.
    fn end(&mut self) -> Result<(), Refused> {
        if self.multiline.last() == Some(&true) {
            self.out.push('$');
        } else if matches!(self.rest.peek(), None | Some('|' | ')')) {
            self.out.push_str(r"(?:\n?\z)");
        } else {
            return Err("has something after `$`".to_owned());
        }
        self.repeatable = false;
        Ok(())
    }

    fn repeat(&mut self, operator: String) -> Result<(), Refused> {
        if !self.repeatable {
            return Err(format!("has nothing to repeat before `{operator}`"));
        }
        self.repeatable = false;
        self.out.push_str(&operator);
        match self.rest.peek() {
            Some('?') => {
                self.rest.next();
                self.out.push('?');
                Ok(())
            }
            Some('+') => Err("has a possessive repetition".to_owned()),
            _ => Ok(()),
        }
    }

    /// `{2}`, `{2,}`, `{,3}`, `{2,3}`; any other brace is only a brace.
    fn brace(&mut self) -> Result<(), Refused> {
        let mut ahead = self.rest.clone();
        let mut digits = || {
            let mut found = String::new();
            while let Some(digit) = ahead.next_if(char::is_ascii_digit) {
                found.push(digit);
            }
            let comma = ahead.next_if_eq(&',').is_some();
            (found, comma)
        };
        let (least, comma) = digits();
        let most = if comma { digits() } else { (String::new(), false) };
        let closed = !most.1 && ahead.next_if_eq(&'}').is_some();
        if !closed || (least.is_empty() && !comma) {
            self.literal('{');
            return Ok(());
        }
        self.rest = ahead;
        let number = |text: &str| text.parse::<u32>().map_err(|_| "repeats too often".to_owned());
        let low = if least.is_empty() { 0 } else { number(&least)? };
        let range = match (comma, most.0.as_str()) {
            (false, _) => format!("{{{low}}}"),
            (true, "") => format!("{{{low},}}"),
            (true, high) if number(high)? < low => {
                return Err("repeats at least more often than at most".to_owned());
            }
            (true, high) => format!("{{{low},{}}}", number(high)?),
        };
        self.repeat(range)
    }

    fn open(&mut self, at_start: bool) -> Result<(), Refused> {
        self.repeatable = false;
        let inherited = self.multiline.last() == Some(&true);
        if self.rest.next_if_eq(&'?').is_none() {
            self.out.push_str("(?:");
            self.multiline.push(inherited);
            return Ok(());
        }
        match self.rest.peek() {
            Some('#') => {
                if !self.rest.by_ref().any(|character| character == ')') {
                    return Err("has an open comment".to_owned());
                }
                self.at_start = at_start;
                Ok(())
            }
            Some('P') => {
                self.rest.next();
                if self.rest.next() != Some('<') {
                    return Err("has a back-reference".to_owned());
                }
                self.group_name()?;
                self.out.push_str("(?:");
                self.multiline.push(inherited);
                Ok(())
            }
            Some('=' | '!' | '<') => Err("looks ahead or behind".to_owned()),
            Some('>') => Err("has an atomic group".to_owned()),
            Some('(') => Err("depends on another group".to_owned()),
            _ => self.flags(at_start, inherited),
        }
    }

    fn group_name(&mut self) -> Result<(), Refused> {
        let name: String = self.rest.by_ref().take_while(|character| *character != '>').collect();
        let fits = name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && name.starts_with(|c: char| !c.is_numeric());
        if !fits || !self.names.insert(name) {
            return Err("has a group with a bad name, or the same name twice".to_owned());
        }
        Ok(())
    }

    /// `(?i)` at the start, `(?i:…)` and `(?-i:…)` anywhere.
    fn flags(&mut self, at_start: bool, inherited: bool) -> Result<(), Refused> {
        let (mut on, mut off, mut removing) = (String::new(), String::new(), false);
        let end = loop {
            match self.rest.next() {
                Some('-') if !removing => removing = true,
                Some(flag @ ('i' | 'm' | 's')) if removing => off.push(flag),
                Some(flag @ ('i' | 'm' | 's')) => on.push(flag),
                // Python's text patterns are Unicode anyway.
                Some('u') if !removing => {}
                Some(end @ (')' | ':')) => break end,
                _ => return Err("has a flag that is not known".to_owned()),
            }
        };
        let multiline = (inherited || on.contains('m')) && !off.contains('m');
        if removing && off.is_empty() {
            return Err("has a flag that is not known".to_owned());
        }
        let written = if off.is_empty() { on } else { format!("{on}-{off}") };
        if end == ':' {
            self.out.push_str(&format!("(?{written}:"));
            self.multiline.push(multiline);
            return Ok(());
        }
        if !at_start || removing {
            return Err("has flags elsewhere than at its start".to_owned());
        }
        if !written.is_empty() {
            self.out.push_str(&format!("(?{written})"));
        }
        self.multiline[0] = multiline;
        self.at_start = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_their_equals() {
        for (python, expected) in [
            ("rm -rf", r"rm \-rf"),
            ("^a.*b$", r"^a.*b(?:\n?\z)"),
            ("(?m)^a$", "(?m)^a$"),
            ("(?i)x(?m:a$)b", "(?i)x(?m:a$)b"),
            (r"\d+\s\w", r"\p{Nd}+[\s\x1c-\x1f][\p{L}\p{N}_]"),
            (r"(?P<n>a)|(b)", "(?:a)|(?:b)"),
            ("a{2,3}b{,4}c{5}d{6,}", "a{2,3}b{0,4}c{5}d{6,}"),
            ("{x} a{ a{b}", r"\{x\} a\{ a\{b\}"),
            (r"\<\>\-\/\ ", r"<>\-/ "),
            (r"\Aa\Z", r"\Aa\z"),
            ("(?#c)a*?", "a*?"),
            (r"\x41\u0042\0\101", r"\x{41}\x{42}\x{0}\x{41}"),
        ] {
            assert_eq!(translate(python).as_deref(), Ok(expected), "{python}");
            assert!(regex_automata::meta::Regex::new(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn what_python_or_linear_matching_does_not_know_is_refused() {
        for pattern in [
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            r"(a)\1",
            "(?P<n>a)(?P=n)",
            "(?>a)",
            "a++",
            "a*+",
            "(?(1)a|b)",
            "a(?i)b",
            "(?x)a b",
            "(?a)x",
            "(",
            ")",
            "*",
            "a**",
            "^*",
            "a{3,2}",
            "[a",
            r"\q",
            r"\p{L}",
            r"\z",
            "[z-a]",
            r"[\d-z]",
            r"\x4",
            r"\N{DASH}",
            r"a$b",
            "(?P<1>a)",
            "(?P<n>a)(?P<n>b)",
            "(?-:a)",
            "\\",
        ] {
            assert!(translate(pattern).is_err(), "{pattern}: {:?}", translate(pattern));
        }
    }
}
