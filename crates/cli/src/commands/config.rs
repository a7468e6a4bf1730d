//! `belljar config show`.

use serde::Serialize;

use super::Done;
use crate::args::{ConfigArgs, ConfigCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, print, print_json};
use crate::settings::{Origin, Setting};

#[derive(Serialize)]
struct SettingShape {
    name: &'static str,
    value: Option<String>,
    origin: &'static str,
    /// The flag, variable or file, where the origin is one.
    source: Option<String>,
}

/// In place of what must not be seen.
const HIDDEN: &str = "(hidden)";

pub(crate) fn config(context: &Context, args: &ConfigArgs) -> Result<Done, Failure> {
    let ConfigCommand::Show { json } = args.command;
    if json {
        print_json(&context.settings.iter().map(SettingShape::from).collect::<Vec<_>>())?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for setting in context.settings.iter() {
        let value = shown_value(setting).unwrap_or_default();
        table.row([setting.key.name(), &value, &setting.origin.to_string()]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

fn shown_value(setting: &Setting) -> Option<String> {
    let value = setting.value.as_ref()?;
    Some(if setting.key.is_secret() {
        HIDDEN.to_owned()
    } else {
        value.to_string_lossy().into_owned()
    })
}

impl From<&Setting> for SettingShape {
    fn from(setting: &Setting) -> Self {
        let source = match &setting.origin {
            Origin::Flag(name) | Origin::Environment(name) => Some((*name).to_owned()),
            Origin::UserFile(path) | Origin::SystemFile(path) => {
                Some(path.to_string_lossy().into_owned())
            }
            Origin::Default => None,
        };
        Self {
            name: setting.key.name(),
            value: shown_value(setting),
            origin: setting.origin.kind(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Key;

    #[test]
    fn a_key_is_never_shown() {
        let setting = Setting {
            key: Key::ServerSecret,
            value: Some("secret".into()),
            origin: Origin::Environment("BELLJAR_API_KEY"),
        };
        let json = serde_json::to_string(&SettingShape::from(&setting)).unwrap();
        let expected = r#"{"name":"api_key","value":"(hidden)","origin":"environment","source":"BELLJAR_API_KEY"}"#;
        assert_eq!(json, expected);
    }
}
