//! Runs the probe in a sandbox and judges what it reports.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;

use belljar_isolation::Report;
use belljar_testkit::{Finished, Sandbox};
use serde_json::Value;

pub(crate) const PROBE: &str = "/probe/belljar-probe";

/// Workloads run as an ordinary user unless asked; root of the user namespace must be held by the same walls.
pub(crate) const USERS: [&str; 2] = ["user", "root"];

/// Runs one probe as the default user.
#[track_caller]
pub(crate) fn probe(sandbox: &Sandbox<'_>, name: &str, arguments: &[&str]) -> Report {
    report(&run(sandbox, &[], name, arguments))
}

/// Runs one probe with flags for `belljar exec` and does not judge how it ended.
#[track_caller]
pub(crate) fn run(
    sandbox: &Sandbox<'_>,
    flags: &[&str],
    name: &str,
    arguments: &[&str],
) -> Finished {
    sandbox.exec_with(flags, [PROBE, name].iter().chain(arguments))
}

/// The report of a probe that could run.
#[track_caller]
pub(crate) fn report(finished: &Finished) -> Report {
    assert_eq!(finished.code(), 0, "the probe could not run: {finished}");
    Report::parse(&finished.text()).unwrap_or_else(|error| panic!("{error}\n{finished}"))
}

/// Fails the test unless every attempt met a wall and every twin worked.
#[track_caller]
pub(crate) fn expect_sealed(report: &Report, context: &str) {
    let violations = report.violations();
    assert!(violations.is_empty(), "{context}:\n{}", violations.join("\n"));
}

/// Runs one probe as each kind of user, expects it sealed, and gives the reports with their users.
#[track_caller]
pub(crate) fn expect_sealed_for_all(
    sandbox: &Sandbox<'_>,
    name: &str,
    arguments: &[&str],
) -> Vec<(&'static str, Report)> {
    let reports: Vec<_> = USERS
        .into_iter()
        .filter_map(|user| Some((user, probe_as(sandbox, user, name, arguments)?)))
        .collect();
    for (user, report) in &reports {
        expect_sealed(report, &format!("as {user}"));
    }
    reports
}

/// Runs one probe as `user`. `None` where the sandbox has only one user: then there is no root to hold.
#[track_caller]
pub(crate) fn probe_as(
    sandbox: &Sandbox<'_>,
    user: &str,
    name: &str,
    arguments: &[&str],
) -> Option<Report> {
    let finished = run(sandbox, &["--user", user], name, arguments);
    let single = user == "root" && finished.code() == 125 && finished.stderr.contains("user");
    if single && has_one_user(sandbox) { None } else { Some(report(&finished)) }
}

/// Whether the sandbox's user namespace maps a single id, as the host's kernel shows it.
pub(crate) fn has_one_user(sandbox: &Sandbox<'_>) -> bool {
    if sandbox.mode().is_engine() {
        return true; // its agent has no privilege to be anyone else
    }
    let map =
        fs::read_to_string(format!("/proc/{}/uid_map", sandbox.agent().0)).unwrap_or_default();
    map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok()).sum::<u64>()
        == 1
}

/// A fact that is a list of words.
#[track_caller]
pub(crate) fn words(report: &Report, name: &str) -> Vec<String> {
    let list = report.facts.get(name).and_then(Value::as_array);
    let list = list.unwrap_or_else(|| panic!("no list `{name}` in {report}"));
    list.iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
}

/// A fact that is a number.
#[track_caller]
pub(crate) fn number(report: &Report, name: &str) -> u64 {
    report.number(name).unwrap_or_else(|| panic!("no number `{name}` in {report}"))
}

/// A fact that is text.
#[track_caller]
pub(crate) fn text<'a>(report: &'a Report, name: &str) -> &'a str {
    report
        .facts
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no `{name}` in {report}"))
}

/// Contents of files that exist, to be compared before and after.
pub(crate) fn contents(paths: &[&str]) -> Vec<(String, Option<String>)> {
    paths.iter().map(|path| ((*path).to_owned(), fs::read_to_string(path).ok())).collect()
}
