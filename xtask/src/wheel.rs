//! The Python package as a wheel that carries the program, so that `pip install` is the whole installation.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Builds the wheel into `target` from the program at `binary`.
pub(crate) fn run(root: &Path, binary: &Path, target: &Path) -> Result<()> {
    let binary = binary.canonicalize().with_context(|| format!("find {}", binary.display()))?;
    std::fs::create_dir_all(target).with_context(|| format!("make {}", target.display()))?;
    // The package's build hook reads the name and says which platforms the wheel is for.
    let status = Command::new("python3")
        .args(["-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--wheel-dir"])
        .arg(target)
        .arg(root.join("sdk/python"))
        .env("BELLJAR_WHEEL_BINARY", binary)
        .status()
        .context("run python3 -m pip")?;
    if !status.success() {
        bail!("pip did not build the wheel");
    }
    Ok(())
}
