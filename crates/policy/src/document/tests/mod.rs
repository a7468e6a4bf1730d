//! Documents from text to answer.

mod chain;
mod changes;
mod decide;
mod flows;
mod parse;
mod patterns;
mod properties;

use super::{Context, Document, Format};

fn document(yaml: &str) -> Document {
    Document::parse(yaml, Format::Yaml).unwrap_or_else(|refusal| panic!("{refusal}\n{yaml}"))
}

fn context(json: &str) -> Context {
    serde_json::from_str(json).unwrap()
}
