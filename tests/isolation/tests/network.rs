//! The way out: what a sandbox reaches through its doors, and what it does not. Real clients inside, servers in a network
//! namespace of the test's own.

#![forbid(unsafe_code)]

mod common {
    pub(crate) mod world;
}

use std::process::Command;
use std::time::Duration;

use belljar_testkit::{Finished, Installation, Mode, PROMPT, Sandbox, matrix, skip, wait_until};
use common::world::{DATAGRAMS, ECHO, HOST, ORIGIN, ORIGIN_V6, OTHER, PRIVATE, World};
use serde_json::Value;

matrix! {
    walls names_that_are_allowed_are_reached_and_no_others,
    engineless an_address_needs_a_name_that_led_to_it,
    engineless full_means_public_addresses_and_not_the_host,
    an_answer_that_turns_private_is_refused,
    walls the_other_protocol_version_has_the_same_rules,
    walls all_but_tcp_and_dns_stays_inside,
    engineless tls_needs_the_name_that_led_to_the_address,
    profiles_of_a_file_and_requests_over_http_mean_the_same,
    engineless without_a_network_not_even_questions_leave,
    rules_change_while_connections_are_open,
    a_snapshot_is_not_restored_with_a_wider_network,
    changes_that_would_hold_nowhere_are_refused,
    hosts_that_were_reached_are_learned,
    walls connections_end_with_the_server_and_work_again_after_it,
    what_nothing_allows_can_wait_for_somebody,
    engineless datagrams_pass_where_a_rule_names_their_port,
    engineless a_paused_sandbox_keeps_its_connections,
    bad_rules_are_refused_before_anything_is_made,
    everywhere a_flow_tells_which_process_made_it,
}

/// For what a loaded machine may take long to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// `curl` inside, with a short patience.
fn curl(sandbox: &Sandbox<'_>, arguments: &[&str]) -> Finished {
    // Denied plain requests are answered with a 403 that says why.
    let fixed = ["curl", "-sSf", "--max-time", "30"];
    sandbox.exec(fixed.iter().chain(arguments))
}

/// A Python program inside.
fn python(sandbox: &Sandbox<'_>, program: &str) -> Finished {
    sandbox.exec(["/usr/bin/python3", "-c", program])
}

fn denied(sandbox: &Sandbox<'_>, belljar: &Installation) -> Vec<Value> {
    log(sandbox, belljar, &["--denied"])
}

