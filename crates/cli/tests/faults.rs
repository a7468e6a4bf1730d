//! Killed at every point: whatever dies, and wherever, the next command finds a consistent state and nothing is left.
//!
//! A whole life (create with a network, a layer and an ensured command, exec, pause, resume, extend, diff, apply, destroy) is lived with `BELLJAR_FAULT`
//! set to one point after the other, in the engine's process, the launcher and its helpers. The life must notice the
//! death or go on; afterwards, without the fault, a second life must succeed and the leak check must find nothing.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::os::unix::process::ExitStatusExt;

use support::Place;

/// One life of a sandbox. Returns whether anything was killed on the way.
fn live(place: &Place, name: &str, fault: Option<&str>) -> bool {
    let workspace = place.path("workspace");
    let workspace = workspace.to_str().unwrap();
    // With doors where they are made; at other points they would only take time.
    let has_doors = fault.is_some_and(|at| at.starts_with("helper.") || at.starts_with("create."));
    let network = if has_doors { "full" } else { "none" };
    let steps: [&[&str]; 8] = [
        &[
            "create",
            "--name",
            name,
            "--workspace",
            workspace,
            "--workspace-mode",
            "overlay",
            "--ensure",
            "true",
            "--network",
            network,
        ],
        &["exec", name, "--", "sh", "-c", "echo made > /workspace/made"],
        &["pause", name],
        &["resume", name],
        &["extend", name, "--idle-timeout", "1h"],
        &["diff", name],
        &["apply", name],
        &["destroy", name],
    ];
    let mut killed = false;
    for step in steps {
        let mut command = place.command(step);
        if let Some(fault) = fault {
            command.env("BELLJAR_FAULT", fault);
        }
        let output = command.output().unwrap();
        let died = output.status.signal() == Some(9);
        killed |= died || !output.status.success();
        if fault.is_none() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{step:?} without a fault: {complaint}");
        }
    }
    killed
}

fn converges(point: &str, launcher: bool) {
    // Everything happens in the command's own process, so that this is what dies.
    let Some(place) = Place::embedded_with_sandboxes() else { return };
    place.write("workspace/given", "given\n");
    let killed = live(&place, "first", Some(point));
    assert!(killed, "nothing died at {point}");
    // Whatever is left of the first life, its name can be used again and the leak check has nothing to say.
    let _ = place.command(&["destroy", "first"]).output().unwrap();
    live(&place, "first", None);
    let leaks = place.run(&["doctor", "--leaks", "--json"]);
    assert!(
        !leaks.stdout.contains("\"kind\""),
        "left after {point} (launcher: {launcher}): {}",
        leaks.stdout
    );
    let listed = place.run(&["list", "--json"]).exits(0);
    assert_eq!(listed.stdout.trim(), "[]", "after {point}");
    assert_eq!(std::fs::read_to_string(place.path("workspace/given")).unwrap(), "given\n");
}

#[test]
fn the_engine_may_die_at_every_step() {
    for point in belljar_engine::fault::POINTS {
        converges(point, false);
    }
}

#[test]
fn the_launcher_and_its_helpers_may_die_at_every_step() {
    for point in belljar_launcher::fault::POINTS {
        converges(point, true);
    }
}
