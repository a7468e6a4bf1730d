//! Runtimes that an engine has besides its own: taken where they work, passed over with the reason where they do not.

use std::fs;
use std::path::PathBuf;

use belljar_testkit::{Installation, Sandbox, run_in_engine, skip};
use serde_json::{Value, json};

use super::walls::{OF_GVISOR, hold};

/// gVisor as the tests have it. It gets no network of the engine's, and leaves limits to it.
fn gvisor() -> Option<PathBuf> {
    let directory = std::env::var_os("BELLJAR_TEST_RUNTIMES")?;
    Some(PathBuf::from(directory).join("runsc")).filter(|path| path.exists())
}

/// Runs a test in an engine that has gVisor, where that works.
fn run_with_gvisor(test: &'static str, body: fn(&Installation)) {
    let Some(path) = gvisor() else { return skip(test, "gVisor is not installed") };
    let arguments = ["--platform=systrap", "--network=none", "--ignore-cgroups"];
    let configuration = json!({"runtimes": {"runsc": {"path": path, "runtimeArgs": arguments}}});
    run_in_engine(test, &configuration, body);
}

/// Why the engine's gVisor cannot be used here.
fn gvisor_fails(belljar: &Installation) -> Option<String> {
    let probes = belljar.run(["probe", "--backend", "docker", "--json"]).json();
    let gvisor = probes.as_array().into_iter().flatten().find(|one| one["runtime"] == "runsc");
    let gvisor = gvisor.unwrap_or(&Value::Null);
    assert_eq!(gvisor["class"], "kernel", "{probes}");
    let reason = gvisor["detail"].as_str().unwrap_or_default().to_owned();
    (gvisor["works"] != true).then_some(reason)
}

#[test]
fn gvisor_of_an_engine_holds_against_the_probes() {
    run_with_gvisor("docker::gvisor_of_an_engine_holds_against_the_probes", |belljar| {
        if let Some(reason) = gvisor_fails(belljar) {
            return skip("docker::gvisor_of_an_engine_holds_against_the_probes", &reason);
        }
        let sandbox = belljar.create(&["--runtime", "runsc"]);
        // By this user the agent's door is passed; as any other a command runs, and the door is closed.
        let root = sandbox.exec_with(&["--user", "root"], ["true"]).expect_code(125);
        assert!(root.stderr.contains("kept for hosts"), "{root}");
        let door = ["ls", "/run/belljar/host"];
        for user in ["user", "1001"] {
            sandbox.exec_with(&["--user", user], ["true"]).expect_success();
            assert_ne!(sandbox.exec_with(&["--user", user], door).code(), 0, "{user}");
        }
        let nodes = ("no wall: mknod(", "nodes in its own memory; opening them is refused");
        let known: Vec<_> = OF_GVISOR.iter().copied().chain([nodes]).collect();
        hold(belljar, &sandbox, &known);
    });
}

#[test]
fn a_stronger_runtime_of_the_engine_is_taken() {
    run_with_gvisor("docker::a_stronger_runtime_of_the_engine_is_taken", |belljar| {
        if let Some(reason) = gvisor_fails(belljar) {
            return skip("docker::a_stronger_runtime_of_the_engine_is_taken", &reason);
        }
        let floored = belljar.create(&["--isolation", "kernel"]);
        expect_wall(&floored, "kernel", "runsc");
        assert_ne!(kernel_of(&floored), own_kernel(), "it is this host's kernel");
        let forced = belljar.create(&["--runtime", "runsc"]);
        expect_wall(&forced, "kernel", "runsc");
        assert_eq!(kernel_of(&forced), kernel_of(&floored));
        let ordinary = belljar.create(&["--runtime", "runc"]);
        expect_wall(&ordinary, "namespace", "runc");
        assert_eq!(kernel_of(&ordinary), own_kernel());

        // Unasked it is taken where it is fast, and whether it is depends on the machine.
        let unasked = belljar.create(&[]).inspect();
        let reason = unasked["isolation"]["reason"].as_str().unwrap_or_default();
        let slow = reason.contains("not `runsc`: it is slow");
        let runtime = &unasked["isolation"]["runtime"];
        assert!(*runtime == "runsc" || (slow && *runtime == "runc"), "{unasked}");

        for (flags, word) in [
            (&["--runtime", "runsc", "--network", "full"][..], "network"),
            (&["--runtime", "kata"], "no runtime `kata`"),
            (&["--isolation", "vm"], "below the floor `vm`"),
        ] {
            let refusal = belljar.try_create(flags).expect_err("it is refused").finished;
            assert!(format!("{refusal}").contains(word), "{flags:?}: {refusal}");
        }
    });
}

#[test]
fn a_runtime_that_does_not_work_is_passed_over_with_the_reason() {
    let test = "docker::a_runtime_that_does_not_work_is_passed_over_with_the_reason";
    let configuration = json!({"runtimes": {"runsc": {"path": "/bin/false"}}});
    run_in_engine(test, &configuration, |belljar| {
        let sandbox = belljar.create(&[]);
        expect_wall(&sandbox, "namespace", "runc");
        let record = sandbox.inspect();
        let reason = record["isolation"]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("not `runsc`: the engine does not start"), "{record}");
        for (flags, code) in [
            (["--runtime", "runsc"], "backend-unavailable"),
            (["--isolation", "kernel"], "not-enforceable"),
        ] {
            let refusal = belljar.try_create(&flags).expect_err("it is refused");
            refusal.expect_code(code);
        }
    });
}

#[track_caller]
fn expect_wall(sandbox: &Sandbox<'_>, class: &str, runtime: &str) {
    let record = sandbox.inspect();
    let isolation = &record["isolation"];
    assert!(isolation["class"] == class && isolation["runtime"] == runtime, "{record}");
}

#[track_caller]
fn kernel_of(sandbox: &Sandbox<'_>) -> String {
    sandbox.exec(["cat", "/proc/version"]).expect_success().text()
}

fn own_kernel() -> String {
    fs::read_to_string("/proc/version").expect("every kernel has it")
}
