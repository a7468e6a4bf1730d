//! What Podman takes otherwise than Docker, seen from inside and from outside.

use belljar_testkit::{Installation, matrix};

use super::{IMAGE, go_elsewhere, run};

matrix! {
    podman what_it_opens_unasked_is_closed,
    podman only_the_runtime_of_its_service_counts,
    podman elsewhere_it_is_refused_with_the_reason,
}

fn what_it_opens_unasked_is_closed(belljar: &Installation) {
    belljar.daemon().import_busybox(IMAGE, &[]).expect("an image");
    for template in [IMAGE, "host"] {
        let template = ["--template", template];
        for path in ["/run", "/run/belljar", "/etc", "/"] {
            let written = run(belljar, &template, &format!("echo x > {path}/x"));
            assert_ne!(written.code(), 0, "{template:?} {path}: {written}");
        }
        // The twins, which are the workload's own, with its limit of files.
        for path in ["/workspace", "/tmp", "/output", "/home/user"] {
            let written = run(belljar, &template, &format!("echo x > {path}/x"));
            written.expect_success();
        }
        let named = run(belljar, &template, "cat /etc/hosts").expect_success().text();
        let names = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
        assert_eq!(named, names, "{template:?}");
    }
    // Of an image it is a directory of its own; on this host it may be another name for `/tmp`.
    assert_ne!(run(belljar, &["--template", IMAGE], "echo x > /var/tmp/x").code(), 0);
    let limited = ["--template", IMAGE, "--disk", "8MiB", "--ephemeral"];
    let filled = run(belljar, &limited, "cat /dev/zero > /tmp/filled; wc -c < /tmp/filled");
    let bytes: u64 = filled.text().trim().parse().unwrap_or(u64::MAX);
    assert!(bytes > 0 && bytes <= 8 << 20, "{filled}");
}

/// It lists runtimes that it has heard of, and would start another than the one that is asked for.
fn only_the_runtime_of_its_service_counts(belljar: &Installation) {
    let named = belljar.create(&["--runtime", "runc"]).inspect();
    assert_eq!(named["isolation"]["class"], "namespace", "{named}");
    assert_eq!(named["isolation"]["runtime"], "runc", "{named}");
    for flags in [["--runtime", "runsc"], ["--runtime", "kata"]] {
        let refusal = belljar.try_create(&flags).expect_err("it is refused");
        refusal.expect_code("backend-unavailable");
    }
    let refusal = belljar.try_create(&["--isolation", "kernel"]).expect_err("it is refused");
    refusal.expect_code("not-enforceable");
}

/// It takes too little to keep what is promised, unless it is completed on its own host.
fn elsewhere_it_is_refused_with_the_reason(belljar: &Installation) {
    belljar.daemon().import_busybox(IMAGE, &[]).expect("an image");
    run(belljar, &["--template", IMAGE], "true").expect_success();
    belljar.destroy_all();
    belljar.stop_server();
    go_elsewhere(belljar);
    let refused = run(belljar, &["--template", IMAGE], "true").expect_code(125);
    assert!(refused.stderr.contains("owner nor number of files"), "{refused}");
    assert_eq!(belljar.daemon().containers("name=belljar-"), "", "something was made");
}
