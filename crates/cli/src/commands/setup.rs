//! `belljar setup`: prepares what an ordinary user may prepare, and names the rest.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use belljar_api::v1;
use belljar_codes::Code;
use serde::Serialize;

use super::Done;
use super::doctor::{Finding, examine};
use super::probe;
use crate::args::SetupArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::settings::DEFAULT_FILE;

#[derive(Serialize)]
struct Report {
    ready: bool,
    steps: Vec<String>,
    backends: Vec<v1::Probe>,
    gaps: Vec<Finding>,
}

pub(crate) async fn setup(context: &Context, args: &SetupArgs) -> Result<Done, Failure> {
    let mut steps = Vec::new();
    let state_dir = context.settings.state_dir()?;
    let fresh = !state_dir.exists();
    // The server makes the state directory and brings its store up to date.
    let backends = context.with_client(async |client| probe::all(&client).await).await?;
    let verb = if fresh { "made" } else { "found" };
    steps.push(format!("{verb} the state directory `{}`", state_dir.display()));
    if args.write_config {
        steps.push(write_config(context)?);
    }
    let verdict = probe::verdict(&backends);
    let gaps = examine(&state_dir).into_iter().filter(Finding::is_gap).collect();
    let report = Report { ready: verdict == Done::Success, steps, backends, gaps };
    if args.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    Ok(verdict)
}

fn render(report: &Report) -> String {
    let mut text: String = report.steps.iter().map(|step| format!("{step}\n")).collect();
    text.push('\n');
    text.push_str(&probe::render(&report.backends));
    text.push('\n');
    text.push_str(&probe::render_hints(&report.backends));
    for gap in &report.gaps {
        text.push_str(&format!("\n{}", gap.render()));
    }
    text.push_str(if report.ready { "\nready\n" } else { "\nnot ready: no backend works yet\n" });
    text
}

fn write_config(context: &Context) -> Result<String, Failure> {
    let Some(path) = &context.settings.user_file else {
        return Err(Failure::new(
            Code::InvalidConfiguration,
            "there is no place for a configuration file",
        )
        .with_remedy("set HOME, or give `--config`"));
    };
    match create_new(path) {
        Ok(()) => Ok(format!("wrote the configuration file `{}`", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Ok(format!("kept the configuration file `{}`", path.display()))
        }
        Err(error) => Err(Failure::new(
            Code::InvalidConfiguration,
            format!("configuration file `{}` cannot be written", path.display()),
        )
        .caused_by(&error)),
    }
}

fn create_new(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    // It may come to hold a key.
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(DEFAULT_FILE.as_bytes())
}
