//! Sets of characters in brackets.

use super::escape::Escaped;
use super::{Refused, Translator};

const OPEN: &str = "has an open `[`";

impl Translator<'_> {
    /// Every character is written by its number, so that none has a meaning in our syntax that it has not in Python's.
    pub(super) fn class(&mut self) -> Result<(), Refused> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let character = self.rest.next().ok_or(OPEN)?;
            if character == ']' && !first {
                break;
            }
            first = false;
            let low = self.member(character)?;
            // A minus before the closing bracket is only a minus.
            let mut ahead = self.rest.clone();
            let range = ahead.next() == Some('-') && !matches!(ahead.peek(), None | Some(']'));
            if !range {
                self.put(&low);
                continue;
            }
            self.rest = ahead;
            let next = self.rest.next().ok_or(OPEN)?;
            match (low, self.member(next)?) {
                (Escaped::Character(low), Escaped::Character(high)) if low <= high => {
                    self.put(&Escaped::Character(low));
                    self.out.push('-');
                    self.put(&Escaped::Character(high));
                }
                _ => return Err("has a bad range of characters".to_owned()),
            }
        }
        self.out.push(']');
        self.repeatable = true;
        Ok(())
    }

    fn member(&mut self, character: char) -> Result<Escaped, Refused> {
        if character != '\\' {
            return Ok(Escaped::Character(character));
        }
        match self.escaped()? {
            // Inside a class it is the backspace.
            Escaped::Assertion(r"\b") => Ok(Escaped::Character('\u{8}')),
            Escaped::Assertion(_) => Err("has an assertion inside `[`".to_owned()),
            member => Ok(member),
        }
    }

    fn put(&mut self, member: &Escaped) {
        match member {
            Escaped::Character(character) => {
                self.out.push_str(&format!(r"\x{{{:X}}}", u32::from(*character)));
            }
            Escaped::Class(members, false) => self.out.push_str(members),
            Escaped::Class(members, true) => self.out.push_str(&format!("[^{members}]")),
            Escaped::Assertion(_) => {}
        }
    }
}
