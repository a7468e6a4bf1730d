//! The virtual environment with the public implementation: made once, kept in a cache directory outside the
//! repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "agent-governance-toolkit-core==4.1.0";
/// What its policy part needs; the rest of its dependencies is for servers.
const NEEDED: [&str; 2] = ["pydantic>=2.5,<3", "pyyaml>=6,<7"];

/// A Python that can import the implementation, or why there is none.
pub(crate) fn python() -> Result<PathBuf, String> {
    let directory = directory()?;
    let python = directory.join("bin/python");
    if usable(&python) {
        return Ok(python);
    }
    // Made under another name, then renamed: a test that is killed leaves nothing half-made under the real one.
    let fresh = directory.with_extension(format!("new-{}", std::process::id()));
    let made = make(&fresh);
    let placed = made.and_then(|()| {
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(|error| error.to_string())?;
        }
        std::fs::rename(&fresh, &directory).map_err(|error| error.to_string())
    });
    if placed.is_err() {
        let _ = std::fs::remove_dir_all(&fresh);
    }
    placed?;
    if usable(&python) { Ok(python) } else { Err("the environment does not work".to_owned()) }
}

fn directory() -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os("BELLJAR_POLICY_ORACLE") {
        return Ok(PathBuf::from(given));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or_else(home).ok_or("there is no cache directory")?;
    Ok(cache.join("belljar-tests/policy-oracle-4.1.0"))
}

fn usable(python: &Path) -> bool {
    let check = "import yaml, agent_os.policies.evaluator";
    run(Command::new(python).args(["-W", "ignore", "-c", check])).is_ok()
}

fn make(directory: &Path) -> Result<(), String> {
    if let Some(above) = directory.parent() {
        std::fs::create_dir_all(above).map_err(|error| error.to_string())?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(directory))?;
    let pip = |more: &[&str]| {
        let python = directory.join("bin/python");
        let mut command = Command::new(python);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(command.args(["--timeout", "20", "--retries", "1"]).args(more))
    };
    pip(&NEEDED)?;
    pip(&["--no-deps", PACKAGE])
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(told.lines().last().unwrap_or("it failed without a word").to_owned())
}
