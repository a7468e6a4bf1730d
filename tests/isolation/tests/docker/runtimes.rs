//! Runtimes that an engine has besides its own: those that do not work are passed over with the reason.

use belljar_testkit::{Sandbox, run_in_engine};
use serde_json::json;

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
