//! What follows a backslash.

use super::{DIGIT, Refused, SPACE, Translator, WORD};

/// What an escape stands for.
pub(super) enum Escaped {
    Character(char),
    /// The members of a class, and whether all others are meant.
    Class(&'static str, bool),
    /// An assertion, in our syntax.
    Assertion(&'static str),
}

impl Translator<'_> {
    pub(super) fn escape(&mut self) -> Result<(), Refused> {
        match self.escaped()? {
            Escaped::Character(character) if character.is_ascii_punctuation() => {
                self.literal(character);
            }
            Escaped::Character(' ') => self.literal(' '),
            Escaped::Character(character) => {
                self.out.push_str(&format!(r"\x{{{:X}}}", u32::from(character)));
                self.repeatable = true;
            }
            Escaped::Class(DIGIT, false) => {
                self.out.push_str(DIGIT);
                self.repeatable = true;
            }
            Escaped::Class(members, others) => {
                self.out.push_str(&format!("[{}{members}]", if others { "^" } else { "" }));
                self.repeatable = true;
            }
            Escaped::Assertion(text) => {
                self.out.push_str(text);
                self.repeatable = false;
            }
        }
        Ok(())
    }

    pub(super) fn escaped(&mut self) -> Result<Escaped, Refused> {
        let Some(character) = self.rest.next() else {
            return Err("ends in a backslash".to_owned());
        };
        Ok(match character {
            'd' => Escaped::Class(DIGIT, false),
            'D' => Escaped::Class(DIGIT, true),
            's' => Escaped::Class(SPACE, false),
            'S' => Escaped::Class(SPACE, true),
            'w' => Escaped::Class(WORD, false),
            'W' => Escaped::Class(WORD, true),
            'b' => Escaped::Assertion(r"\b"),
            'B' => Escaped::Assertion(r"\B"),
            'A' => Escaped::Assertion(r"\A"),
            'Z' => Escaped::Assertion(r"\z"),
            'a' => Escaped::Character('\u{7}'),
            'f' => Escaped::Character('\u{c}'),
            'n' => Escaped::Character('\n'),
            'r' => Escaped::Character('\r'),
            't' => Escaped::Character('\t'),
            'v' => Escaped::Character('\u{b}'),
            'x' => Escaped::Character(self.hexadecimal(2)?),
            'u' => Escaped::Character(self.hexadecimal(4)?),
            'U' => Escaped::Character(self.hexadecimal(8)?),
            '0' => Escaped::Character(self.octal(0, 2)?),
            '1'..='9' => return self.octal_or_reference(character),
            letter if letter.is_ascii_alphabetic() => {
                return Err(format!("has an escape `\\{letter}` that is not known"));
            }
            plain => Escaped::Character(plain),
        })
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<char, Refused> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.rest.next().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or("has an incomplete escape")?;
        }
        char::from_u32(code).ok_or_else(|| "names no character".to_owned())
    }

    fn octal(&mut self, mut code: u32, more: usize) -> Result<char, Refused> {
        for _ in 0..more {
            let Some(digit) = self.rest.next_if(|c| c.is_digit(8)) else { break };
            code = code * 8 + digit.to_digit(8).unwrap_or(0);
        }
        char::from_u32(code)
            .filter(|_| code <= 0o377)
            .ok_or_else(|| "names no character".to_owned())
    }

    /// Three octal digits are a character; everything else with digits is a reference.
    fn octal_or_reference(&mut self, first: char) -> Result<Escaped, Refused> {
        let mut ahead = self.rest.clone();
        let two_more = (0..2).all(|_| ahead.next_if(|c| c.is_digit(8)).is_some());
        match first.to_digit(8) {
            Some(code) if two_more => self.octal(code, 2).map(Escaped::Character),
            _ => Err("has a back-reference".to_owned()),
        }
    }
}
