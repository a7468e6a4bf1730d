//! Keys that the operator chose: from files, or from the environment.

use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_engine::{Engine, NewKey, Role, Secret};
use belljar_policy::TenantId;

use crate::env_vars;
use crate::failure::Failure;

/// A file with more is something else.
const MAX_FILE: u64 = 64 * 1024;

/// A key and where it came from.
pub(super) struct Own {
    name: String,
    secret: Secret,
}

pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Own>, Failure> {
    let mut keys = Vec::new();
    if let Ok(text) = std::env::var(env_vars::SERVE_API_KEY) {
        keys.extend(lines(env_vars::SERVE_API_KEY, &text));
    }
    for path in files {
        let text = read_bounded(path).map_err(|error| {
            Failure::new(
                Code::InvalidConfiguration,
                format!("key file `{}` cannot be read", path.display()),
            )
            .caused_by(&error)
        })?;
        let before = keys.len();
        keys.extend(lines(&path.to_string_lossy(), &text));
        if keys.len() == before {
            return Err(Failure::new(
                Code::InvalidConfiguration,
                format!("key file `{}` has no key", path.display()),
            )
            .with_remedy("write one key in each line"));
        }
    }
    Ok(keys)
}

/// Makes administrators of those who have the keys. Adding a key again changes nothing.
pub(super) async fn add(engine: &Engine, keys: Vec<Own>) -> Result<(), Failure> {
    for Own { name, secret } in keys {
        let key = NewKey {
            name,
            tenant: TenantId::default(),
            role: Role::Admin,
            scopes: Vec::new(),
            expires_at: None,
        };
        engine.keys().add(&secret, key).await?;
    }
    Ok(())
}

fn lines<'a>(source: &'a str, text: &'a str) -> impl Iterator<Item = Own> + 'a {
    let keys =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    keys.map(move |key| Own { name: format!("from {source}"), secret: Secret::new(key) })
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_lines() {
        let found: Vec<_> = lines("file", "# ours\n one \n\ntwo\n").collect();
        let texts: Vec<_> = found.iter().map(|own| own.secret.expose()).collect();
        assert_eq!(texts, ["one", "two"]);
        assert_eq!(found[0].name, "from file");
    }
}
