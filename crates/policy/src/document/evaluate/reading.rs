//! What it takes to read a pattern, told from its form.
//!
//! Most patterns take a microsecond. But where upper and lower case are the same, every character of every class is looked
//! at, and a class can have all there are: then eight bytes of a pattern take milliseconds. So the form is read first, which
//! is linear in the text, and what would take long is refused before it does.

use std::convert::Infallible;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{self, Ast, ClassSetBinaryOp, ClassSetItem, Flag, Flags, Visitor};
use regex_syntax::hir::Hir;
use regex_syntax::hir::translate::TranslatorBuilder;

/// All characters there are.
const ALL: u64 = 0x11_0000;
/// Those of a named class: letters are most.
const NAMED: u64 = 150_000;
/// A named class is a list of ranges that is put together with those before it.
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
}

impl Reading {
    fn see(&mut self, flags: &Flags) {
        self.any_case |= flags.flag_state(Flag::CaseInsensitive) == Some(true);
    }

    fn named(&mut self, negated: bool) {
        self.always += PUT_TOGETHER;
        self.in_any_case += if negated { ALL } else { NAMED };
    }
}

impl Visitor for Reading {
    type Output = u64;
    type Err = Infallible;

    fn finish(self) -> Result<u64, Infallible> {
        Ok(self.always + if self.any_case { self.in_any_case } else { 0 })
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::Flags(flags) => self.see(&flags.flags),
            Ast::Group(group) => {
                if let Some(flags) = group.flags() {
                    self.see(flags);
                }
            }
            Ast::ClassUnicode(class) => self.named(class.is_negated()),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        match item {
            ClassSetItem::Range(range) => {
                let (from, to) = (u64::from(u32::from(range.start.c)), u32::from(range.end.c));
                self.in_any_case += u64::from(to).saturating_sub(from) + 1;
            }
            ClassSetItem::Unicode(class) => self.named(class.is_negated()),
            ClassSetItem::Perl(class) => self.named(class.negated),
            ClassSetItem::Bracketed(class) if class.negated => self.in_any_case += ALL,
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), Infallible> {
        self.always += PUT_TOGETHER;
        self.in_any_case += 2 * ALL;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_told_from_what_does_not() {
        let check = |pattern: &str, expected: u64| {
            let form = Form::of(pattern, 50).unwrap();
            assert_eq!(form.reading, expected, "{pattern}");
            assert!(form.meaning(pattern).is_ok());
        };
        check("rm -rf [a-z]*", 0);
        check("(?i)rm -rf [a-z]*", 26);
        check(r"\w+[\d.]", PUT_TOGETHER);
        check(r"(?i)[\w.]\pL", 2 * (PUT_TOGETHER + NAMED));
        check("a(?i:b[ -\u{10ffff}])", ALL - 0x20);
        check(r"(?i)[^a]", 0);
        check(r"(?i)[b[^a]]", ALL);
        check(r"(?i)[b[^a]&&c]", PUT_TOGETHER + 3 * ALL);
        check(r"[b[^a]&&c]", PUT_TOGETHER);
    }
}
