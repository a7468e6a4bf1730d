//! What was chosen, why, and what enforces each rule.

use belljar_backend::{Enforcement, Subject};
use belljar_engine::{Explanation, Sandbox};
use serde::Serialize;

use super::{Table, say};

/// An explanation, for programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ExplainShape {
    pub(crate) requested_backend: String,
    pub(crate) chosen_backend: String,
    pub(crate) reason: String,
    pub(crate) class: &'static str,
    pub(crate) template: String,
    pub(crate) template_reason: String,
    pub(crate) network_mode: String,
    pub(crate) network_enforcement: String,
    pub(crate) writable_paths: Vec<String>,
    pub(crate) timeout_secs: u64,
    pub(crate) stripped_environment: Vec<String>,
    pub(crate) rules: Vec<Enforcement>,
}

impl From<Explanation> for ExplainShape {
    fn from(explanation: Explanation) -> Self {
        Self {
            requested_backend: explanation.requested_backend,
            chosen_backend: explanation.chosen_backend,
            reason: explanation.reason,
            class: explanation.class.as_str(),
            template: explanation.template,
            template_reason: explanation.template_reason,
            network_mode: explanation.network_mode.to_string(),
            network_enforcement: explanation.network_enforcement,
            writable_paths: explanation.writable_paths,
            timeout_secs: explanation.timeout_secs,
            stripped_environment: explanation.stripped_environment,
            rules: explanation.rules,
        }
    }
}

/// A sandbox that exists explains itself: what holds was settled when it was created.
impl From<&Sandbox> for ExplainShape {
    fn from(sandbox: &Sandbox) -> Self {
        let isolation = &sandbox.isolation;
        Self {
            requested_backend: isolation.backend.clone(),
            chosen_backend: isolation.backend.clone(),
            reason: "the sandbox exists and runs there".to_owned(),
            class: isolation.class.as_str(),
            template: sandbox.template.clone(),
            template_reason: "the sandbox was created from it".to_owned(),
            network_mode: isolation.network_mode.to_string(),
            network_enforcement: isolation.network_enforcement.clone(),
            writable_paths: isolation.writable_paths.clone(),
            timeout_secs: isolation.timeout_secs,
            stripped_environment: Vec::new(),
            rules: sandbox.enforcement.clone(),
        }
    }
}

/// Writes the explanation for people to standard error.
pub(crate) fn print_explanation(explanation: &ExplainShape) {
    say(&render(explanation));
}

/// The rules with their mechanisms, as a table.
pub(crate) fn rules_table(rules: &[Enforcement]) -> Table {
    let mut table = Table::new(&["WHAT", "RULE", "HOLDS BY", ""]);
    for rule in rules {
        let weaker = if rule.full { " " } else { "(weaker mechanism)" };
        table.row([word(rule.subject), &rule.rule, &rule.mechanism, weaker]);
    }
    table
}

const fn word(subject: Subject) -> &'static str {
    match subject {
        Subject::Filesystem => "files",
        Subject::Memory => "memory",
        Subject::Cpu => "cpu",
        Subject::Pids => "pids",
        Subject::Disk => "disk",
        Subject::Network => "network",
        Subject::Syscalls => "system calls",
        Subject::Identity => "identity",
        Subject::Processes => "processes",
        Subject::Programs => "programs",
    }
}

fn render(explanation: &ExplainShape) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name:<12}{value}\n"));
    };
    line(
        "backend",
        &format!(
            "{} (asked for {}: {})",
            explanation.chosen_backend, explanation.requested_backend, explanation.reason
        ),
    );
    line("isolation", explanation.class);
    line("template", &format!("{} ({})", explanation.template, explanation.template_reason));
    line("network", &format!("{} ({})", explanation.network_mode, explanation.network_enforcement));
    line("writable", &explanation.writable_paths.join(" "));
    line("timeout", &format!("{} s", explanation.timeout_secs));
    if !explanation.stripped_environment.is_empty() {
        line("not passed", &explanation.stripped_environment.join(" "));
    }
    text.push_str("rules\n");
    text.push_str(&rules_table(&explanation.rules).render(2));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_reads_from_choice_to_mechanism() {
        let explanation = ExplainShape {
            requested_backend: "auto".into(),
            chosen_backend: "native".into(),
            reason: "first that works".into(),
            class: "namespace",
            template: "host".into(),
            template_reason: "the command uses `python3`".into(),
            network_mode: "none".into(),
            network_enforcement: "empty network namespace".into(),
            writable_paths: vec!["/tmp".into(), "/workspace".into()],
            timeout_secs: 60,
            stripped_environment: vec!["LD_PRELOAD".into()],
            rules: vec![
                Enforcement {
                    subject: Subject::Memory,
                    rule: "512 MiB".into(),
                    mechanism: "cgroup v2 memory.max".into(),
                    full: true,
                },
                Enforcement {
                    subject: Subject::Pids,
                    rule: "256 processes".into(),
                    mechanism: "RLIMIT_NPROC".into(),
                    full: false,
                },
            ],
        };
        let expected = "\
backend     native (asked for auto: first that works)
isolation   namespace
template    host (the command uses `python3`)
network     none (empty network namespace)
writable    /tmp /workspace
timeout     60 s
not passed  LD_PRELOAD
rules
  WHAT    RULE           HOLDS BY
  memory  512 MiB        cgroup v2 memory.max
  pids    256 processes  RLIMIT_NPROC          (weaker mechanism)
";
        assert_eq!(render(&explanation), expected);
    }
}
