//! The host's side of a sandbox's life: whatever is killed, whenever, nothing stays and every next command works.

#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::process::Command;
use std::time::Duration;

use belljar_testkit::leaks::{Scope, Snapshot};
use belljar_testkit::{Installation, PROMPT, matrix, wait_until};
use common::PROBE;
use serde_json::Value;

/// For what takes several commands on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

matrix! {
    alone a_whole_life_leaves_the_machine_as_it_was,
    a_killed_command_leaves_a_working_sandbox,
    everywhere a_killed_create_leaves_nothing,
    a_killed_destroy_is_finished_by_the_next_command,
    walls a_killed_agent_is_noticed,
    what_a_command_leaves_behind_is_not_held_up,
    destroying_twice_is_an_answer,
    destroying_ends_running_commands,
    everywhere refused_sandboxes_leave_nothing,
    whether_parts_were_ready_is_counted,
}

fn a_whole_life_leaves_the_machine_as_it_was(belljar: &Installation) {
    let before = Snapshot::take(&Scope::Machine);
    let sandbox = belljar.create(&[]);
    let during = Snapshot::take(&belljar.scope());
    assert!(!during.is_empty(), "the leak check sees nothing of a living sandbox");
    sandbox.exec(["true"]).expect_success();
    sandbox.destroy().expect_success();
    belljar.run(["run", "--ephemeral", "--", "true"]).expect_success();
    belljar.stop_server();
    before.assert_same(&Scope::Machine);
}

fn whether_parts_were_ready_is_counted(belljar: &Installation) {
    let counted = |result: &str| -> usize {
        let socket = belljar.state().join("server.sock");
        let mut command = Command::new("curl");
        command.args(["-sSf", "--max-time", "60", "--unix-socket"]).arg(socket);
        let output = command.arg("http://localhost/metrics").output().expect("curl runs");
        let metrics = String::from_utf8_lossy(&output.stdout).into_owned();
        let name = format!("belljar_pool_total{{result=\"{result}\"}} ");
        let number = metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        number.unwrap_or_else(|| panic!("no {name}: {metrics}"))
    };
    let mut made = 0;
    let hit = wait_until(PATIENCE, || {
        belljar.create(&[]).destroy().expect_success();
        made += 1;
        (counted("hit") > 0).then_some(())
    });
    assert!(hit.is_some(), "nothing was ready in {made} starts");
    assert_eq!(counted("hit") + counted("miss"), made);
}

fn a_killed_command_leaves_a_working_sandbox(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let mut command = sandbox.start_with(&["--timeout", "30"], [PROBE, "stubborn"]);
    command.line();
    command.kill();
    assert_eq!(sandbox.exec(["echo", "on"]).expect_success().text(), "on\n");
    assert_eq!(sandbox.inspect()["state"], "ready");
}

fn what_a_command_leaves_behind_is_not_held_up(belljar: &Installation) {
    let shared = belljar.make_directory("shared");
    let sandbox = belljar.create(&["--workspace", &shared.display().to_string()]);
    // More than all pipes and windows on the way hold.
    let line = "(yes | head -c 1000000; touch /workspace/done) & exit 0";
    sandbox.exec(["sh", "-c", line]).expect_success();
    // Seen from the host: another command would have the agent look, too.
    let done = wait_until(PROMPT, || shared.join("done").exists().then_some(()));
    assert!(done.is_some(), "what was left behind does not get rid of its output");
}

fn a_killed_create_leaves_nothing(belljar: &Installation) {
    belljar.embed();
    let sandboxes = belljar.state().join("run/sandboxes");
    let is_engine = belljar.mode().is_engine();
    let is_something = || match is_engine {
        true => !belljar.daemon().containers("name=belljar-").is_empty(),
        false => fs::read_dir(&sandboxes).is_ok_and(|mut found| found.next().is_some()),
    };
    let rounds = if is_engine { 4 } else { 10 };
    for round in 0..rounds {
        // Killed as soon as there is something to leave behind, and a little later each time.
        let mut create = belljar.start(["create", "--json"]);
        let begun = wait_until(PROMPT, || is_something().then_some(()));
        assert!(begun.is_some(), "there never was anything");
        let _ = wait_until(Duration::from_millis(2 * round), || None::<()>);
        create.kill();
        // What the launcher was doing when its caller died may take a moment to end.
        let mut unsettled = Vec::new();
        let settled = wait_until(PATIENCE, || {
            let listed = belljar.run(["list", "--json"]).expect_success().json();
            unsettled = listed.as_array().cloned().unwrap_or_default();
            unsettled.retain(|sandbox| sandbox["state"] != "ready");
            unsettled.is_empty().then_some(())
        });
        assert!(settled.is_some(), "neither finished nor rolled back: {unsettled:?}");
        belljar.destroy_all();
        if is_engine {
            expect_no_containers(belljar);
        }
        belljar.assert_nothing_left();
    }
}