fn log(sandbox: &Sandbox<'_>, belljar: &Installation, flags: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["network", "log", sandbox.id(), "--json"];
    arguments.extend(flags);
    let text = belljar.run(&arguments).expect_success().text();
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

/// Waits for an entry of the network log that fits: flows are written down when they end.
#[track_caller]
fn expect_entry(
    sandbox: &Sandbox<'_>,
    belljar: &Installation,
    fits: impl Fn(&Value) -> bool,
) -> Value {
    let found = wait_until(PROMPT, || log(sandbox, belljar, &[]).into_iter().find(|one| fits(one)));
    found.unwrap_or_else(|| panic!("no such entry in {:#?}", log(sandbox, belljar, &[])))
}

fn names_that_are_allowed_are_reached_and_no_others(belljar: &Installation) {
    let world = World::new(belljar);
    world.name("evilorigin.test", &[ORIGIN]);
    world.name("origin.test.evil.test", &[ORIGIN]);
    world.name("deep.wild.test", &[ORIGIN]);
    world.name("wild.test", &[ORIGIN]);
    let flags = ["--network", "allowlist", "--allow", "origin.test", "--allow", "*.wild.test"];
    let sandbox = belljar.create(&flags);
    for allowed in ["http://origin.test/", "http://deep.wild.test/"] {
        let got = curl(&sandbox, &[allowed]).expect_success();
        assert_eq!(got.text(), format!("hello from {ORIGIN}"), "{allowed}");
    }
    let entry = expect_entry(&sandbox, belljar, |entry| {
        entry["stage"] == "flow" && entry["host"] == "origin.test"
    });
    assert_eq!((&entry["verdict"], &entry["rule"]), (&"allow".into(), &"origin.test".into()));
    assert!(entry["bytes_down"].as_u64() > Some(20), "{entry}");

    let before = world.reached(ORIGIN);
    for other in ["other.test", "evilorigin.test", "origin.test.evil.test", "wild.test"] {
        let refused = curl(&sandbox, &[&format!("http://{other}/")]);
        assert_eq!(refused.code(), 6, "curl cannot resolve {other}: {refused}");
        assert!(!world.was_asked(other), "the question for {other} left");
        let entry = expect_entry(&sandbox, belljar, |entry| entry["host"] == other);
        assert_eq!((&entry["verdict"], &entry["reason"]), (&"deny".into(), &"not-listed".into()));
    }
    assert_eq!((world.reached(OTHER), world.reached(ORIGIN)), (0, before));
    let audit =
        ["audit", "query", "--json", "--sandbox", sandbox.id(), "--outcome", "network-denied"];
    let records = belljar.run(audit).expect_success().text();
    assert!(
        records.contains("\"network.dns\"") && records.contains("evilorigin.test"),
        "{records}"
    );
    let shown = belljar.run(["network", "show", sandbox.id(), "--json"]).expect_success().json();
    assert_eq!(shown["allow"], serde_json::json!(["origin.test", "*.wild.test"]));
    let isolation = &sandbox.inspect()["isolation"];
    let mechanism = isolation["network_enforcement"].as_str().unwrap_or_default();
    assert!(mechanism.contains("gateway") && mechanism.contains("nftables"), "{isolation}");
}

fn an_address_needs_a_name_that_led_to_it(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "origin.test"]);
    // Before its name was looked up the address is nobody's.
    for address in [ORIGIN, OTHER] {
        assert_ne!(curl(&sandbox, &[&format!("http://{address}/")]).code(), 0);
    }
    assert_eq!((world.reached(ORIGIN), world.reached(OTHER)), (0, 0));
    let entry = expect_entry(&sandbox, belljar, |entry| entry["address"] == ORIGIN);
    assert_eq!(entry["reason"], "not-resolved");
    // Other names for an allowed address are others' names.
    let resolved = format!("other.test:80:{ORIGIN}");
    curl(&sandbox, &["http://origin.test/"]).expect_success();
    let twin = curl(&sandbox, &[&format!("http://{ORIGIN}/")]).expect_success();
    assert_eq!(twin.text(), format!("hello from {ORIGIN}"));
    let through_other = curl(&sandbox, &["--resolve", &resolved, "http://other.test/"]);
    assert_eq!(world.reached(OTHER), 0, "{through_other}");
    // A proxy of one's own choice is an address like any other, and proxy variables change nothing.
    let proxy = format!("http://{OTHER}:80");
    let proxied = curl(&sandbox, &["--proxy", &proxy, "http://origin.test/"]);
    assert_ne!(proxied.code(), 0, "{proxied}");
    assert_eq!(world.reached(OTHER), 0);
}

fn full_means_public_addresses_and_not_the_host(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "full"]);
    curl(&sandbox, &["http://origin.test/"]).expect_success();
    curl(&sandbox, &[&format!("http://{OTHER}/")]).expect_success();
    for special in [
        HOST,
        PRIVATE,
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "100.64.0.1",
        "192.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "[fd00:ec2::254]",
        "[::ffff:10.9.0.9]",
    ] {
        let refused = curl(&sandbox, &[&format!("http://{special}/")]);
        assert_ne!(refused.code(), 0, "{special}: {refused}");
    }
    let private = curl(&sandbox, &["http://private.test/"]);
    assert_ne!(private.code(), 0, "{private}");
    assert_eq!((world.reached(HOST), world.reached(PRIVATE)), (0, 0));
    let entry = expect_entry(&sandbox, belljar, |entry| entry["address"] == HOST);
    assert_eq!(entry["reason"], "address-not-public");

    // A network lets in what is private, and the host only by its very address.
    let wide = belljar.create(&[
        "--network",
        "full",
        "--allow-cidr",
        "10.9.0.0/16",
        "--allow-cidr",
        "11.0.0.0/8",
    ]);
    curl(&wide, &[&format!("http://{PRIVATE}/")]).expect_success();
    assert_ne!(curl(&wide, &[&format!("http://{HOST}/")]).code(), 0);
    assert_eq!((world.reached(HOST), world.reached(PRIVATE)), (0, 1));
    let named = belljar.create(&["--network", "full", "--allow-cidr", HOST]);
    curl(&named, &[&format!("http://{HOST}/")]).expect_success();
    assert_eq!(world.reached(HOST), 1);
}

fn an_answer_that_turns_private_is_refused(belljar: &Installation) {
    let world = World::new(belljar);
    world.name("rebind.test", &[ORIGIN, PRIVATE]);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "rebind.test"]);
    curl(&sandbox, &["-4", "http://rebind.test/"]).expect_success();
    // Until the first answer's time is over it is given again; then the other is not.
    let refused = wait_until(PROMPT, || {
        let later = curl(&sandbox, &["-4", "http://rebind.test/"]);
        (later.code() != 0).then_some(later)
    });
    assert!(refused.is_some(), "the private answer is never refused");
    assert_eq!(world.reached(PRIVATE), 0);
}

