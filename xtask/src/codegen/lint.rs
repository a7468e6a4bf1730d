//! The habits that the API's definition keeps, so that it reads and evolves as one: names, prefixes, comments.

use anyhow::{Result, bail};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

/// Fails with everything that breaks a habit.
pub(super) fn check(files: &FileDescriptorSet) -> Result<()> {
    let mut broken = Vec::new();
    for file in &files.file {
        check_file(file, &mut broken);
    }
    if !broken.is_empty() {
        bail!("the API's definition breaks its habits:\n{}", broken.join("\n"));
    }
    Ok(())
}

fn check_file(file: &FileDescriptorProto, broken: &mut Vec<String>) {
    let directory = file.package().replace('.', "/");
    if !file.name().starts_with(&format!("{directory}/")) {
        broken.push(format!("{}: lies elsewhere than its package", file.name()));
    }
    for message in &file.message_type {
        check_message(message, broken);
    }
    for enumeration in &file.enum_type {
        check_enum(enumeration, broken);
    }
    for service in &file.service {
        check_service(service, broken);
    }
}

fn check_message(message: &DescriptorProto, broken: &mut Vec<String>) {
    let name = message.name();
    if !is_pascal(name) {
        broken.push(format!("message {name}: not PascalCase"));
    }
    for field in &message.field {
        if !is_snake(field.name()) {
            broken.push(format!("{name}.{}: not snake_case", field.name()));
        }
    }
}

fn check_enum(enumeration: &EnumDescriptorProto, broken: &mut Vec<String>) {
    let name = enumeration.name();
    let prefix = screaming(name);
    for value in &enumeration.value {
        if !value.name().starts_with(&format!("{prefix}_")) {
            broken.push(format!("{name}.{}: does not begin with {prefix}_", value.name()));
        }
        if value.number() == 0 && value.name() != format!("{prefix}_UNSPECIFIED") {
            broken.push(format!("{name}: zero is not {prefix}_UNSPECIFIED"));
        }
    }
}

fn check_service(service: &ServiceDescriptorProto, broken: &mut Vec<String>) {
    for method in &service.method {
        let (name, input) = (method.name(), method.input_type());
        if !is_pascal(name) {
            broken.push(format!("{}.{name}: not PascalCase", service.name()));
        }
        // In a conversation, messages are called after who says them.
        let conversation = method.client_streaming() && method.server_streaming();
        if !conversation && !input.ends_with(&format!(".{name}Request")) {
            broken.push(format!("{}.{name}: takes {input}, not {name}Request", service.name()));
        }
    }
}

fn is_pascal(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric())
}

fn is_snake(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// `SandboxState` → `SANDBOX_STATE`.
pub(super) fn screaming(name: &str) -> String {
    let mut text = String::new();
    for (index, letter) in name.chars().enumerate() {
        if index > 0 && letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        assert_eq!(screaming("SandboxState"), "SANDBOX_STATE");
        assert!(is_snake("page_token") && !is_snake("pageToken"));
        assert!(is_pascal("CreateSandbox") && !is_pascal("create_sandbox"));
    }

    #[test]
    fn a_broken_habit_is_named() {
        let method = prost_types::MethodDescriptorProto {
            name: Some("Get".to_owned()),
            input_type: Some(".belljar.v1.Ask".to_owned()),
            ..Default::default()
        };
        let service = ServiceDescriptorProto {
            name: Some("S".to_owned()),
            method: vec![method],
            options: None,
        };
        let file = FileDescriptorProto {
            name: Some("belljar/v1/x.proto".to_owned()),
            package: Some("belljar.v1".to_owned()),
            service: vec![service],
            ..Default::default()
        };
        let error = check(&FileDescriptorSet { file: vec![file] }).unwrap_err().to_string();
        assert!(error.contains("S.Get: takes .belljar.v1.Ask"), "{error}");
    }
}
