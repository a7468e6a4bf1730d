//! Generates what is checked in: wire types of the agent protocol and of the public API, frozen listings of both,
//! what the Python package needs, the schema of policy documents, and the page of error codes.
//!
//! The results are checked in, so that building the product needs neither protoc nor this crate.

mod agent;
mod api;
mod lint;
mod python;

use anyhow::{Context, Result, bail};
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Check,
}

pub(crate) fn run(root: &Path, mode: Mode) -> Result<()> {
    agent::run(root, mode)?;
    api::run(root, mode)?;
    let reference = root.join("docs/reference");
    put(&reference.join("policy.schema.json"), &belljar_policy::document::schema(), mode)?;
    put(&reference.join("errors.md"), &error_page(), mode)
}

fn error_page() -> String {
    let mut page = String::from(
        "# Error codes\n\nGenerated from `crates/codes` by `cargo run -p xtask -- codegen`. Codes are stable; the text of a message \
         may change.\n\n| code | meaning |\n|---|---|\n",
    );
    for code in belljar_codes::Code::ALL {
        // What an error's `docs` leads to; a line of a table has no anchor of its own.
        let anchor = format!("<a id=\"{code}\"></a>");
        page.push_str(&format!("| {anchor}`{code}` | {} |\n", code.description().trim()));
    }
    page
}

/// Writes `content`, or in check mode fails when the file has anything else in it.
fn put(path: &Path, content: &str, mode: Mode) -> Result<()> {
    let current = std::fs::read_to_string(path).unwrap_or_default();
    if current == content {
        return Ok(());
    }
    match mode {
        Mode::Check => bail!("{} is stale; run `cargo run -p xtask -- codegen`", path.display()),
        Mode::Write => {
            let above = path.parent().context("a file has a directory")?;
            std::fs::create_dir_all(above)?;
            std::fs::write(path, content).with_context(|| format!("write {}", path.display()))?;
            println!("wrote {}", path.display());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_what_is_generated() {
        run(&crate::root(), Mode::Check).expect("generated files are fresh");
    }
}
