//! What it takes to read a pattern, told from its form.
//!
//! Most patterns take a microsecond. But where upper and lower case are the same, every character of every class is looked
//! at, and a class can have all there are: then eight bytes of a pattern take milliseconds. So the form is read first, which
//! is linear in the text, and what would take long is refused before it does.

mod joined;

use std::convert::Infallible;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    self, Ast, ClassPerlKind, ClassSetBinaryOp, ClassSetItem, ClassUnicode, ClassUnicodeKind, Flag,
    Flags, Visitor,
};
use regex_syntax::hir::Hir;
use regex_syntax::hir::translate::TranslatorBuilder;

use joined::{Parts, Ranges};

/// All characters there are.
const ALL: u64 = 0x11_0000;
/// Those of `\w`, `\d` and `\s`, or more.
const WORDS: u64 = 150_000;
const DIGITS: u64 = 1_000;
const SPACES: u64 = 50;
/// Those of `\p{L}`, `\p{N}` and `\p{Nd}`, or more: what `\w` and `\d` are translated to.
const NAMED: [(&str, u64); 3] = [("L", WORDS), ("N", 2_500), ("Nd", DIGITS)];
/// Those of `[:alpha:]` and the like.
const ASCII: u64 = 0x80;
/// A class that is not written out is a list of ranges, made anew or put together with those before it.
const PUT_TOGETHER: u64 = 4_000;

/// A pattern that is well formed.
pub(super) struct Form {
    ast: Ast,
    /// Characters that are looked at to find out what it means; a million takes some four milliseconds.
    pub(super) reading: u64,
}

impl Form {
    pub(super) fn of(pattern: &str, nesting: u32) -> Result<Self, &'static str> {
        let mut parser = ParserBuilder::new().nest_limit(nesting).build();
        let ast = parser.parse(pattern).map_err(|_| MALFORMED)?;
        let Ok(reading) = ast::visit(&ast, Reading::default());
        Ok(Self { ast, reading })
    }

    pub(super) fn meaning(&self, pattern: &str) -> Result<Hir, &'static str> {
        let mut translator = TranslatorBuilder::new().build();
        translator.translate(pattern, &self.ast).map_err(|_| MALFORMED)
    }
}

const MALFORMED: &str = "is malformed";

#[derive(Default)]
struct Reading {
    /// Somewhere in the pattern, and so perhaps everywhere.
    any_case: bool,
    always: u64,
    in_any_case: u64,
    /// The classes that are open, in one another.
    open: Vec<Open>,
    /// Of the class that ended last.
    closed: Ranges,
    parts: Parts,
}

#[derive(Default)]
struct Open {
    characters: u64,
    ranges: Ranges,
}

impl Reading {
    fn see(&mut self, flags: &Flags) {
        self.any_case |= flags.flag_state(Flag::CaseInsensitive) == Some(true);
    }

    /// So many characters are part of the class that is open.
    fn add(&mut self, characters: u64, ranges: Ranges) {
        if let Some(open) = self.open.last_mut() {
            open.characters = (open.characters + characters).min(ALL);
            open.ranges.add(ranges);
        }
    }

    /// The class that is open is put together with something: all of it is gone through.
    fn put_together(&mut self) {
        self.always += PUT_TOGETHER;
        self.take(self.open.last().map(|open| open.ranges).unwrap_or_default());
    }

    fn take(&mut self, ranges: Ranges) {
        self.always = self.always.saturating_add(ranges.always);
        self.in_any_case = self.in_any_case.saturating_add(ranges.in_any_case);
    }

    /// A class is complete, and every character of it is looked at. How many there are.
    fn close(&mut self) -> u64 {
        let Open { characters, ranges } = self.open.pop().unwrap_or_default();
        self.in_any_case += characters;
        self.closed = ranges;
        characters
    }
}

impl Visitor for Reading {
    type Output = u64;
    type Err = Infallible;

    fn finish(self) -> Result<u64, Infallible> {
        Ok(self.always.saturating_add(if self.any_case { self.in_any_case } else { 0 }))
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::Flags(flags) => self.see(&flags.flags),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.see(flags);
                }
            }
            Ast::ClassPerl(_) => self.always += PUT_TOGETHER,
            Ast::ClassUnicode(class) => {
                self.always += PUT_TOGETHER;
                self.in_any_case += named(class);
            }
            Ast::ClassBracketed(_) => self.open.push(Open::default()),
            _ => {}
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if let Ast::ClassBracketed(_) = ast {
            self.close();
        }
        let taken = self.parts.complete(ast, self.closed);
        self.take(taken);
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        if let ClassSetItem::Bracketed(_) = item {
            self.open.push(Open::default());
        }
        Ok(())
    }

    fn visit_class_set_item_post(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        let negated_or = |negated: bool, characters| if negated { ALL } else { characters };
        let characters = match item {
            // A union is no class of its own: its parts have been added.
            ClassSetItem::Empty(_) | ClassSetItem::Union(_) => return Ok(()),
            ClassSetItem::Literal(_) => 1,
            ClassSetItem::Range(range) => {
                let (from, to) = (u32::from(range.start.c), u32::from(range.end.c));
                u64::from(to.saturating_sub(from)) + 1
            }
            ClassSetItem::Ascii(class) => negated_or(class.negated, ASCII),
            ClassSetItem::Perl(class) => negated_or(
                class.negated,
                match class.kind {
                    ClassPerlKind::Word => WORDS,
                    ClassPerlKind::Digit => DIGITS,
                    ClassPerlKind::Space => SPACES,
                },
            ),
            ClassSetItem::Unicode(class) => {
                let characters = named(class);
                self.in_any_case += characters;
                negated_or(class.is_negated(), characters)
            }
            ClassSetItem::Bracketed(class) => negated_or(class.negated, self.close()),
        };
        let ranges = match item {
            ClassSetItem::Literal(_) | ClassSetItem::Range(_) => Ranges::ONE,
            ClassSetItem::Bracketed(_) => self.closed,
            _ => Ranges::NAMED,
        };
        if !matches!(item, ClassSetItem::Literal(_) | ClassSetItem::Range(_)) {
            self.put_together();
        }
        self.add(characters, ranges);
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), Infallible> {
        self.always += PUT_TOGETHER;
        self.in_any_case += 2 * ALL;
        self.add(ALL, Ranges::default());
        Ok(())
    }

    fn visit_class_set_binary_op_post(&mut self, _: &ClassSetBinaryOp) -> Result<(), Infallible> {
        self.put_together();
        Ok(())
    }
}

