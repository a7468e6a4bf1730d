//! Answers: rules compiled once, then asked about one context after another.
//!
//! Rules go by priority, highest first and otherwise in the order of writing; the first that matches counts, then the
//! default. A field that the context lacks never matches. What cannot be evaluated is denied.

mod asking;
mod built;
mod compare;
mod context;
mod decide;
mod fields;
mod pattern;
mod policy;
mod reading;
mod strategy;
mod text;
mod together;
mod translate;

pub use context::Context;
pub use decide::{Decision, Reason};
pub use policy::Policy;
pub use strategy::Strategy;
pub use together::MAX_PATTERN_BYTES;

pub(crate) use built::Owner;
pub(crate) use pattern::{Looks, Pattern};
pub(crate) use policy::{Compiled, LayerRule};
pub(crate) use text::as_text;
pub(crate) use together::check_together;
