//! Files inside a sandbox, from the outside.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::Place;

fn place() -> Option<Place> {
    let place = Place::with_sandboxes()?;
    place.run(&["create", "--name", "f"]).exits(0);
    Some(place)
}

#[test]
fn a_file_is_written_read_changed_and_removed() {
    let Some(place) = place() else { return };
    let bytes: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    place
        .run_input(&["files", "write", "f", "/tmp/a/b", "--parents", "--mode", "600"], &bytes)
        .exits(0);
    let mut child = place.command(&["files", "cat", "f", "/tmp/a/b"]).spawn().unwrap();
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().unwrap(), &mut read).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(read == bytes, "{} bytes came back", read.len());
    place.run_input(&["files", "write", "f", "/tmp/t"], b"0123456789").exits(0);
    place.run_input(&["files", "write", "f", "/tmp/t", "--append"], b"ab").exits(0);
    place
        .run(&["files", "cat", "f", "/tmp/t", "--offset", "8", "--length", "3"])
        .says("89a")
        .exits(0);
    let again =
        place.run_input(&["files", "write", "f", "/tmp/t", "--new", "--json"], b"").exits(125);
    assert_eq!(again.json()["error"]["code"], "file-exists");
    let stat = place.run(&["files", "stat", "f", "/tmp/a/b", "--json"]).exits(0).json();
    assert_eq!((&stat["size"], &stat["mode"]), (&700_000.into(), &0o600.into()));
    place.run(&["files", "chmod", "f", "/tmp/t", "640"]).exits(0);
    place.run(&["files", "mkdir", "f", "/tmp/x/y", "--parents"]).exits(0);
    place.run(&["files", "mv", "f", "/tmp/t", "/tmp/x/y/t"]).exits(0);
    place.run(&["files", "cp", "f", "/tmp/x", "/tmp/z", "--recursive"]).exits(0);
    let list = place.run(&["files", "ls", "f", "/tmp/z", "--depth", "3", "--json"]).exits(0).json();
    let paths: Vec<&str> =
        list.as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert_eq!(paths, ["y", "y/t"]);
    assert!(place.run(&["files", "ls", "f", "/tmp/z/y"]).exits(0).stdout.contains("-0640"));
    let hits =
        place.run(&["files", "search", "f", "/tmp", "--name", "t", "--content", "9ab"]).exits(0);
    assert_eq!(hits.stdout.lines().count(), 2, "{}", hits.stdout);
    let full = place.run(&["files", "rm", "f", "/tmp/z", "--json"]).exits(125).json();
    assert!(full["error"]["code"].is_string());
    place.run(&["files", "rm", "f", "/tmp/z", "--recursive"]).exits(0);
    let gone = place.run(&["files", "stat", "f", "/tmp/z", "--json"]).exits(125).json();
    assert_eq!(gone["error"]["code"], "file-not-found");
}