/// Characters of a class that has a name, before it is negated.
fn named(class: &ClassUnicode) -> u64 {
    let ClassUnicodeKind::Named(name) = &class.kind else { return ALL };
    NAMED.iter().find(|(known, _)| known == name).map_or(ALL, |(_, characters)| *characters)
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{Class, HirKind};

    use super::*;

    #[test]
    fn what_takes_long_is_told_from_what_does_not() {
        let check = |pattern: &str, expected: u64| {
            let form = Form::of(pattern, 50).unwrap();
            assert_eq!(form.reading, expected, "{pattern}");
            assert!(form.meaning(pattern).is_ok());
        };
        check("rm -rf [a-z]*", 0);
        check("(?i)rm -rf [a-z_]*", 27);
        check(r"\w+[\d.]", 2 * PUT_TOGETHER);
        check(r"(?i)[\w.]\pC", 2 * PUT_TOGETHER + WORDS + 1 + ALL);
        check(r"(?i)[\d\s]", 2 * PUT_TOGETHER + DIGITS + SPACES + 1_500);
        check(r"(?i)[\pC]", PUT_TOGETHER + 2 * ALL);
        check(r"(?i)[\p{L}\p{N}_]", 2 * PUT_TOGETHER + 2 * (WORDS + 2_500) + 1 + 1_500);
        check(r"(?i)\p{Nd}[b\P{Nd}]", 2 * PUT_TOGETHER + 2 * DIGITS + ALL + 2);
        check("a(?i:b[ -\u{10ffff}])", ALL - 0x20);
        check(r"(?i)[^a]", 1);
        check(r"(?i)[b[^a]]", PUT_TOGETHER + 1 + ALL + 2);
        check(r"(?i)[a[:^alpha:]]", PUT_TOGETHER + ALL + 2);
        check(r"(?i)[a[:alpha:]]", PUT_TOGETHER + 1 + ASCII + 2);
        check("(?i)[[[ -\u{10ffff}]a]b]", 2 * PUT_TOGETHER + 3 * (ALL - 0x20) + 3);
        check(r"(?i)[b[^a]&&c]", 3 * PUT_TOGETHER + 1 + 3 * ALL + 2 + 6);
        check(r"[b[^a]&&c]", 3 * PUT_TOGETHER + 1 + 3);
    }

    /// What is one class in the end is put together again for each of its parts.
    #[test]
    fn alternatives_count_with_those_before_them() {
        let check = |pattern: &str, expected: u64| {
            assert_eq!(Form::of(pattern, 50).unwrap().reading, expected, "{pattern}");
        };
        check("[ac]|[eg]|[ik]", 2 + 4 + 6);
        check("(?:)[ac]{1}|(?:[eg])|x{0}[ik]", 2 + 4 + 6);
        check("xy[ac]|xy[eg]", 2 + 4);
        check("[ac]|(?:[eg]|[ik])|.", (2 + 4) + (2 + 6 + 7));
        check("one|two|three", 0);
        check("(?i)a|b|c", 2 + 4 + 6);
        check(r"a\w+|b\w+|([ac])|[ac]+|[ac]$", 2 * PUT_TOGETHER);
        check(r"[acegik\d]", PUT_TOGETHER + 6);
        check(r"\w|[ac]", PUT_TOGETHER + 1_000 + 1_002);
    }

    #[test]
    fn classes_with_names_have_no_more_characters_than_is_known() {
        let known =
            [(r"\w", WORDS), (r"\d", DIGITS), (r"\s", SPACES)].map(|(word, n)| (word.into(), n));
        let named = NAMED.map(|(name, characters)| (format!(r"\p{{{name}}}"), characters));
        for (class, known) in known.into_iter().chain(named) {
            let meaning = Form::of(&class, 50).unwrap().meaning(&class).unwrap();
            let HirKind::Class(Class::Unicode(ranges)) = meaning.kind() else { panic!("{class}") };
            let count: usize = ranges.iter().map(regex_syntax::hir::ClassUnicodeRange::len).sum();
            assert!(count as u64 <= known, "{class}: {count}");
        }
    }

    /// What is read takes no longer than was told, whatever is in a class: a thousand times the usual is not missed.
    #[test]
    fn nothing_large_is_counted_as_little() {
        let items =
            ["[:^alpha:]", "[^a]", r"\pC", r"\p{any}", r"\W", r"\S", "[a[^b]]", "[ -\u{10ffff}]"];
        for item in items {
            for class in [format!("(?i)[a{item}]"), format!("(?i)[a[b{item}]]")] {
                let form = Form::of(&class, 50).unwrap();
                assert!(form.reading >= ALL / 2, "{class}");
            }
        }
    }
}