fn the_other_protocol_version_has_the_same_rules(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "six.test"]);
    assert_ne!(curl(&sandbox, &[&format!("http://[{ORIGIN_V6}]/")]).code(), 0);
    assert_eq!(world.reached(ORIGIN_V6), 0);
    let got = curl(&sandbox, &["-6", "http://six.test/"]).expect_success();
    assert_eq!(got.text(), format!("hello from {ORIGIN_V6}"));
}

fn all_but_tcp_and_dns_stays_inside(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "full"]);
    // Datagrams: a question for a name is answered whomever it is sent to, nothing else is.
    let program = "\
import socket
question = bytes.fromhex('123401000001000000000000066f726967696e04746573740000010001')
def ask(address, port, family=socket.AF_INET, patience=1):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(patience)
    s.sendto(question, (address, port))
    try:
        return len(s.recv(512)) > len(question)
    except OSError:
        return False
assert ask('11.0.0.10', 53, patience=60), 'the door answers'
assert ask('2600:1::10', 53, socket.AF_INET6, patience=60), 'the door answers'
for port in (443, 5353, 5355, 853, 123, 3478):
    assert not ask('11.0.0.53', port), port
assert not ask('224.0.0.251', 5353)
for kind in (socket.SOCK_RAW,):
    for protocol in (socket.IPPROTO_ICMP, 47, 132):
        try:
            socket.socket(socket.AF_INET, kind, protocol)
            raise SystemExit(f'raw socket {protocol}')
        except OSError:
            pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
    raise SystemExit('sctp')
except OSError:
    pass
s = socket.create_connection(('11.0.0.10', 7777), 3)
assert s.recv(6) == b'hello\\n'
print('done')
";
    assert_eq!(python(&sandbox, program).expect_success().text(), "done\n");
    assert!(world.was_asked("origin.test"));
    // Servers that answer questions for others are no way around the door.
    let other_resolver = curl(&sandbox, &["https://9.9.9.9/dns-query"]);
    assert_ne!(other_resolver.code(), 0);
    // Nobody inside may touch the link.
    let link = "\
import errno, socket, struct, fcntl
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for request in (0x8914, 0x8916, 0x8924, 0x890b):
    try:
        fcntl.ioctl(s, request, struct.pack('16s24x', b'eth0'))
        raise SystemExit(f'{request:#x}')
    except OSError as error: # refused, or a kernel that knows no such request
        assert error.errno in (errno.EPERM, errno.ENOTTY), error
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
    try:
        socket.socket(socket.AF_PACKET, kind, 0x0300)
        raise SystemExit('packet socket')
    except OSError:
        pass
try:
    s.bind(('11.0.0.10', 0))
    raise SystemExit('a foreign address')
except OSError:
    pass
print('done')
";
    for flags in [&[][..], &["--user", "root"]] {
        let finished = sandbox.exec_with(flags, ["/usr/bin/python3", "-c", link]);
        if finished.code() != 125 {
            assert_eq!(finished.expect_success().text(), "done\n", "{flags:?}");
        }
    }
}

fn tls_needs_the_name_that_led_to_the_address(belljar: &Installation) {
    let world = World::new(belljar);
    if !world.has_tls() {
        return skip("tls_needs_the_name_that_led_to_the_address", "there is no openssl");
    }
    let flags = ["--network", "allowlist", "--allow", "tls.test", "--allow", "other.test"];
    let sandbox = belljar.create(&flags);
    // Nobody looks inside: the certificate is the server's own.
    let secure = curl(&sandbox, &["--cacert", "/probe/ca.pem", "https://tls.test/"]);
    assert!(secure.expect_success().text().contains("s_server"));
    let resolved = format!("other.test:443:{ORIGIN}");
    assert_ne!(curl(&sandbox, &["-k", "--resolve", &resolved, "https://other.test/"]).code(), 0);
    expect_entry(&sandbox, belljar, |entry| entry["reason"] == "sni-mismatch");
    assert_ne!(curl(&sandbox, &["-k", &format!("https://{ORIGIN}/")]).code(), 0);
    expect_entry(&sandbox, belljar, |entry| entry["reason"] == "sni-missing");
}

