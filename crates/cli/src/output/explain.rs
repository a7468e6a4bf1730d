//! What was chosen, why, and what enforces each rule.

use belljar_api::v1::{Enforcement, Explanation};

use super::{Table, say};

/// Writes the explanation for people to standard error.
pub(crate) fn print_explanation(explanation: &Explanation) {
    say(&render(explanation));
}

/// The rules with their mechanisms, as a table.
pub(crate) fn rules_table(rules: &[Enforcement]) -> Table {
    let mut table = Table::new(&["WHAT", "RULE", "HOLDS BY", ""]);
    for rule in rules {
        let weaker = if rule.full { " " } else { "(weaker mechanism)" };
        table.row([word(&rule.subject), &rule.rule, &rule.mechanism, weaker]);
    }
    table
}

/// As people say it.
fn word(subject: &str) -> &str {
    match subject {
        "filesystem" => "files",
        "syscalls" => "system calls",
        other => other,
    }
}

fn render(explanation: &Explanation) -> String {
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
    if let Some(runtime) = &explanation.runtime {
        let platform = explanation.platform.as_deref();
        line("runtime", &platform.map_or(runtime.clone(), |on| format!("{runtime} on {on}")));
    }
    line("isolation", &explanation.class);
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
        let explanation = Explanation {
            requested_backend: "auto".into(),
            chosen_backend: "native".into(),
            reason: "first that works".into(),
            class: "namespace".into(),
            template: "host".into(),
            template_reason: "the command uses `python3`".into(),
            network_mode: "none".into(),
            network_enforcement: "empty network namespace".into(),
            writable_paths: vec!["/tmp".into(), "/workspace".into()],
            timeout_secs: 60,
            stripped_environment: vec!["LD_PRELOAD".into()],
            runtime: Some("runsc".into()),
            platform: Some("systrap".into()),
            rules: vec![
                Enforcement {
                    subject: "memory".into(),
                    rule: "512 MiB".into(),
                    mechanism: "cgroup v2 memory.max".into(),
                    full: true,
                },
                Enforcement {
                    subject: "pids".into(),
                    rule: "256 processes".into(),
                    mechanism: "RLIMIT_NPROC".into(),
                    full: false,
                },
            ],
        };
        let expected = "\
backend     native (asked for auto: first that works)
runtime     runsc on systrap
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
