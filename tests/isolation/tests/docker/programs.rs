//! Listed programs, in every kind of root: what is not listed is not there, and every attempt is on record.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use belljar_testkit::{Installation, Mode, matrix, wait_until, write_busybox};

use super::{IMAGE, lead_to, run};

/// A record is written soon, but by another process.
const PATIENCE: Duration = Duration::from_secs(60);

matrix! {
    engines programs_of_this_host_that_are_not_listed_are_not_there,
    engines programs_of_images_and_directories_that_are_not_listed_are_not_there,
}

fn programs_of_this_host_that_are_not_listed_are_not_there(belljar: &Installation) {
    let flags = ["--programs", "sh,cat,echo"];
    run(belljar, &flags, "echo here | cat").expect_success();
    for line in ["curl --version", "/usr/bin/curl --version", "/usr/bin/python3 -c 1"] {
        let denied = run(belljar, &flags, line);
        assert_eq!(denied.code(), 126, "`{line}`: {denied}");
    }
    expect_records(belljar, "curl", 2);
    expect_records(belljar, "python3", 1);
}

fn programs_of_images_and_directories_that_are_not_listed_are_not_there(belljar: &Installation) {
    let root = belljar.make_directory("root");
    write_root(&root).expect("a root of a few programs");
    // Also a directory of the image's own.
    let changes = ["ENV PATH=/tools:/bin"];
    belljar.daemon().import(&root, IMAGE, &changes).expect("an image");
    let directory = format!("rootfs:{}", root.display());
    expect_limited(belljar, IMAGE, "sh,cat,echo,tail", 1);
    expect_limited(belljar, &directory, "sh,cat,echo,tail", 2);
    // Directories that only the image searches are covered, too.
    let flags = ["--template", IMAGE, "--programs", "sh"];
    let seen = run(belljar, &flags, "head; /tools/head -n 1 /etc/passwd; echo $?");
    assert_eq!(seen.text(), "126\n", "{seen}");
    expect_records(belljar, "head", 2);
    let flags = ["--template", IMAGE, "--programs", "sh,nosuch"];
    let refused = run(belljar, &flags, "true").expect_code(127);
    assert!(refused.stderr.contains("`nosuch`"), "{refused}");

    if belljar.mode() == Mode::Podman {
        return; // it is refused elsewhere
    }
    // The files of an engine elsewhere are out of reach, and the list holds all the same.
    belljar.stop_server();
    let address = lead_to(belljar.daemon().socket());
    belljar.set_variable("BELLJAR_DOCKER_HOST", &format!("tcp://{address}"));
    expect_limited(belljar, IMAGE, "sh,cat,echo,tail,env", 3);
    expect_limited(belljar, &directory, "sh,cat,echo,tail,env", 4);
    // Not even those in which layers were made.
    belljar.destroy_all();
    assert_eq!(belljar.daemon().containers("name="), "", "containers are left");
}

/// Programs, among them a shell that is nothing else: that of busybox is all of its programs by itself.
fn write_root(root: &Path) -> io::Result<()> {
    write_busybox(root)?;
    let shell = fs::canonicalize("/bin/sh")?;
    let needs = Command::new("ldd").arg(&shell).output()?.stdout;
    let needs = String::from_utf8_lossy(&needs).into_owned();
    let libraries = needs.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.map(Path::new) {
        let place = root.join(file.strip_prefix("/").unwrap_or(file));
        fs::create_dir_all(place.parent().unwrap_or(root))?;
        fs::copy(file, place)?;
    }
    fs::remove_file(root.join("bin/sh"))?;
    fs::copy(shell, root.join("bin/dash"))?;
    symlink("dash", root.join("bin/sh"))?;
    // A program that is a link to where none is searched, and one of a directory of its own.
    fs::create_dir_all(root.join("opt"))?;
    fs::copy("/bin/busybox", root.join("opt/tail"))?;
    symlink("/opt/tail", root.join("bin/tail"))?;
    fs::create_dir_all(root.join("tools"))?;
    symlink("../bin/busybox", root.join("tools/head"))
}

/// `times`: how often this was called.
#[track_caller]
fn expect_limited(belljar: &Installation, template: &str, programs: &str, times: usize) {
    let line = "echo one | cat; /bin/echo two; wget; echo $?; /bin/wget; echo $?; \
        /bin/busybox id; echo $?; /bin/../bin/id; echo $?; /bin/dash -c true; echo $?; \
        echo three | tail -n 1";
    let seen = run(belljar, &["--template", template, "--programs", programs], line);
    let denied = "126\n".repeat(5);
    assert_eq!(seen.text(), format!("one\ntwo\n{denied}three\n"), "{template}: {seen}");
    let flags = ["run", "--template", template, "--programs", programs, "--", "wget"];
    assert_eq!(belljar.run(flags).code(), 126);
    expect_records(belljar, "wget", 3 * times);
    expect_records(belljar, "busybox", times);
    // Without a list the same are there.
    let line = "/bin/busybox echo three; wget --help 2>&1 | cat; /bin/dash -c '/bin/id -u'";
    let seen = run(belljar, &["--template", template], line).expect_success();
    let text = seen.text();
    assert!(text.starts_with("three\n") && text.ends_with("\n1000\n"), "{seen}");
    assert!(text.contains("Usage: wget"), "{seen}");
}

/// As many attempts to run a program are on record as there were.
#[track_caller]
fn expect_records(belljar: &Installation, program: &str, times: usize) {
    let mark = format!("\"name\":\"{program}\"");
    let mut found = Vec::new();
    let recorded = wait_until(PATIENCE, || {
        let audit = fs::read_to_string(belljar.state().join("audit.jsonl")).unwrap_or_default();
        found = audit.lines().filter(|line| line.contains(&mark)).map(str::to_owned).collect();
        found.retain(|line| line.contains("program-denied"));
        (found.len() >= times).then_some(())
    });
    assert!(recorded.is_some() && found.len() == times, "{program}, {times} times: {found:?}");
}
