//! Where in a value or a schema something is. Each part knows the one before it, and they are written out only for a
//! message: names come from anybody, and a long one would be written again for everything below it.

use std::fmt;

pub(super) enum Path<'p> {
    Root,
    Name(&'p Self, &'p str),
    Index(&'p Self, usize),
}

impl Path<'_> {
    /// How many parts it has.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Root => 0,
            Self::Name(before, _) | Self::Index(before, _) => before.depth() + 1,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Name(before, name) => write!(f, "{before}/{name}"),
            Self::Index(before, index) => write!(f, "{before}/{index}"),
        }
    }
}
