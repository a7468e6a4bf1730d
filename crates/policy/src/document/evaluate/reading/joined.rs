//! Alternatives that are classes, which become one class: each is put together with all those before it.

use regex_syntax::ast::{Ast, GroupKind, RepetitionKind, RepetitionRange};

/// How many ranges of characters a class has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ranges {
    pub(super) always: u64,
    /// So many more where upper and lower case are the same.
    pub(super) in_any_case: u64,
}

impl Ranges {
    /// One range becomes two, or seldom more.
    pub(super) const ONE: Self = Self { always: 1, in_any_case: 1 };
    /// A class that is not written out has some hundred.
    pub(super) const NAMED: Self = Self { always: 1_000, in_any_case: 500 };
    /// A letter is no class until it is two.
    const LETTER: Self = Self { always: 0, in_any_case: 2 };

    pub(super) fn add(&mut self, more: Self) {
        self.always = self.always.saturating_add(more.always);
        self.in_any_case = self.in_any_case.saturating_add(more.in_any_case);
    }
}

/// What a part of a pattern is when it stands among alternatives.
#[derive(Clone, Copy)]
enum Part {
    Empty,
    /// Or something that ends in one: what comes before may be the same in all alternatives, and then stands before them.
    Class(Ranges),
    Other,
}

/// The parts that were seen and are in no other yet, in order.
#[derive(Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    /// A part is complete; `class` are the ranges of the class that ended last. What putting it together takes.
    pub(super) fn complete(&mut self, ast: &Ast, class: Ranges) -> Ranges {
        let mut taken = Ranges::default();
        let part = match ast {
            Ast::Empty(_) | Ast::Flags(_) => Part::Empty,
            Ast::Literal(_) => Part::Class(Ranges::LETTER),
            Ast::Dot(_) => Part::Class(Ranges::ONE),
            Ast::ClassPerl(_) | Ast::ClassUnicode(_) => Part::Class(Ranges::NAMED),
            Ast::ClassBracketed(_) => Part::Class(class),
            Ast::Assertion(_) => Part::Other,
            Ast::Repetition(repetition) => match (self.last(1)[0], &repetition.op.kind) {
                (part, RepetitionKind::Range(range)) if is_once(range) => part,
                (_, RepetitionKind::Range(range)) if is_never(range) => Part::Empty,
                (Part::Empty, _) => Part::Empty,
                _ => Part::Other,
            },
            Ast::Group(group) => match (self.last(1)[0], &group.kind) {
                (part, GroupKind::NonCapturing(_)) => part,
                _ => Part::Other,
            },
            Ast::Concat(concat) => {
                let parts = self.last(concat.asts.len());
                let end = parts.iter().rev().find(|part| !matches!(part, Part::Empty));
                end.copied().unwrap_or(Part::Empty)
            }
            Ast::Alternation(alternation) => {
                let mut before = Ranges::default();
                for part in self.last(alternation.asts.len()) {
                    let Part::Class(ranges) = part else { break };
                    before.add(ranges);
                    taken.add(before);
                }
                Part::Class(before)
            }
        };
        self.0.push(part);
        taken
    }

    fn last(&mut self, count: usize) -> Vec<Part> {
        self.0.split_off(self.0.len() - count)
    }
}

fn is_once(range: &RepetitionRange) -> bool {
    matches!(range, RepetitionRange::Exactly(1) | RepetitionRange::Bounded(1, 1))
}

fn is_never(range: &RepetitionRange) -> bool {
    matches!(range, RepetitionRange::Exactly(0) | RepetitionRange::Bounded(0, 0))
}
