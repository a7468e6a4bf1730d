//! What is particular to sandboxes in a container engine: images, other containers, recovery, engines elsewhere, listed
//! programs, runtimes of the engine.

#![forbid(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod podman;
mod programs;
mod registry;
mod runtimes;
mod unstarted;
#[path = "../common/walls.rs"]
mod walls;

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use belljar_testkit::{Installation, matrix};
use unstarted::containers_that_were_never_started_are_told_and_cleared_up;

matrix! {
    engines images_of_the_engine_are_templates,
    engines images_must_say_that_they_are_hardened_where_that_is_required,
    engines other_containers_are_left_alone,
    engines a_killed_server_finds_its_containers_again,
    docker containers_that_were_never_started_are_told_and_cleared_up,
    engines what_an_engine_cannot_keep_is_refused_with_the_reason,
    docker an_engine_elsewhere_gets_the_agent_and_no_promise_that_it_could_not_keep,
}

const IMAGE: &str = "belljar-test/busybox:1";

/// Runs a command in a sandbox of its own.
fn run(belljar: &Installation, flags: &[&str], line: &str) -> belljar_testkit::Finished {
    let mut arguments = vec!["run"];
    arguments.extend(flags);
    arguments.extend(["--", "sh", "-c", line]);
    belljar.run(arguments)
}

fn images_of_the_engine_are_templates(belljar: &Installation) {
    let changes = ["ENV GREETING=hello", "ENV LD_PRELOAD=/evil.so", "VOLUME /data", "USER 0"];
    belljar.daemon().import_busybox(IMAGE, &changes).expect("an image");
    let template = ["--template", IMAGE];
    let seen = run(belljar, &template, "echo $GREETING-$LD_PRELOAD; id -u; cat /proc/self/status");
    let seen = seen.expect_success().text();
    assert!(seen.starts_with("hello-\n1000\n"), "{seen}");
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(seen.contains(line), "{line} in {seen}");
    }
    // What an image wants to write to is memory of the sandbox; nothing else of it can be written.
    run(belljar, &template, "echo x > /data/x && echo x > /tmp/x").expect_success();
    assert_ne!(run(belljar, &template, "echo x > /bin/x").code(), 0);
    assert_ne!(run(belljar, &template, "echo x > /x").code(), 0);
    let volumes = belljar.daemon().command(&["volume", "ls", "--quiet"]).output();
    assert_eq!(volumes.expect("docker runs").stdout, b"", "volumes were made");
    let missing = belljar.run(["run", "--json", "--template", "belljar-test/none:1", "--", "true"]);
    assert_eq!(missing.code(), 125);
    assert!(missing.text().contains("template-not-found"), "{missing}");
}

fn images_must_say_that_they_are_hardened_where_that_is_required(belljar: &Installation) {
    belljar.set_variable("BELLJAR_DOCKER_REQUIRE_HARDENED_IMAGE", "1");
    belljar.daemon().import_busybox(IMAGE, &[]).expect("an image");
    let refused = run(belljar, &["--template", IMAGE], "true");
    assert_eq!(refused.code(), 125, "{refused}");
    assert!(refused.stderr.contains("belljar.hardened=true"), "{refused}");
    let hardened = "belljar-test/hardened:1";
    belljar.daemon().import_busybox(hardened, &["LABEL belljar.hardened=true"]).expect("an image");
    run(belljar, &["--template", hardened], "true").expect_success();
}

fn other_containers_are_left_alone(belljar: &Installation) {
    let daemon = belljar.daemon();
    daemon.import_busybox(IMAGE, &[]).expect("an image");
    let sandbox = belljar.create(&[]);
    // One of nobody, and one that says it is of another installation, with our sandbox's id.
    let label = format!("belljar.sandbox={}", sandbox.id());
    let others = [
        vec!["--name", "somebodys"],
        vec![
            "--name",
            "anothers",
            "--label",
            "belljar.installation=0123456789abcdef",
            "--label",
            &label,
        ],
    ];
    for flags in &others {
        let mut arguments = vec!["run", "--detach", "--network", "none"];
        arguments.extend(flags);
        arguments.extend([IMAGE, "/bin/sleep", "1000"]);
        let started = daemon.command(&arguments).output().expect("docker runs");
        assert!(started.status.success(), "{started:?}");
    }
    let leaks = belljar.run(["doctor", "--leaks", "--json"]);
    for name in ["somebodys", "anothers"] {
        assert!(!leaks.text().contains(name), "{leaks}");
    }
    sandbox.destroy().expect_success();
    belljar.destroy_all();
    for name in ["somebodys", "anothers"] {
        let inspect = ["inspect", "--format", "{{.State.Running}}", name];
        let state = daemon.command(&inspect).output().expect("docker runs");
        assert_eq!(state.stdout, b"true\n", "{name} runs no more");
    }
    let ours = daemon.containers("name=belljar-");
    assert_eq!(ours, "", "ours are left");
    let removed = daemon.command(&["rm", "--force", "somebodys", "anothers"]).output();
    assert!(removed.expect("docker runs").status.success());
}

