//! Requests that are looked into, from real programs in real sandboxes: rules by method and path, credentials that are
//! never inside, certificates that everybody inside trusts and nobody else.

#![forbid(unsafe_code)]

mod common {
    #[allow(dead_code, reason = "shared with the other suites")]
    pub(crate) mod web;
    #[allow(dead_code, reason = "shared with the other suites")]
    pub(crate) mod world;
}

use std::fs;

use belljar_testkit::{Finished, Installation, Sandbox, matrix};
use common::web::{TELLING, Web, has};
use common::world::World;

matrix! {
    programs_inside_trust_their_authority,
    requests_get_credentials_that_nobody_inside_has,
    an_authority_outlives_the_server,
    a_wrong_certificate_gets_nothing,
}

const SECRET: &str = "hunter2-the-real-secret";

const POLICY: &str = "
version: '1.0'
name: web
defaults: {action: allow}
network:
  rules:
    - {name: read, host: web.test, method: GET, path: /public/*, verdict: allow}
credentials:
  - name: token
    source: {store: token}
    host: web.test
    inject: bearer
";

fn create<'b>(belljar: &'b Installation) -> Sandbox<'b> {
    set_secret(belljar, SECRET);
    let policy = belljar.make_directory("policy").join("web.yaml");
    // The probe's directory is mounted in every sandbox of the tests.
    let probe = belljar.probe_directory();
    let mounts =
        format!("filesystem: {{mounts: [{{source: {}, target: /probe}}]}}\n", probe.display());
    fs::write(&policy, POLICY.to_owned() + &mounts).expect("our own file");
    belljar.create(&["--policy", policy.to_str().expect("text")])
}

fn set_secret(belljar: &Installation, value: &str) {
    let file = belljar.make_directory("policy").join("secret");
    fs::write(&file, value).expect("our own file");
    belljar.give(&file);
    let file = file.to_str().expect("text");
    belljar.run(["secrets", "set", "token", "--from-file", file]).expect_success();
}

fn curl(sandbox: &Sandbox<'_>, arguments: &[&str]) -> Finished {
    sandbox.exec(["curl", "-sS", "--max-time", "30"].iter().chain(arguments))
}

fn programs_inside_trust_their_authority(belljar: &Installation) {
    let world = World::new(belljar);
    let web = Web::start(&world, belljar, true, TELLING);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "web.test/public"]);
    try_programs(&sandbox);
    let denied = curl(&sandbox, &["-D", "-", "https://web.test/private"]);
    let denied = denied.expect_success().text();
    assert!(denied.contains("403") && denied.contains("x-belljar-decision: deny"), "{denied}");
    let tricked = curl(&sandbox, &["--path-as-is", "https://web.test/public/..%2fprivate"]);
    assert_eq!(tricked.expect_success().json()["decision"], "deny");
    for request in web.seen() {
        let path = request["path"].as_str().unwrap_or_default();
        assert!(path.starts_with("/public/"), "{request}");
    }
    // Without any variable, by the system's own bundle.
    let bare =
        ["env", "-u", "SSL_CERT_FILE", "-u", "CURL_CA_BUNDLE", "curl", "-sS", "--max-time", "30"];
    sandbox.exec(bare.iter().chain(&["https://web.test/public/x"])).expect_success();
    assert!(!sandbox.exec(["sh", "-c", "cat /run/belljar/trust/*"]).text().contains("PRIVATE KEY"));
    // A sandbox without such rules has no authority.
    let plain = belljar.create(&["--network", "allowlist", "--allow", "web.test"]);
    let look = "ls /run/belljar/trust; echo $SSL_CERT_FILE";
    assert_eq!(plain.exec(["sh", "-c", look]).text().trim(), "");
}

/// Each asks over TLS for what is allowed.
fn try_programs(sandbox: &Sandbox<'_>) {
    let url = "https://web.test/public/x";
    for version in ["--http1.1", "--http2"] {
        curl(sandbox, &[version, "--fail", url]).expect_success();
    }
    let python =
        "import urllib.request as u; print(u.urlopen('https://web.test/public/py').status)";
    let python = sandbox.exec(["/usr/bin/python3", "-c", python]);
    assert_eq!(python.expect_success().text().trim(), "200");
    if has("node") {
        let node = "fetch('https://web.test/public/node').then(r => console.log(r.status))";
        assert_eq!(sandbox.exec(["node", "-e", node]).expect_success().text().trim(), "200");
    }
    if has("git") {
        // A path that is not allowed: git got as far as a reply, so it trusted the certificate.
        let git = sandbox.exec(["git", "ls-remote", "https://web.test/private.git"]);
        assert!(git.to_string().contains("403"), "{git}");
    }
}

fn requests_get_credentials_that_nobody_inside_has(belljar: &Installation) {
    let world = World::new(belljar);
    let web = Web::start(&world, belljar, true, TELLING);
    let sandbox = create(belljar);
    let url = "https://web.test/public/x";
    let told = curl(&sandbox, &["-H", "authorization: Bearer guest", url]).expect_success().json();
    let masked = format!("Bearer {}", "*".repeat(SECRET.len()));
    assert_eq!(told["headers"]["authorization"].as_str(), Some(masked.as_str()), "{told}");
    let denied = curl(&sandbox, &["-X", "DELETE", url]).expect_success().json();
    assert_eq!(denied["code"], "policy-denied");
    try_programs(&sandbox);
    let start = &SECRET[..16];
    let search =
        format!("env; grep -rsl '{start}' /etc /run /home /tmp /workspace /proc/[0-9]*/environ");
    assert!(!sandbox.exec(["sh", "-c", &search]).text().contains("hunter2"));
    let seen = web.seen();
    assert!(seen.len() >= 3, "{seen:?}");
    for request in &seen {
        let path = request["path"].as_str().unwrap_or_default();
        assert!(path.starts_with("/public/"), "{request}");
        assert_eq!(request["authorization"], format!("Bearer {SECRET}"), "the real one arrived");
    }
}

fn an_authority_outlives_the_server(belljar: &Installation) {
    let world = World::new(belljar);
    let _web = Web::start(&world, belljar, true, TELLING);
    let sandbox = create(belljar);
    let url = "https://web.test/public/x";
    curl(&sandbox, &[url]).expect_success();
    belljar.run(["server", "stop"]).expect_success();
    curl(&sandbox, &[url]).expect_success();
    set_secret(belljar, "another-secret");
    let told = curl(&sandbox, &[url]).expect_success().json();
    assert_eq!(told["headers"]["authorization"], format!("Bearer {}", "*".repeat(14)));
}

fn a_wrong_certificate_gets_nothing(belljar: &Installation) {
    let world = World::new(belljar);
    let web = Web::start(&world, belljar, false, TELLING);
    let sandbox = create(belljar);
    let told = curl(&sandbox, &["https://web.test/public/x"]).expect_success().json();
    assert_eq!(
        (&told["code"], &told["reason"]),
        (&"upstream-failed".into(), &"certificate-invalid".into())
    );
    assert!(web.seen().is_empty());
}
