//! Text to typed documents, with the place of every mistake.
//!
//! YAML and JSON become one tree ([`node`]); serde reads types from it and every error keeps line and column. All is
//! bounded: bytes, depth, values, aliases. What one reader of YAML takes for a number and another for text is refused.

mod ascii;
mod checked;
mod deserialize;
mod json;
mod node;
mod refusal;
mod scalar;
mod yaml;

pub use node::{MAX_BYTES, MAX_DEPTH, MAX_NODES};
pub use refusal::Refusal;

pub(crate) use checked::{Check, checked_list};
pub(crate) use node::Position;

use serde::de::DeserializeOwned;

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

impl Format {
    /// By the file's ending: `.json` is JSON, all else YAML.
    #[must_use]
    pub fn of_file(name: &str) -> Self {
        let json =
            name.len() >= 5 && name.as_bytes()[name.len() - 5..].eq_ignore_ascii_case(b".json");
        if json { Self::Json } else { Self::Yaml }
    }
}

/// Reads a value of any type that serde knows.
///
/// # Errors
/// Names line and column of what cannot be read.
pub fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal::whole(
            format!("the document has {} bytes, more than {MAX_BYTES}", text.len()),
            "split it and join the parts with `extends`",
        ));
    }
    let tree = match format {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    };
    tree.and_then(|node| T::deserialize(&node)).map_err(|refusal| refusal.within(text))
}
