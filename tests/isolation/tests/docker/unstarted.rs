//! Containers that were made and never started, because whoever made them was killed: told at once, cleared up later.

use std::fs;
use std::path::Path;
use std::time::Duration;

use belljar_testkit::{Dockerd, Installation, wait_until};
use serde_json::Value;

use super::IMAGE;

/// For a server that starts and asks an engine, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn containers_that_were_never_started_are_told_and_cleared_up(belljar: &Installation) {
    let daemon = belljar.daemon();
    daemon.import_busybox(IMAGE, &[]).expect("an image");
    let sandbox = belljar.create(&[]);
    let used = sandbox.id().to_owned();
    sandbox.destroy().expect_success();
    let ours = fs::read_to_string(belljar.state().join("docker-installation")).expect("its name");
    let other = "0123456789abcdef";
    // As a killed create leaves them: one that is old, one that somebody may be about to start, one of others that is old.
    let old = make(daemon, &ours, &used);
    let young = make(daemon, &ours, &used.chars().rev().collect::<String>());
    let foreign = make(daemon, other, &used);
    let told = belljar.run(["doctor", "--leaks", "--json"]).text();
    assert!(told.contains(&name(&ours, &used)), "{told}");
    assert!(!told.contains(&name(other, &used)), "{told}");

    belljar.stop_server();
    let aged = daemon.restart(|data| [&old, &foreign].into_iter().for_each(|id| age(data, id)));
    aged.expect("the engine comes back");
    belljar.run(["list"]).expect_success(); // a server that starts
    let cleared = wait_until(PATIENCE, || (!exists(daemon, &old)).then_some(()));
    assert!(cleared.is_some(), "an old one is still there");
    assert!(exists(daemon, &young), "one that may yet be started is gone");
    assert!(exists(daemon, &foreign), "one of others is gone");
    let removed = daemon.command(&["rm", &young, &foreign]).output();
    assert!(removed.is_ok_and(|removed| removed.status.success()));
}

fn name(installation: &str, sandbox: &str) -> String {
    format!("belljar-{installation}-{sandbox}")
}

/// Makes a container with the labels of an installation. Gives its id.
fn make(daemon: &Dockerd, installation: &str, sandbox: &str) -> String {
    let name = name(installation, sandbox);
    let labels =
        [format!("belljar.installation={installation}"), format!("belljar.sandbox={sandbox}")];
    let [one, two] = &labels;
    let create = ["create", "--network", "none", "--name", &name, "--label", one, "--label", two];
    let made = daemon.command(&create).args([IMAGE, "/bin/sh"]).output().expect("docker runs");
    assert!(made.status.success(), "{made:?}");
    String::from_utf8_lossy(&made.stdout).trim().to_owned()
}

fn exists(daemon: &Dockerd, container: &str) -> bool {
    daemon.containers(&format!("id={container}")).trim() == container
}

/// Dates a container back by years, where the engine keeps it.
fn age(data: &Path, container: &str) {
    let file = data.join("containers").join(container).join("config.v2.json");
    let text = fs::read_to_string(&file).expect("the engine's own record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    assert!(record["Created"].is_string(), "{record}");
    record["Created"] = "2020-01-01T00:00:00Z".into();
    fs::write(&file, record.to_string()).expect("a file of our engine");
}