#[test]
fn changes_are_told_as_they_happen() {
    use std::io::{BufRead, BufReader};
    let Some(place) = place() else { return };
    let mut watcher = place.command(&["files", "watch", "f", "/tmp", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["kind"], "watching");
    place.run_input(&["files", "write", "f", "/tmp/new"], b"x").exits(0);
    while next()["path"] != "new" {}
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn files_and_directories_are_copied_both_ways() {
    let Some(place) = place() else { return };
    place.write("tree/a.txt", "a\n");
    place.write("tree/sub/b.txt", "b\n");
    std::os::unix::fs::symlink("a.txt", place.path("tree/link")).unwrap();
    // One of zeros that are not on the disk.
    std::fs::File::create(place.path("tree/sub/holes")).unwrap().set_len(1 << 20).unwrap();
    place.run(&["cp", "tree/a.txt", "f:/tmp/"]).exits(0);
    place.run(&["exec", "f", "--", "cat", "/tmp/a.txt"]).says("a\n").exits(0);
    let copied = place.run(&["cp", "tree", "f:/tmp", "--json"]).exits(0).json();
    assert_eq!((&copied["files"], &copied["links"]), (&3.into(), &1.into()));
    place
        .run(&["exec", "f", "--", "cat", "/tmp/tree/sub/b.txt", "/tmp/tree/link"])
        .says("b\na\n")
        .exits(0);
    place.run(&["exec", "f", "--cmd", "wc -c < /tmp/tree/sub/holes"]).says("1048576\n").exits(0);
    place
        .run(&["exec", "f", "--cmd", "mkfifo /tmp/tree/pipe; chmod 4755 /tmp/tree/a.txt"])
        .exits(0);
    place.run(&["cp", "f:/tmp/tree", "back"]).exits(0);
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!((read("back/sub/b.txt"), read("back/link")), ("b\n".into(), "a\n".into()));
    assert!(std::fs::read(place.path("back/sub/holes")).unwrap() == vec![0; 1 << 20]);
    assert!(!place.path("back/pipe").exists());
    place.run(&["cp", "f:/tmp/a.txt", "."]).exits(0);
    assert_eq!(read("a.txt"), "a\n");
    // With a slash it is a directory on either side, whether it was there or not.
    place.run(&["cp", "f:/tmp/a.txt", "made/for/"]).exits(0);
    assert_eq!(read("made/for/a.txt"), "a\n");
    place.run(&["cp", "f:/tmp/tree", "made/too/"]).exits(0);
    place.run(&["cp", "made/too/tree", "f:/tmp/made/"]).exits(0);
    place.run(&["cp", "f:/tmp/made/tree/a.txt", "-"]).says("a\n").exits(0);
    place.run(&["cp", "f:/tmp/a.txt", "-"]).says("a\n").exits(0);
    place.run_input(&["cp", "-", "f:/tmp/in"], b"from standard input").exits(0);
    place.run(&["cp", "f:/tmp/in", "-"]).says("from standard input").exits(0);
    let missing = place.run(&["cp", "--json", "f:/tmp/none", "x"]).exits(125).json();
    assert_eq!(missing["error"]["code"], "file-not-found");
    assert!(!place.path("x").exists());
}

/// Long ones, and such as are no text.
#[test]
fn any_name_is_copied_both_ways() {
    use std::os::unix::ffi::OsStringExt;
    let Some(place) = place() else { return };
    let names = [
        [0xff; 120].to_vec(),
        [&[b'd'; 10][..], b"\xff", &[b'd'; 30], b"/", &[b'e'; 40], b"/", &[b'f'; 40]].concat(),
    ];
    for (name, content) in names.iter().zip(["one", "two"]) {
        let path = place.path("tree").join(std::ffi::OsString::from_vec(name.clone()));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    place.run(&["cp", "tree", "f:/tmp/tree"]).exits(0);
    place.run(&["cp", "f:/tmp/tree", "back"]).exits(0);
    // A single file may need its name on the other side, where names of single files are text.
    let odd = place.path("tree").join(std::ffi::OsString::from_vec(names[0].clone()));
    for (target, works) in [("f:/tmp/named", true), ("f:/tmp/", false)] {
        let copied = place.command(&["cp"]).arg(&odd).arg(target).output().unwrap();
        assert_eq!(copied.status.success(), works, "{copied:?}");
    }
    place.run(&["cp", "f:/tmp/named", "-"]).says("one").exits(0);
    for (name, content) in names.into_iter().zip(["one", "two"]) {
        let path = place.path("back").join(std::ffi::OsString::from_vec(name));
        assert_eq!(std::fs::read_to_string(path).unwrap(), content);
    }
}

/// The sandbox leaves links where later copies will go.
#[test]
fn nothing_is_written_through_a_link_that_a_sandbox_made() {
    let Some(place) = place() else { return };
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("key"), "mine").unwrap();
    let lay = format!(
        "ln -s {0} /output/output; ln -s {0}/key /output/key; mkdir /output/d; ln -s ../f /output/d/l; echo x > /output/f",
        home.display()
    );
    place.run(&["exec", "f", "--", "sh", "-c", &lay]).exits(0);
    let copied = place.run(&["cp", "f:/output", "results", "--json"]).exits(0).json();
    assert_eq!((&copied["links"], &copied["skipped"]), (&1.into(), &2.into()));
    assert!(!place.path("results/output").is_symlink() && !place.path("results/key").is_symlink());
    assert_eq!(std::fs::read_to_string(place.path("results/d/l")).unwrap(), "x\n");

    // Links that are there all the same: made by somebody else, or in a workspace that is shared.
    std::os::unix::fs::symlink(&home, place.path("results/output")).unwrap();
    std::os::unix::fs::symlink(home.join("key"), place.path("results/key")).unwrap();
    let steal = "rm /output/output /output/key; echo evil > /output/key";
    place.run(&["exec", "f", "--", "sh", "-c", steal]).exits(0);
    let refused = place.run(&["cp", "f:/output", "results"]).exits(125);
    assert!(refused.stderr.contains("remove it first"), "{}", refused.stderr);
    place.run(&["cp", "f:/output/key", "results/key"]).exits(0);
    assert_eq!(std::fs::read_to_string(place.path("results/key")).unwrap(), "evil\n");
    let left: Vec<_> = std::fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["key"]);
    assert_eq!(std::fs::read_to_string(home.join("key")).unwrap(), "mine");
}

#[test]
fn archives_go_in_and_out() {
    let Some(place) = place() else { return };
    place.run(&["exec", "f", "--cmd", "mkdir -p /tmp/t/d; echo x > /tmp/t/d/f"]).exits(0);
    for format in ["tar", "tar.gz", "zip"] {
        let mut child = place
            .command(&["files", "archive", "f", "/tmp/t", "--format", format])
            .spawn()
            .unwrap();
        let mut archive = Vec::new();
        std::io::Read::read_to_end(&mut child.stdout.take().unwrap(), &mut archive).unwrap();
        assert!(child.wait().unwrap().success(), "{format}");
        let to = format!("/tmp/out-{format}");
        let words = ["files", "extract", "f", &to, "--format", format];
        let answer = place.run_input(&words, &archive).exits(0);
        assert!(answer.stdout.starts_with("1 files, "), "{format}: {}", answer.stdout);
        place.run(&["exec", "f", "--", "cat", &format!("{to}/d/f")]).says("x\n").exits(0);
    }
    let refused =
        place.run_input(&["files", "extract", "f", "/tmp/o", "--json"], b"no archive at all");
    assert_eq!(refused.exits(125).json()["error"]["code"], "archive-refused");
}