fn profiles_of_a_file_and_requests_over_http_mean_the_same(belljar: &Installation) {
    let _world = World::new(belljar);
    let file = belljar.make_directory("home/.config/belljar").join("config.toml");
    let known = std::fs::read_to_string(&file).expect("the world wrote it");
    let profile = "[profiles.mine]\nallow = [\"origin.test\"]\n";
    std::fs::write(&file, format!("{known}{profile}")).expect("our own file");
    let sandbox = belljar.create(&["--profile", "mine"]);
    curl(&sandbox, &["http://origin.test/"]).expect_success();
    assert_eq!(curl(&sandbox, &["http://other.test/"]).code(), 6);
    if belljar.mode() != Mode::Root {
        return; // the socket is its user's
    }
    let socket = belljar.state().join("server.sock");
    let place = format!("http://localhost/v1/sandboxes/{}/network", sandbox.id());
    let http = |arguments: &[&str]| -> String {
        let mut command = Command::new("curl");
        command.args(["-sSf", "--max-time", "60", "--unix-socket"]).arg(&socket).args(arguments);
        let output = command.output().expect("curl runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown: Value = serde_json::from_str(&http(&[&place])).expect("JSON");
    assert_eq!(shown["allow"], serde_json::json!(["origin.test"]));
    let change = ["--json", "{\"allow\": [\"other.test\"]}", &place];
    let changed: Value = serde_json::from_str(&http(&change)).expect("JSON");
    assert_eq!(changed["allow"], serde_json::json!(["origin.test", "other.test"]));
    curl(&sandbox, &["http://other.test/"]).expect_success();
    let told = http(&[&format!("{place}/log?denied=true")]);
    // Whoever gets no answer soon asks again.
    assert!(!told.is_empty() && told.lines().all(|line| line.contains("not-listed")), "{told}");
    let metrics = http(&["http://localhost/metrics"]);
    let counted = "belljar_network_decisions_total{decision=\"name-denied\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(counted));
    assert!(count.is_some_and(|count| count != "0"), "{metrics}");
    assert!(http(&["http://localhost/v1/approvals"]).contains("\"approvals\":[]"));
}

fn without_a_network_not_even_questions_leave(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&[]);
    curl(&sandbox, &["http://data-to-carry-away.origin.test/"]).expect_code(6);
    assert_ne!(curl(&sandbox, &[&format!("http://{ORIGIN}/")]).code(), 0);
    assert!(!world.was_asked("data-to-carry-away.origin.test"));
    assert_eq!(world.reached(ORIGIN), 0);
    let refused = belljar.run(["network", "allow", sandbox.id(), "origin.test", "--json"]);
    assert_eq!(refused.code(), 125, "{refused}");
    // On an allowlist only names that are on it leave.
    let listed = belljar.create(&["--network", "allowlist", "--allow", "origin.test"]);
    curl(&listed, &["http://data-to-carry-away.origin.test/"]).expect_code(6);
    assert!(!world.was_asked("data-to-carry-away.origin.test"));
    curl(&listed, &["http://origin.test/"]).expect_success();
}

/// Holds a connection to the echo server open and says `open`. Once told to go on, it speaks on it and says whether it was
/// `heard`, or the connection is `closed`.
const HOLD: &str = "\
import os, socket, time
s = socket.create_connection(('origin.test', 7777), 20)
assert s.recv(6) == b'hello\\n'
s.sendall(b'x')
assert s.recv(1) == b'x'
print('open', flush=True)
while not os.path.exists('/workspace/go'): time.sleep(0.02)
s.settimeout(60)
try:
    s.sendall(b'y')
    print('heard' if s.recv(1) else 'closed', flush=True)
except ConnectionError:
    print('closed', flush=True)
";

fn rules_change_while_connections_are_open(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "origin.test"]);
    let mut held = sandbox.start_with(&[], ["/usr/bin/python3", "-c", HOLD]);
    assert_eq!(held.line(), "open\n");
    // What stays allowed stays open.
    belljar.run(["network", "allow", sandbox.id(), "other.test"]).expect_success();
    curl(&sandbox, &["http://other.test/"]).expect_success();
    // What is said after the change was answered is not heard any more.
    belljar.run(["network", "deny", sandbox.id(), "origin.test"]).expect_success();
    sandbox.exec(["touch", "/workspace/go"]).expect_success();
    assert_eq!(held.line(), "closed\n");
    held.finish().expect_success();
    let entry = expect_entry(&sandbox, belljar, |entry| {
        entry["port"] == ECHO && entry["reason"] == "revoked"
    });
    assert_eq!(entry["host"], "origin.test");
    let before = world.reached(ORIGIN);
    assert_ne!(curl(&sandbox, &["http://origin.test/"]).code(), 0);
    // A change outlives the server.
    kill_server(belljar);
    assert_ne!(curl(&sandbox, &["http://origin.test/"]).code(), 0);
    curl(&sandbox, &["http://other.test/"]).expect_success();
    assert_eq!(world.reached(ORIGIN), before);
    belljar.run(["network", "allow", sandbox.id(), "origin.test"]).expect_success();
    curl(&sandbox, &["http://origin.test/"]).expect_success();
    // The twin: what nobody revokes is heard.
    let mut held = sandbox.start_with(&[], ["/usr/bin/python3", "-c", HOLD]);
    assert_eq!((held.line(), held.line()), ("open\n".to_owned(), "heard\n".to_owned()));
    held.finish().expect_success();
    belljar.run(["network", "set", sandbox.id(), "--network", "none"]).expect_success();
    assert_ne!(curl(&sandbox, &["http://origin.test/"]).code(), 0);
}

