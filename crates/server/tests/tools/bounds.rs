//! What is too much, too long or too often, each beside what is not.

use std::time::Duration;

use super::host::with_host;

const POLICY: &str = r#"
tool_allowlist: [slow, quick, large, fits, length, seldom]
tools:
  - {name: slow, timeout_seconds: 1, command: [/bin/sh, -c, 'setsid sleep 987654 & sleep 987654']}
  - {name: quick, timeout_seconds: 10, command: [/bin/echo, '1']}
  - {name: large, command: [/bin/sh, -c, 'head -c 1100000 /dev/zero | tr "\0" x']}
  - {name: fits, command: [/bin/sh, -c, 'head -c 1000000 /dev/zero | tr "\0" x']}
  - {name: length, command: [/usr/bin/wc, -c]}
  - {name: seldom, calls_per_second: 1, command: [/bin/echo, '1']}
"#;

#[test]
fn what_is_too_large_is_refused() {
    with_host(async |host| {
        let id = host.create(POLICY).await;
        assert_eq!(host.call(&id, "large", "{}").await, Err("tool-failed".to_owned()));
        let fits = "belljar-tool call fits '{}' | wc -c";
        assert_eq!(host.shell(&id, fits).await.out.trim(), "1000003");
        let said = |size: usize| {
            format!(
                r#"(printf '{{"x":"'; head -c {size} /dev/zero | tr '\0' x; printf '"}}') | belljar-tool call length"#
            )
        };
        assert_eq!(host.shell(&id, &said(130_000)).await.out.trim(), "130008");
        let refused = host.shell(&id, &said(140_000)).await;
        assert!(refused.err.contains("(request-too-large)"), "{refused:?}");
        let deep =
            r#"python3 -c 'print("{\"x\":" + "["*100 + "]"*100 + "}")' | belljar-tool call length"#;
        let refused = host.shell(&id, deep).await;
        assert!(refused.err.contains("(invalid-argument)"), "{refused:?}");
        host
    });
}

#[test]
fn what_takes_too_long_is_ended_with_all_that_it_started() {
    with_host(async |host| {
        let id = host.create(POLICY).await;
        assert_eq!(host.call(&id, "slow", "{}").await, Err("timed-out".to_owned()));
        let left = || {
            let found = std::process::Command::new("pgrep").args(["-f", "^sleep 987654$"]).output();
            found.unwrap().stdout
        };
        let gone = belljar_testkit::wait_until(Duration::from_secs(10), || {
            left().is_empty().then_some(())
        });
        assert!(gone.is_some(), "{:?}", String::from_utf8_lossy(&left()));
        assert_eq!(host.call(&id, "quick", "{}").await.as_deref(), Ok("1"));
        // Who no longer waits has it ended too.
        host.shell(&id, "timeout 0.3 belljar-tool call slow '{}'").await;
        let gone = belljar_testkit::wait_until(Duration::from_secs(10), || {
            left().is_empty().then_some(())
        });
        assert!(gone.is_some(), "{:?}", String::from_utf8_lossy(&left()));
        host
    });
}

#[test]
fn what_comes_too_often_is_refused() {
    with_host(async |host| {
        let id = host.create(POLICY).await;
        let often = |name: &str| {
            format!("for i in 1 2 3 4 5; do belljar-tool call {name} '{{}}'; done 2>&1")
        };
        let said = host.shell(&id, &often("seldom")).await.out;
        assert!(said.starts_with("1\n") && said.contains("(rate-limited)"), "{said}");
        assert_eq!(host.shell(&id, &often("quick")).await.out, "1\n".repeat(5));
        host
    });
}

#[test]
fn nonsense_harms_nobody() {
    with_host(async |host| {
        let id = host.create(POLICY).await;
        let code = r#"
import socket, os
path = "/run/belljar/service/tools.sock"
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(path); return s
def say(data):
    s = connect()
    try: s.sendall(data); s.shutdown(socket.SHUT_WR)
    except OSError: pass
    got = b""
    try:
        while True:
            piece = s.recv(65536)
            if not piece: break
            got += piece
    except OSError: pass
    return got
for data in [b"\n", b"nonsense\n", b"call\n", b"call a/b {}\n", b"\x00" * 100 + b"\n", b"call quick \xff\xfe\n", os.urandom(1000).replace(b"\n", b"") + b"\n"]:
    got = say(data)
    assert got.startswith(b"error invalid-argument") or got.startswith(b"error request"), (data, got)
assert say(b"call quick " + b"x" * 1000000 + b"\n").startswith(b"error request-too-large")
assert say(b"unfinished") == b""
silent = [connect() for _ in range(40)]
from belljar_tools import call
assert call("quick") == 1
print("fine")
"#;
        let ran = host.python(&id, code).await;
        assert_eq!(ran.out, "fine\n", "{ran:?}");
        host
    });
}