/// An engine goes on making what a killed client asked for, so a container may come to be after everybody looked; then it
/// is found by who looks for leaks, and removed.
fn expect_no_containers(belljar: &Installation) {
    let mut left = String::new();
    let gone = wait_until(PATIENCE, || {
        belljar.run(["doctor", "--leaks", "--fix"]);
        left = belljar.daemon().containers("name=belljar-");
        left.is_empty().then_some(())
    });
    assert!(gone.is_some(), "containers are left: {left}");
}

fn a_killed_destroy_is_finished_by_the_next_command(belljar: &Installation) {
    belljar.embed();
    for round in 0..10 {
        let sandbox = belljar.create(&[]);
        let mut destroy = belljar.start(["destroy", sandbox.id()]);
        let _ = wait_until(Duration::from_millis(2 * round), || None::<()>);
        destroy.kill();
        let listed = belljar.run(["list", "--json"]).expect_success().json();
        let ids =
            listed.as_array().into_iter().flatten().filter_map(|one| one["sandbox_id"].as_str());
        let known = ids.filter(|id| *id == sandbox.id()).count();
        if known == 0 {
            belljar.assert_nothing_left();
        } else {
            sandbox.destroy().expect_success();
        }
    }
}

fn a_killed_agent_is_noticed(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let (agent, start) = sandbox.agent();
    let running = sandbox.start_with(&["--timeout", "30"], [PROBE, "stubborn"]);
    let killed = Command::new("kill").args(["-KILL", &agent.to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let gone = wait_until(PROMPT, || (!sandbox.agent_is((agent, start))).then_some(()));
    assert!(gone.is_some(), "the agent outlived SIGKILL from the host");
    assert_ne!(running.finish().code(), 0, "the command cannot have ended well");
    let refused = sandbox.exec(["true"]);
    assert_eq!(refused.code(), 125, "{refused}");
    // Its files go with the next look, without anybody asking for it.
    belljar.run(["list"]).expect_success();
    belljar.assert_nothing_left();
}

fn destroying_twice_is_an_answer(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    sandbox.destroy().expect_success();
    let again = sandbox.destroy();
    assert!([0, 125].contains(&again.code()), "{again}");
    let other = belljar.run(["destroy", "nosuchsandbox"]).expect_code(125);
    assert!(other.stderr.contains("nosuchsandbox"), "{other}");
}

fn destroying_ends_running_commands(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let mut one = sandbox.start_with(&["--timeout", "50"], [PROBE, "stubborn"]);
    let mut other = sandbox.start_with(&["--timeout", "50"], [PROBE, "stubborn"]);
    one.line();
    other.line();
    sandbox.destroy().expect_success();
    for command in [one, other] {
        let finished = command.finish();
        assert_ne!(finished.code(), 0, "{finished}");
        assert!(finished.time < Duration::from_secs(20), "it took {:?}", finished.time);
    }
}

/// Everything that can be wrong about a request: a code, a remedy, and nothing made.
fn refused_sandboxes_leave_nothing(belljar: &Installation) {
    let missing = belljar.work().join("missing").display().to_string();
    let taken = belljar.create(&["--name", "taken"]);
    let (absent, shadow) = (format!("{missing}:/data"), "/etc:/data:ro".to_owned());
    let rootfs = format!("rootfs:{missing}");
    let cases: &[(&[&str], &str)] = &[
        (&["--template", "nothing"], "template-not-found"),
        (&["--template", &rootfs], "mount-source-unusable"),
        (&["--workspace", &missing], "mount-source-unusable"),
        (&["--mount", &absent], "mount-source-unusable"),
        (&["--mount", &shadow], "mount-source-protected"),
        (&["--memory", "-1"], "invalid-limit"),
        (&["--memory", "0"], "invalid-limit"),
        (&["--memory", "999999999999g"], "invalid-limit"),
        (&["--pids", "0"], "invalid-limit"),
        (&["--cpus", "many"], "invalid-limit"),
        (&["--name", "two\nlines"], "invalid-name"),
        (&["--name", "taken"], "sandbox-exists"),
        (&["--network", "allowlist"], "invalid-network-rule"),
        (&["--allow", "example.com"], "conflicting-options"),
        (&["--backend", "local"], "isolation-not-waived"),
    ];
    for (flags, code) in cases {
        match belljar.try_create(flags) {
            Ok(made) => panic!("{flags:?} made sandbox {}", made.id()),
            Err(refusal) => {
                refusal.expect_code(code);
                let remedy = refusal.finished.text() + &refusal.finished.stderr;
                let told = remedy.contains("remedy") || remedy.contains("hint");
                assert!(told, "{flags:?}: no remedy in {}", refusal.finished);
            }
        }
    }
    let listed = belljar.run(["list", "--json"]).expect_success().json();
    let ids: Vec<&str> = listed
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|sandbox: &Value| sandbox["sandbox_id"].as_str())
        .collect();
    assert_eq!(ids, [taken.id()], "only the one that was not refused");
}
