//! `belljar doctor`: what this host can and cannot enforce, and what to change.
//!
//! Two views side by side: what the backends found by running a sandbox, and what the kernel's own files say. The
//! first is the truth; the second gives the exact remedy.

mod cgroups;
mod checks;
mod host;

use std::path::Path;

use belljar_api::v1;
use serde::Serialize;

use self::host::Host;
use super::{Done, probe};
use crate::args::DoctorArgs;
use crate::context::Context;
use crate::failure::{EXIT_FAILURE, Failure};
use crate::output::{Table, print, print_json, rules_table};

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) state: State,
    pub(crate) detail: String,
    /// A command, where one closes the gap.
    pub(crate) remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Ok,
    /// Works, by a weaker mechanism.
    Weaker,
    Missing,
}

#[derive(Serialize)]
struct Report {
    backends: Vec<v1::Probe>,
    host: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaks: Option<LeakShape>,
}

#[derive(Serialize)]
struct LeakShape {
    found: Vec<v1::Leak>,
    removed: Vec<v1::Leak>,
}

pub(crate) async fn doctor(context: &Context, args: &DoctorArgs) -> Result<Done, Failure> {
    let state_dir = context.settings.state_dir()?;
    let (backends, leaks) = context
        .with_client(async |mut client| {
            // Leaks first: what the probes make is still being removed when they answer.
            let leaks = match args.leaks {
                true => {
                    let request = v1::FindLeaksRequest { fix: args.fix };
                    Some(client.system.find_leaks(request).await?.into_inner().into())
                }
                false => None,
            };
            Ok((probe::all(&client).await?, leaks))
        })
        .await?;
    let left_over = leaks.as_ref().is_some_and(LeakShape::is_left_over);
    let verdict = match probe::verdict(&backends) {
        Done::Success if left_over => Done::Status(EXIT_FAILURE),
        verdict => verdict,
    };
    let report = Report { backends, host: examine(&state_dir), leaks };
    if args.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    Ok(verdict)
}

/// Looks at this host.
pub(crate) fn examine(state_dir: &Path) -> Vec<Finding> {
    checks::all(&Host::this(), state_dir)
}

fn render(report: &Report) -> String {
    let mut text = String::from("backends\n");
    text.push_str(&indented(&probe::render(&report.backends)));
    text.push('\n');
    text.push_str(&indented(&probe::render_hints(&report.backends)));
    for probe in &report.backends {
        if probe.works && !probe.enforcement.is_empty() {
            text.push_str(&format!("\n{}, with default limits\n", probe::name(probe)));
            text.push_str(&rules_table(&probe.enforcement).render(2));
        }
    }
    text.push_str("\nhost\n");
    for finding in &report.host {
        text.push_str(&indented(&finding.render()));
    }
    if let Some(leaks) = &report.leaks {
        text.push_str("\nleft over\n");
        text.push_str(&leaks.render());
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

// === impl Finding ===

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: State::Ok, detail: detail.into(), remedy: None }
    }

    fn gap(
        check: &'static str,
        state: State,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, state, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn is_gap(&self) -> bool {
        self.state != State::Ok
    }

    pub(crate) fn render(&self) -> String {
        let state = match self.state {
            State::Ok => "ok",
            State::Weaker => "weaker",
            State::Missing => "missing",
        };
        let mut text = format!("{:<9}{}: {}\n", state, self.check, self.detail);
        if let Some(remedy) = &self.remedy {
            text.push_str(&format!(
                "{:<9}hint: {}\n",
                "",
                remedy.replace('\n', "\n               ")
            ));
        }
        text
    }
}

// === impl LeakShape ===

impl From<v1::FindLeaksResponse> for LeakShape {
    fn from(report: v1::FindLeaksResponse) -> Self {
        Self { found: report.found, removed: report.removed }
    }
}

impl LeakShape {
    fn is_left_over(&self) -> bool {
        self.removed.len() < self.found.len()
    }

    fn render(&self) -> String {
        if self.found.is_empty() {
            return "  nothing\n".to_owned();
        }
        let mut table = Table::new(&["KIND", "NAME", "SANDBOX"]);
        for leak in &self.found {
            let sandbox = leak.sandbox_id.as_deref().unwrap_or_default();
            table.row([leak.kind.as_str(), &leak.name, sandbox]);
        }
        let verdict = match (self.is_left_over(), self.removed.is_empty()) {
            (false, _) => "  all removed\n",
            (true, true) => "  hint: `belljar doctor --leaks --fix` removes these\n",
            (true, false) => "  some could not be removed; BELLJAR_LOG=warn tells why\n",
        };
        table.render(2) + verdict
    }
}
