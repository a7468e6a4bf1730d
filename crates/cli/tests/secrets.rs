//! Secrets go in by every way, and come out by none.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::{Answer, Place};

const VALUE: &str = "hunter2-is-the-value";

fn refused(answer: &Answer, why: &str) {
    assert!(answer.stderr.contains(why), "{}", answer.stderr);
    assert!(!answer.stderr.contains("hunter2"), "{}", answer.stderr);
}

#[test]
fn values_go_in_and_never_come_out() {
    let place = Place::embedded();
    place.write("value", &format!("{VALUE}\n"));
    let file = place.path("value");
    let variables = [("TEST_VALUE", VALUE)];
    place.run_input(&["secrets", "set", "by-input"], VALUE.as_bytes()).exits(0).says("");
    place.run_input(&["secrets", "set", "by-dash", "-"], VALUE.as_bytes()).exits(0).says("");
    let words = ["secrets", "set", "by-file", "--from-file", file.to_str().unwrap(), "--json"];
    let set = place.run(&words).exits(0).json();
    assert_eq!((&set["name"], &set["tenant"]), (&"by-file".into(), &"default".into()));
    place.run_with(&["secrets", "set", "by-env", "--env", "TEST_VALUE"], &variables).exits(0);

    let listed = place.run(&["secrets", "list", "--json"]).exits(0).json();
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["by-dash", "by-env", "by-file", "by-input"]);
    assert!(!listed.to_string().contains("hunter2"));
    place.run(&["secrets", "rm", "by-env"]).exits(0);
    refused(&place.run(&["secrets", "rm", "by-env"]).exits(125), "there is no secret `by-env`");

    // Not even to whoever reads the whole state directory.
    let mut left = vec![place.state_dir()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                assert!(!bytes.windows(7).any(|it| it == b"hunter2"), "{:?}", entry.path());
            }
        }
    }
}

#[test]
fn what_is_no_secret_is_refused_without_repeating_it() {
    let place = Place::embedded();
    refused(&place.run_input(&["secrets", "set", "a/b"], b"x").exits(125), "contains `/`");
    refused(&place.run_input(&["secrets", "set", "empty"], b"\n").exits(125), "is empty");
    let long = VALUE.repeat(5000);
    let answer = place.run_input(&["secrets", "set", "long"], long.as_bytes()).exits(125);
    refused(&answer, "longer than 64 KiB");
    refused(&place.run(&["secrets", "set", "x", "--env", "NO_SUCH"]).exits(125), "is not set");
    let typed = place.run(&["secrets", "set", "x", VALUE]).exits(125);
    refused(&typed, "not taken from the command line");
}