fn a_snapshot_is_not_restored_with_a_wider_network(belljar: &Installation) {
    let _world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "full"]);
    let keep = |name: &str| {
        belljar.run(["snapshot", "create", sandbox.id(), "--name", name]).expect_success();
    };
    keep("open");
    belljar.run(["network", "deny", sandbox.id(), "origin.test"]).expect_success();
    keep("narrowed");
    let restore = |words: &[&str]| {
        let restored = belljar.run([&["snapshot", "restore", "--json"], words].concat());
        let answer = restored.json();
        if restored.code() == 0 {
            belljar
                .run(["destroy", answer["sandbox_id"].as_str().expect("an id")])
                .expect_success();
            return answer["isolation"]["network_mode"].clone();
        }
        answer["error"]["code"].clone()
    };
    assert_eq!(restore(&["narrowed"]), "conflicting-options");
    // The twins: where nothing was denied, and where the caller says so.
    assert_eq!(restore(&["open"]), "full");
    assert_eq!(restore(&["narrowed", "--network", "full"]), "full");
    for name in ["open", "narrowed"] {
        belljar.run(["snapshot", "rm", name]).expect_success();
    }
}

fn changes_that_would_hold_nowhere_are_refused(belljar: &Installation) {
    let _world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "origin.test"]);
    let change = |words: &[&str]| {
        let mut arguments = vec!["network"];
        arguments.extend(words);
        arguments.extend(["--json"]);
        belljar.run(&arguments)
    };
    // Nothing inside trusts an authority, so no request can be looked into.
    let refused = change(&["allow", sandbox.id(), "other.test/public"]);
    assert!(refused.code() == 125 && refused.text().contains("not-enforceable"), "{refused}");
    let shown = belljar.run(["network", "show", sandbox.id(), "--json"]).expect_success().json();
    assert_eq!(shown["allow"], serde_json::json!(["origin.test"]));
    change(&["allow", sandbox.id(), "other.test"]).expect_success();
    // The server holds the doors; what an engine beside it writes down would not reach them.
    let words = ["--server", "embedded", "network", "deny", sandbox.id(), "other.test", "--json"];
    let beside = belljar.run(words);
    assert!(beside.code() == 125 && beside.text().contains("sandbox-not-ready"), "{beside}");
    curl(&sandbox, &["http://other.test/"]).expect_success();
    let shown = belljar.run(["network", "show", sandbox.id(), "--json"]).expect_success().json();
    assert_eq!(shown["deny"], serde_json::json!([]));
}

fn hosts_that_were_reached_are_learned(belljar: &Installation) {
    let world = World::new(belljar);
    // The command stays the same, so that only the network can tell the difference.
    let fetch = |sandbox: &Sandbox<'_>, host: &str| {
        let line = format!("curl -sSf --max-time 30 http://{host}/\n");
        std::fs::write(belljar.probe_directory().join("fetch"), line).expect("our own file");
        sandbox.exec(["sh", "/probe/fetch"])
    };
    let recorded = belljar.create(&["--network", "full", "--policy-record"]);
    fetch(&recorded, "origin.test").expect_success();
    assert_ne!(fetch(&recorded, "private.test").code(), 0);
    let learned = wait_until(PROMPT, || {
        let text = belljar.run(["policy", "learn", recorded.id()]).expect_success().text();
        text.contains("- origin.test").then_some(text)
    });
    let learned = learned.expect("the flow is on record");
    assert!(!learned.contains("private.test"), "what was denied is not learned: {learned}");
    let file = belljar.make_directory("learned").join("policy.yaml");
    // Limits are learned, too, but not every mode can hold them; this is about hosts.
    let limits = ["max_cpu:", "max_memory_mb:", "processes:", "count:"];
    let is_limit = |line: &str| limits.iter().any(|limit| line.trim_start().starts_with(limit));
    let hosts: Vec<&str> = learned.lines().filter(|line| !is_limit(line)).collect();
    std::fs::write(&file, hosts.join("\n")).expect("our own file");
    let sandbox = belljar.create(&["--policy", file.to_str().expect("text")]);
    fetch(&sandbox, "origin.test").expect_success();
    let refused = fetch(&sandbox, "other.test");
    assert_eq!(refused.code(), 6, "the name is not answered: {refused}");
    assert_eq!(world.reached(OTHER), 0);
}

