//! `crates/api`: the public API. Each message is also its own JSON form, so REST, gRPC and `--json` show one shape.
//!
//! Words for enums, RFC 3339 for times, base64 for bytes: prost knows none of these, so the attributes that say it
//! are derived here from each field's type.

use super::{Mode, lint, put, python};
use crate::schema;
use anyhow::{Context, Result};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::path::Path;

const PACKAGE: &str = "belljar.v1";
const FILES: [&str; 12] = [
    "callbacks",
    "common",
    "files",
    "networks",
    "policies",
    "ports",
    "processes",
    "sandboxes",
    "secrets",
    "snapshots",
    "system",
    "templates",
];

const HEADER: &str =
    "// Generated from api/proto by `cargo run -p xtask -- codegen`; do not edit.\n";

/// Bytes that are nearly always text, and are shown as text in JSON; the log has them as they were.
const TEXT_FIELDS: [&str; 2] = ["stdout", "stderr"];

/// Messages that carry a secret: their debug form is written by hand, in `crates/api/src/quiet.rs`.
const SECRET_MESSAGES: [&str; 1] = ["SetSecretRequest"];

pub(super) fn run(root: &Path, mode: Mode) -> Result<()> {
    let proto = root.join("api/proto");
    let names = FILES.map(|name| format!("belljar/v1/{name}.proto"));
    let all = protox::compile(names, [&proto]).context("compile api/proto")?;
    let mut descriptors = all.clone();
    descriptors.file.retain(|file| file.package() == PACKAGE);
    lint::check(&descriptors)?;

    let frozen_path = root.join("api/schema/v1.txt");
    let frozen = std::fs::read_to_string(&frozen_path).unwrap_or_default();
    let listing = schema::listing(&descriptors);
    schema::check_compatible(&frozen, &listing)?;

    python::run(root, &descriptors, mode)?;
    let code = generate(all)?;
    put(&root.join("crates/api/src/generated.rs"), &format!("{HEADER}{code}"), mode)?;
    put(&frozen_path, &listing, mode)
}

fn generate(descriptors: FileDescriptorSet) -> Result<String> {
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    config.bytes(["."]);
    config.skip_debug(SECRET_MESSAGES.map(|name| format!(".{PACKAGE}.{name}")));
    config.message_attribute(
        format!(".{PACKAGE}"),
        "#[derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema)] #[serde(deny_unknown_fields)]",
    );
    config.enum_attribute(
        format!(".{PACKAGE}"),
        "#[derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema)] #[serde(rename_all = \"snake_case\")]",
    );
    for file in descriptors.file.iter().filter(|file| file.package() == PACKAGE) {
        for message in &file.message_type {
            describe(&mut config, message);
        }
    }
    config.service_generator(tonic_prost_build::configure().service_generator());
    // Well-known types come along so that they can be referred to; their code is in `prost-types`.
    let requests = descriptors
        .file
        .into_iter()
        .map(|file| (prost_build::Module::from_protobuf_package_name(file.package()), file))
        .collect();
    let mut modules = config.generate(requests).context("generate Rust types")?;
    let ours = prost_build::Module::from_protobuf_package_name(PACKAGE);
    modules.remove(&ours).context("the API has types")
}

/// Says how each field of a message looks in JSON. What is absent has the value that it has in protobuf.
fn describe(config: &mut prost_build::Config, message: &DescriptorProto) {
    for field in &message.field {
        let path = format!(".{PACKAGE}.{}.{}", message.name(), field.name());
        config.field_attribute(&path, "#[serde(default)]");
        if let Some(attribute) = attribute(field) {
            config.field_attribute(&path, attribute);
        }
    }
}

fn attribute(field: &FieldDescriptorProto) -> Option<String> {
    let many = field.label() == Label::Repeated;
    let form = match (many, field.proto3_optional()) {
        (true, _) => "many",
        (false, true) => "maybe",
        (false, false) => "one",
    };
    let schema = |inner: &str| match form {
        "many" => format!("Vec<{inner}>"),
        "maybe" => format!("Option<{inner}>"),
        _ => inner.to_owned(),
    };
    match field.r#type() {
        Type::Enum => {
            let name = field.type_name().rsplit('.').next().unwrap_or_default();
            Some(format!(
                "#[serde(serialize_with = \"crate::json::word::{form}::<{name}, _>\", deserialize_with = \"crate::json::word::read_{form}::<{name}, _>\")] #[schema(value_type = {})]",
                schema(name)
            ))
        }
        Type::Message if field.type_name() == ".google.protobuf.Timestamp" => Some(
            "#[serde(with = \"crate::json::time\")] #[schema(value_type = Option<String>, format = DateTime)]"
                .to_owned(),
        ),
        Type::Bytes => {
            let kind = if TEXT_FIELDS.contains(&field.name()) { "text" } else { "base64" };
            Some(format!(
                "#[serde(serialize_with = \"crate::json::{kind}::{form}\", deserialize_with = \"crate::json::{kind}::read_{form}\")] #[schema(value_type = {})]",
                schema("String")
            ))
        }
        _ => None,
    }
}