fn a_killed_server_finds_its_containers_again(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let agent = sandbox.agent();
    sandbox.exec(["sh", "-c", "echo kept > /workspace/file"]).expect_success();
    let process = belljar.server_process().to_string();
    let killed = Command::new("kill").args(["-9", &process]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let kept = sandbox.exec(["cat", "/workspace/file"]).expect_success();
    assert_eq!(kept.text(), "kept\n");
    assert!(sandbox.agent_is(agent), "the sandbox was replaced");
    assert_ne!(belljar.server_process().to_string(), process);
}

fn what_an_engine_cannot_keep_is_refused_with_the_reason(belljar: &Installation) {
    let files = belljar.make_directory("files");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&files, everybody).expect("our own directory");
    let files = files.display().to_string();
    for (flags, reason) in [
        (&["--user", "root"][..], "root of a container is root of the host"),
        (&["--writable"], "nothing limits what a container writes to its own layer"),
        (&["--workspace", &files, "--workspace-mode", "overlay"], "that could be reset"),
    ] {
        let refused = run(belljar, flags, "true").expect_code(125);
        assert!(refused.stderr.contains(reason), "{flags:?}: {refused}");
        assert!(refused.stderr.contains("hint:"), "{flags:?}: {refused}");
    }
    assert_eq!(belljar.daemon().containers("name=belljar-"), "", "something was made");
    // What the engine does not have is named with the class that it would be.
    let probes = belljar.run(["probe", "--backend", "docker", "--json"]).expect_success().json();
    let of = |runtime: &str| {
        let probes = probes.as_array().into_iter().flatten();
        probes.clone().find(|probe| probe["runtime"] == runtime).map(|probe| probe["class"].clone())
    };
    assert_eq!(of("kata"), Some("vm".into()), "{probes}");
    assert_eq!(of("runsc"), Some("kernel".into()), "{probes}");
    // The same without what cannot be kept.
    assert_eq!(run(belljar, &["--user", "1001"], "id -u").expect_success().text(), "1001\n");
    let flags = ["--workspace", &files, "--workspace-mode", "bind"];
    run(belljar, &flags, "echo x > /workspace/x").expect_success();
}

fn an_engine_elsewhere_gets_the_agent_and_no_promise_that_it_could_not_keep(
    belljar: &Installation,
) {
    go_elsewhere(belljar);
    let template = ["--template", IMAGE];
    let seen = run(belljar, &template, "id -u; echo x > /workspace/x && cat /workspace/x");
    assert_eq!(seen.expect_success().text(), "1000\nx\n");
    assert_ne!(run(belljar, &template, "echo x > /x").code(), 0);
    for (flags, word) in [
        (&["--network", "full", "--template", IMAGE][..], "network"),
        (&["--template", "host"], "template host"),
        (&["--workspace", ".", "--workspace-mode", "bind", "--template", IMAGE], "mounts"),
    ] {
        let refused = run(belljar, flags, "true");
        assert_eq!(refused.code(), 125, "{flags:?}: {refused}");
        assert!(refused.stderr.contains(word), "{flags:?}: {refused}");
    }
}

/// From now on the engine is one that cannot be known to be on this host.
fn go_elsewhere(belljar: &Installation) {
    belljar.daemon().import_busybox(IMAGE, &[]).expect("an image");
    let address = lead_to(belljar.daemon().socket());
    belljar.set_variable("BELLJAR_DOCKER_HOST", &format!("tcp://{address}"));
}

/// A port of this host that leads to a local socket.
fn lead_to(socket: PathBuf) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound above");
    thread::spawn(move || {
        for there in listener.incoming().flatten() {
            let Ok(here) = UnixStream::connect(&socket) else { continue };
            let (there_too, here_too) = (there.try_clone(), here.try_clone());
            let (Ok(there_too), Ok(here_too)) = (there_too, here_too) else { continue };
            thread::spawn(move || pass_to_engine(there, here));
            thread::spawn(move || pass_to_client(here_too, there_too));
        }
    });
    address
}

fn pass_to_engine(mut from: TcpStream, mut to: UnixStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn pass_to_client(mut from: UnixStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