fn kill_server(belljar: &Installation) {
    let process = belljar.server_process().to_string();
    let killed = Command::new("kill").args(["-9", &process]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

fn connections_end_with_the_server_and_work_again_after_it(belljar: &Installation) {
    let world = World::new(belljar);
    // It writes down what it sees where it can be read without asking a server.
    let shared = belljar.make_directory("shared");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&shared, everybody).expect("our own directory");
    let mount = format!("{}:/shared:rw", shared.display());
    let flags = ["--network", "allowlist", "--allow", "origin.test", "--mount", &mount];
    let sandbox = belljar.create(&flags);
    let program = "\
import socket, time, urllib.request
def log(word):
    with open('/shared/log', 'a') as f:
        f.write(word + '\\n')
s = socket.create_connection(('origin.test', 7777), 5)
assert s.recv(6) == b'hello\\n'
log('open')
s.settimeout(60)
try:
    s.recv(1)
except OSError:
    pass
log('closed')
try:
    socket.create_connection(('11.0.0.10', 7777), 2).recv(6)
    log('reached')
except OSError:
    log('sealed')
";
    let start = ["exec", "--detach", sandbox.id(), "--", "/usr/bin/python3", "-c", program];
    belljar.run(start).expect_success();
    let log = || std::fs::read_to_string(shared.join("log")).unwrap_or_default();
    let written = |words: &str| wait_until(PATIENCE, || (log() == words).then_some(()));
    assert!(written("open\n").is_some(), "{}", log());
    let before = world.reached(ORIGIN);
    kill_server(belljar);
    // It tries while nobody serves; reading a file starts no server.
    assert!(written("open\nclosed\nsealed\n").is_some(), "{}", log());
    // The next command starts a server, which opens new doors with the same rules.
    assert_eq!(world.reached(ORIGIN), before);
    let got = curl(&sandbox, &["http://origin.test/"]).expect_success();
    assert_eq!(got.text(), format!("hello from {ORIGIN}"));
    assert_eq!(curl(&sandbox, &["http://other.test/"]).code(), 6);
    assert!(!denied(&sandbox, belljar).is_empty());
}

fn what_nothing_allows_can_wait_for_somebody(belljar: &Installation) {
    let world = World::new(belljar);
    let flags = ["--network", "allowlist", "--allow", "origin.test", "--network-ask", "20"];
    let sandbox = belljar.create(&flags);
    let wanting = |port: &str| {
        let url = format!("http://other.test:{port}/");
        sandbox.start_with(&[], ["curl", "-sSf", "--max-time", "30", &url])
    };
    let waiting = || {
        let listed = belljar.run(["approvals", "list", "--json"]).expect_success().json();
        listed.as_array().and_then(|all| all.first().cloned())
    };
    let asking = wanting("80");
    let asked = wait_until(PROMPT, waiting).expect("somebody is asked");
    assert_eq!(asked["sandbox_id"], sandbox.id());
    assert_eq!(asked["host"], "other.test");
    assert_eq!(world.reached(OTHER), 0);
    let id = asked["approval_id"].as_str().expect("an id");
    belljar.run(["approvals", "allow", id, "--for", "always"]).expect_success();
    // The name, or the connection, may be asked about one after the other.
    let finished = loop_answers(belljar, asking, "always");
    assert_eq!(finished.expect_success().text(), format!("hello from {OTHER}"));
    let denied_one = wanting("7777");
    let shown = belljar.run(["network", "show", sandbox.id(), "--json"]).expect_success().json();
    assert!(shown["allow"].to_string().contains("other.test:80"), "{shown}");
    let before = world.reached(OTHER);
    if let Some(asked) = wait_until(Duration::from_secs(5), waiting) {
        let id = asked["approval_id"].as_str().expect("an id");
        belljar.run(["approvals", "deny", id]).expect_success();
    }
    assert_ne!(denied_one.finish().code(), 0);
    assert_eq!(world.reached(OTHER), before);
    let gone = belljar.run(["approvals", "deny", "nonesuch", "--json"]);
    assert!(gone.code() == 125 && gone.text().contains("approval-not-found"), "{gone}");
}

/// Answers everything that waits until the command has ended.
fn loop_answers(belljar: &Installation, command: belljar_testkit::Started, how: &str) -> Finished {
    let done = std::thread::spawn(move || command.finish());
    wait_until(Duration::from_secs(30), || {
        let listed = belljar.run(["approvals", "list", "--json"]).expect_success().json();
        for asked in listed.as_array().into_iter().flatten() {
            let id = asked["approval_id"].as_str().unwrap_or_default().to_owned();
            belljar.run(["approvals", "allow", &id, "--for", how]);
        }
        done.is_finished().then_some(())
    });
    done.join().expect("waiting does not panic")
}

fn datagrams_pass_where_a_rule_names_their_port(belljar: &Installation) {
    let _world = World::new(belljar);
    let policy = belljar.make_directory("policy").join("datagrams.yaml");
    let text = format!(
        "version: '1.0'
name: datagrams
defaults: {{action: allow}}
filesystem: {{mounts: [{{source: {}, target: /probe}}]}}
network: {{rules: [{{host: origin.test, transport: udp, port: {DATAGRAMS}, verdict: allow}}]}}
",
        belljar.probe_directory().display()
    );
    std::fs::write(&policy, text).expect("our own file");
    let sandbox = belljar.create(&["--policy", policy.to_str().expect("text")]);
    // The name, by the address that it has, and an address that has none.
    let answered = |host: &str, port: u16, patience: u8| {
        let program = format!(
            "\
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout({patience})
try:
    s.connect((socket.gethostbyname('{host}'), {port}))
    for word in (b'one', b'two'):
        s.send(word)
        assert s.recv(16) == word
    print('answered')
except OSError:
    print('silence')
"
        );
        python(&sandbox, &program).expect_success().text()
    };
    assert_eq!(answered("origin.test", DATAGRAMS, 60), "answered\n");
    assert_eq!(answered("origin.test", DATAGRAMS + 1, 2), "silence\n");
    assert_eq!(answered("other.test", DATAGRAMS, 2), "silence\n");
    let entry = expect_entry(&sandbox, belljar, |entry| {
        entry["transport"] == "udp" && entry["stage"] == "dns"
    });
    assert_eq!(entry["host"], "other.test");
    // New doors have the same ports.
    kill_server(belljar);
    assert_eq!(answered("origin.test", DATAGRAMS, 60), "answered\n");
    belljar.run(["network", "deny", sandbox.id(), "origin.test"]).expect_success();
    assert_eq!(answered("origin.test", DATAGRAMS, 2), "silence\n");
}

fn a_paused_sandbox_keeps_its_connections(belljar: &Installation) {
    let _world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "origin.test"]);
    let program = "\
import socket
s = socket.create_connection(('origin.test', 7777), 5)
assert s.recv(6) == b'hello\\n'
print('open', flush=True)
input()
s.sendall(b'x')
assert s.recv(1) == b'x'
print('kept', flush=True)
";
    // One that waits without input of ours: a file appears when it may go on.
    let program = program.replace(
        "input()",
        "import os, time\nwhile not os.path.exists('/workspace/go'): time.sleep(0.05)",
    );
    let mut held = sandbox.start_with(&[], ["/usr/bin/python3", "-c", &program]);
    assert_eq!(held.line(), "open\n");
    let paused = belljar.run(["pause", sandbox.id()]);
    if belljar.mode() == Mode::Rootless && paused.code() != 0 {
        return; // without a cgroup nothing can, which its own tests tell
    }
    paused.expect_success();
    belljar.run(["resume", sandbox.id()]).expect_success();
    sandbox.exec(["touch", "/workspace/go"]).expect_success();
    assert_eq!(held.line(), "kept\n");
    held.finish().expect_success();
}

