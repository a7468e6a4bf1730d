//! Answers: rules compiled once, then asked about one context after another.
//!
//! Rules go by priority, highest first and otherwise in the order of writing; the first that matches counts, then the
//! default. A field that the context lacks never matches. What cannot be evaluated is denied.

mod compare;
mod context;
mod decide;
mod pattern;
mod policy;
mod strategy;
mod text;
mod translate;

pub use context::Context;
pub use decide::{Decision, Reason};
pub use policy::Policy;
pub use strategy::Strategy;

pub(crate) use pattern::Pattern;
pub(crate) use policy::{Compiled, LayerRule};
pub(crate) use text::as_text;
