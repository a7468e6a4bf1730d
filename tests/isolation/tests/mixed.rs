//! Every wall that works here at once, under one server: creating, running and destroying beside each other, and
//! nothing of it stays.

#![forbid(unsafe_code)]

use std::thread;

use belljar_testkit::{Installation, Mode, Turn, run_in};
use serde_json::Value;

/// Of each wall, at the same time.
const WORKERS: usize = 2;
/// One after the other, by each worker.
const ROUNDS: usize = 2;

#[test]
fn all_walls_work_beside_each_other() {
    let docker = Mode::Docker.unavailable().is_none();
    let mode = if docker { Mode::Docker } else { Mode::Root };
    run_in(mode, "mixed::all_walls_work_beside_each_other", Turn::shared, mixed_load);
}

/// A server has one engine.
#[test]
fn all_walls_work_beside_podman() {
    run_in(Mode::Podman, "mixed::all_walls_work_beside_podman", Turn::shared, mixed_load);
}

fn mixed_load(belljar: &Installation) {
    belljar.find_runtimes();
    let walls = walls(belljar);
    for needed in ["native", "docker"] {
        let is_there = walls.iter().any(|wall| wall.iter().any(|word| word == needed));
        assert!(is_there || needed == "docker" && !belljar.mode().is_engine(), "only {walls:?}");
    }
    // One of each lives through it all.
    let mut lasting = Vec::new();
    for (index, wall) in walls.iter().enumerate() {
        let flags: Vec<&str> = wall.iter().map(String::as_str).collect();
        let sandbox = belljar.create(&flags);
        let line = format!("echo {index} > /workspace/mark");
        sandbox.exec(["sh", "-c", &line]).expect_success();
        lasting.push(sandbox);
    }
    thread::scope(|scope| {
        for wall in &walls {
            for worker in 0..WORKERS {
                scope.spawn(move || work(belljar, wall, worker));
            }
        }
    });
    for (index, sandbox) in lasting.iter().enumerate() {
        let mark = sandbox.exec(["cat", "/workspace/mark"]).expect_success();
        assert_eq!(mark.text(), format!("{index}\n"), "{:?}", walls[index]);
    }
    let listed = belljar.run(["list", "--json"]).expect_success().json();
    let left = listed.as_array().into_iter().flatten().count();
    assert_eq!(left, lasting.len(), "{listed}");
}

fn work(belljar: &Installation, wall: &[String], worker: usize) {
    for round in 0..ROUNDS {
        let flags: Vec<&str> = wall.iter().map(String::as_str).collect();
        let sandbox = belljar.create(&flags);
        let line =
            format!("test ! -e /workspace/mark && echo {worker}-{round} | tee /workspace/mark");
        let said = sandbox.exec(["sh", "-c", &line]).expect_success();
        assert_eq!(said.text(), format!("{worker}-{round}\n"), "{wall:?}");
        sandbox.exec(["sh", "-c", "exit 3"]).expect_code(3);
        sandbox.destroy().expect_success();
    }
}

/// The flags for each backend, and each runtime of it, that a probe found to work. A machine under load may miss a probe's
/// limit of time; what is left of the walls is tested then.
fn walls(belljar: &Installation) -> Vec<Vec<String>> {
    let probes = belljar.run(["probe", "--json"]).json();
    let mut walls: Vec<Vec<String>> = Vec::new();
    for probe in probes.as_array().into_iter().flatten().filter(|probe| probe["works"] == true) {
        let mut flags = vec!["--backend".to_owned()];
        match (probe["backend"].as_str(), &probe["runtime"]) {
            (Some("oci"), Value::String(runtime)) => {
                flags.extend(["oci".to_owned(), "--runtime".to_owned(), runtime.clone()]);
            }
            (Some(backend @ ("native" | "docker")), _) => flags.push(backend.to_owned()),
            _ => continue,
        }
        if !walls.contains(&flags) {
            walls.push(flags);
        }
    }
    walls
}