fn bad_rules_are_refused_before_anything_is_made(belljar: &Installation) {
    let long_label = format!("{}.test", "a".repeat(64));
    let long_name = format!("{}test", "abcdefg.".repeat(32));
    for entry in [
        "https://x.test",
        "x.test:99999",
        "x.test:0",
        "x.test:",
        "a b.test",
        " x.test",
        "a..test",
        ".test",
        "",
        "10.0.0.1",
        "[::1]",
        "0x7f.1",
        "*",
        "*.com",
        "*.github.io",
        "a.*.b",
        "a*.test",
        "x.test\n",
        "x\u{202e}.test",
        "b\u{fc}cher.test",
        &long_label,
        &long_name,
    ] {
        let refused = belljar.try_create(&["--network", "allowlist", "--allow", entry]).err();
        let refused = refused.unwrap_or_else(|| panic!("{entry} is accepted"));
        refused.expect_code("invalid-network-rule");
    }
    // Names that mean the same become one; those of other scripts have a form that all resolvers know.
    let names = ["--allow", "UPPER.Test", "--allow", "dot.test.", "--allow", "xn--bcher-kva.test"];
    let sandbox = belljar.create(&[&["--network", "allowlist"][..], &names].concat());
    let shown = belljar.run(["network", "show", sandbox.id(), "--json"]).expect_success().json();
    let normal = serde_json::json!(["dot.test", "upper.test", "xn--bcher-kva.test"]);
    assert_eq!(shown["allow"], normal);
    // No argument of a program can have a zero byte in it; a request over HTTP can.
    if belljar.mode() == Mode::Root {
        let body = "{\"network\": {\"mode\": \"allowlist\", \"allow\": [\"x\\u0000.test\"]}}";
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "--json", body, "--unix-socket"]);
        command.arg(belljar.state().join("server.sock")).arg("http://localhost/v1/sandboxes");
        let output = command.output().expect("curl runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains("invalid-network-rule"), "{told}");
    }
    let cases: [(&[&str], &str); 4] = [
        (&["--network", "allowlist"], "invalid-network-rule"),
        (&["--network", "full", "--allow-cidr", "10.0.0.0/99"], "invalid-network-rule"),
        (&["--allow-cidr", "10.0.0.0/8"], "conflicting-options"),
        (&["--network", "full", "--allow", "x.test"], "conflicting-options"),
    ];
    for (flags, code) in cases {
        let refused = belljar.try_create(flags).err();
        refused.unwrap_or_else(|| panic!("{flags:?} is accepted")).expect_code(code);
    }
}

