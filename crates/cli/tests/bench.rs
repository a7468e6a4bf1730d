//! A bench leaves nothing behind, however it ends.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::Place;

/// Starts a bench that takes long, with a place of its own for directories.
fn begin(place: &Place, words: &[&str]) -> Child {
    std::fs::create_dir_all(place.path("temporary")).unwrap();
    place.command(words).env("TMPDIR", place.path("temporary")).spawn().unwrap()
}

fn ask(bench: &Child, signal: Signal) {
    kill_process(Pid::from_child(bench), signal).unwrap();
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn directories(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path("temporary")).unwrap();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// The process of the server that is measured.
fn server(directory: &std::path::Path) -> Option<u32> {
    let directory = directory.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = words.split(|byte| *byte == 0);
        let serves = words.nth(1) == Some(b"serve");
        (serves && words.any(|word| word == directory.as_bytes())).then_some(pid)
    })
}

/// The state of the server that is measured, once it has sandboxes.
fn measured(place: &Place) -> PathBuf {
    let mut found = None;
    wait_until("a server with sandboxes", || {
        found = directories(place).into_iter().find(|path| {
            let sandboxes = std::fs::read_dir(path.join("run/sandboxes"));
            sandboxes.is_ok_and(|mut entries| entries.next().is_some())
        });
        found.is_some()
    });
    found.unwrap()
}

fn sandboxes(place: &Place) -> usize {
    place.run(&["list", "--json"]).exits(0).json().as_array().unwrap().len()
}

fn assert_nothing_left(place: &Place) {
    assert_eq!(sandboxes(place), 0);
    let leaks = place.run(&["doctor", "--leaks", "--json"]);
    assert!(!leaks.stdout.contains("\"kind\""), "{}", leaks.stdout);
}

#[test]
fn a_bench_that_is_asked_to_end_removes_its_sandboxes() {
    let Some(place) = Place::embedded_with_sandboxes() else { return };
    let mut bench = begin(&place, &["bench", "idle", "--count", "4000"]);
    wait_until("a sandbox", || sandboxes(&place) > 0);
    ask(&bench, Signal::TERM);
    assert_eq!(bench.wait().unwrap().code(), Some(143));
    assert_nothing_left(&place);
}

#[test]
fn a_bench_that_is_asked_to_end_removes_its_server() {
    let Some(place) = Place::embedded_with_sandboxes() else { return };
    let mut bench = begin(&place, &["bench", "api", "--count", "100000"]);
    measured(&place);
    ask(&bench, Signal::INT);
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    assert_eq!(directories(&place), Vec::<PathBuf>::new());
    assert_nothing_left(&place);
}

#[test]
fn the_next_bench_removes_what_one_that_was_killed_left() {
    let Some(place) = Place::embedded_with_sandboxes() else { return };
    let mut bench = begin(&place, &["bench", "api", "--count", "100000"]);
    let directory = measured(&place);
    ask(&bench, Signal::KILL);
    assert_eq!(bench.wait().unwrap().signal(), Some(9));
    assert!(server(&directory).is_some(), "it goes on by itself");
    let mut bench = begin(&place, &["bench", "idle", "--count", "4000"]);
    // The first one does not stay, and the last one may be half made.
    wait_until("sandboxes", || sandboxes(&place) > 2);
    // What the first one left was removed before.
    assert!(!directory.exists());
    assert_eq!(server(&directory), None);
    ask(&bench, Signal::KILL);
    bench.wait().unwrap();
    assert!(sandboxes(&place) > 0);
    let next = begin(&place, &["bench", "idle", "--count", "10", "--json"]);
    let output = next.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_left(&place);
}
