//! A plain listing of every message, field and number on the wire, one per line.
//!
//! The checked-in listing is frozen: lines may be added, never changed or removed, because an agent that is already
//! running in a sandbox must understand tomorrow's host.

use anyhow::{Result, bail};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};

/// Sorted lines such as `message Start 9 timeout_ms uint64`.
pub(crate) fn listing(files: &FileDescriptorSet) -> String {
    let mut lines = Vec::new();
    for file in &files.file {
        for message in &file.message_type {
            list_message("", message, &mut lines);
        }
        for enumeration in &file.enum_type {
            list_enum("", enumeration, &mut lines);
        }
        for service in &file.service {
            list_service(service, &mut lines);
        }
    }
    lines.sort();
    lines
        .into_iter()
        .map(|(name, number, text)| match number {
            Some(number) => format!("{name} {number:>2} {text}\n"),
            None => format!("{name}\n"),
        })
        .collect()
}

/// Fails when a line of the frozen listing is missing from the new one.
pub(crate) fn check_compatible(frozen: &str, listing: &str) -> Result<()> {
    let lost: Vec<&str> =
        frozen.lines().filter(|line| !listing.lines().any(|new| new == *line)).collect();
    if !lost.is_empty() {
        bail!(
            "the wire schema of version 1 is frozen, these lines went away:\n{}",
            lost.join("\n")
        );
    }
    Ok(())
}

/// A line per thing, and one per field or value of it.
type Line = (String, Option<i32>, String);

fn list_message(prefix: &str, message: &DescriptorProto, lines: &mut Vec<Line>) {
    let name = format!("{prefix}{}", message.name());
    lines.push((format!("message {name}"), None, String::new()));
    for field in &message.field {
        let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
        let kind = match field.r#type() {
            Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
            scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
        };
        let text = format!("{} {repeated}{kind}", field.name());
        lines.push((format!("message {name}"), Some(field.number()), text));
    }
    for nested in &message.nested_type {
        list_message(&format!("{name}."), nested, lines);
    }
    for enumeration in &message.enum_type {
        list_enum(&format!("{name}."), enumeration, lines);
    }
}

fn list_enum(prefix: &str, enumeration: &EnumDescriptorProto, lines: &mut Vec<Line>) {
    let name = format!("enum {prefix}{}", enumeration.name());
    lines.push((name.clone(), None, String::new()));
    for value in &enumeration.value {
        lines.push((name.clone(), Some(value.number()), value.name().to_owned()));
    }
}

fn list_service(service: &ServiceDescriptorProto, lines: &mut Vec<Line>) {
    let streamed = |streaming, name: &str| {
        let stream = if streaming { "stream " } else { "" };
        format!("{stream}{}", name.trim_start_matches('.'))
    };
    for method in &service.method {
        let input = streamed(method.client_streaming(), method.input_type());
        let output = streamed(method.server_streaming(), method.output_type());
        let text = format!("service {}.{}({input}) -> {output}", service.name(), method.name());
        lines.push((text, None, String::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_be_added_but_not_changed() {
        let frozen = "message A  1 x uint64\n";
        assert!(check_compatible(frozen, "message A  1 x uint64\nmessage A  2 y bytes\n").is_ok());
        assert!(check_compatible(frozen, "message A  1 x uint32\n").is_err());
        assert!(check_compatible(frozen, "").is_err());
    }
}