/// Seconds for which a connection is held: longer and longer, because nothing inside says when somebody has looked.
const HELD: [f32; 5] = [0.1, 1.0, 4.0, 16.0, 32.0];

fn a_flow_tells_which_process_made_it(belljar: &Installation) {
    let world = World::new(belljar);
    world.name("six.test", &[ORIGIN_V6]);
    let flags = ["--network", "allowlist", "--allow", "origin.test", "--allow", "six.test"];
    let as_root = [&flags[..], &["--user", "root"]].concat();
    let cases =
        [(&flags[..], "origin.test"), (&flags[..], "six.test"), (&as_root[..], "origin.test")];
    // Root in a container is refused.
    let cases = if belljar.mode().is_engine() { &cases[..2] } else { &cases };
    for &(flags, host) in cases {
        let sandbox = belljar.create(flags);
        let flow = HELD.iter().enumerate().find_map(|(before, seconds)| {
            let program = format!(
                "\
import os, socket, time
s = socket.create_connection(({host:?}, {ECHO}), 60)
assert s.recv(6) == b'hello\\n'
time.sleep({seconds})
print(os.getpid())
"
            );
            let pid = python(&sandbox, &program).expect_success().text();
            let flow = wait_until(PATIENCE, || {
                let is_flow = |entry: &Value| entry["stage"] == "flow";
                log(&sandbox, belljar, &[]).into_iter().filter(is_flow).nth(before)
            });
            let flow = flow.expect("every flow is on record");
            (!flow["pid"].is_null()).then(|| (flow, pid.trim().to_owned()))
        });
        let (flow, pid) = flow.expect("somebody has looked by then");
        assert_eq!((flow["pid"].to_string(), &flow["program"]), (pid.clone(), &"python3".into()));
        assert!(flow["process_id"].is_string(), "{flow}");
        let shown = belljar.run(["network", "log", sandbox.id()]).expect_success().text();
        assert!(shown.contains(&format!("by python3 [{pid}]")), "{shown}");
        let audit = ["audit", "query", "--json", "--sandbox", sandbox.id()];
        let audit = belljar.run(audit).expect_success().text();
        assert!(audit.contains(&format!("\"pid\":\"{pid}\"")), "{audit}");
    }
}
