//! The JSON Schema of documents, for editors.

use schemars::generate::SchemaSettings;

use super::Document;

/// The schema as text, generated from the types.
#[must_use]
pub fn schema() -> String {
    let generator = SchemaSettings::draft07().into_generator();
    let schema = generator.into_root_schema_for::<Document>();
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text.push('\n');
    text
}
