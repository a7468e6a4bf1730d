//! Tools from inside real sandboxes: who runs them, who is refused, and what happens when somebody is not there.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod bounds;
mod clients;
mod host;

use std::time::Duration;

use bytes::Bytes;
use host::{code_of, with_host};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const ADD: &str = r#"
    input_schema:
      type: object
      properties: {a: {type: integer}, b: {type: integer}}
      required: [a, b]
      additionalProperties: false
"#;

#[test]
fn a_program_of_the_host_is_a_tool() {
    with_host(async |host| {
        let policy = format!(
            r#"
name: tools
tool_allowlist: [add, env, words, fails, missing]
rules:
  - name: small
    condition: {{field: arguments.a, operator: gt, value: 100}}
    action: deny
    message: only small numbers
tools:
  - name: add
    description: Adds.
    command: [/bin/sh, -c, 'read x; echo "$x" | tr -dc "0-9," | tr "," "+" | awk -F+ "{{print \$1+\$2}}"']{ADD}
  - {{name: env, command: [/usr/bin/env]}}
  - {{name: words, command: [/bin/echo, not JSON]}}
  - {{name: fails, command: [/bin/sh, -c, 'echo secret path >&2; exit 3']}}
  - {{name: hidden, command: [/bin/echo, '1']}}
"#
        );
        let id = host.create(&policy).await;
        assert_eq!(host.call(&id, "add", r#"{"a": 2, "b": 40}"#).await.as_deref(), Ok("42"));
        let bad = host.shell(&id, r#"belljar-tool call add '{"a": "2", "b": 40}'"#).await;
        assert_eq!((bad.code, code_of(&bad.err).as_str()), (1, "invalid-argument"), "{bad:?}");
        assert!(bad.err.contains("`/a` is not of type integer"), "{bad:?}");
        for json in ["[1]", "{", "", r#"{"a":1,"b":2,"c":3}"#] {
            let refused = host.call(&id, "add", json).await;
            assert_eq!(refused, Err("invalid-argument".to_owned()), "{json}");
        }
        let denied = host.shell(&id, r#"belljar-tool call add '{"a": 101, "b": 1}'"#).await;
        assert_eq!(code_of(&denied.err), "policy-denied", "{denied:?}");
        assert!(denied.err.contains("only small numbers"), "{denied:?}");
        // Neither what is not declared for the sandbox, nor what nobody has heard of, nor what nobody answers for.
        assert_eq!(host.call(&id, "hidden", "{}").await, Err("tool-not-found".to_owned()));
        assert_eq!(host.call(&id, "rm", "{}").await, Err("tool-not-found".to_owned()));
        assert_eq!(host.call(&id, "missing", "{}").await, Err("tool-unavailable".to_owned()));

        assert_eq!(host.call(&id, "words", "{}").await.as_deref(), Ok("\"not JSON\""));
        let failed = host.shell(&id, "belljar-tool call fails '{}'").await;
        assert_eq!(code_of(&failed.err), "tool-failed");
        assert!(failed.err.contains("exit code 3") && !failed.err.contains("secret"), "{failed:?}");
        let env = host.call(&id, "env", "{}").await.unwrap();
        assert!(env.contains("BELLJAR_TOOL=env") && !env.contains("HOME"), "{env}");

        let list = host.shell(&id, "belljar-tool list").await;
        let list: serde_json::Value = serde_json::from_str(&list.out).unwrap();
        let names: Vec<_> = list.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["add", "env", "words", "fails"]);
        assert_eq!(list[0]["input_schema"]["required"], serde_json::json!(["a", "b"]));

        let calls = host.audit("tool.call").await;
        let added = &calls[0];
        assert_eq!((added.outcome.as_str(), added.detail["by"].as_str()), ("ok", "command"));
        assert_eq!(added.sandbox.as_deref(), Some(id.as_str()));
        assert!(added.process.is_some(), "{added:?}");
        assert!(calls.iter().any(|call| call.outcome == "tool-not-found"));
        let decided = host.audit("policy.tool").await;
        assert!(decided.iter().any(|entry| entry.outcome == "ok"));
        let denied = decided.iter().find(|entry| entry.outcome == "policy-denied").unwrap();
        assert_eq!(denied.detail["rule"], "small");
        host
    });
}

#[test]
fn without_tools_there_is_nothing_to_call() {
    with_host(async |host| {
        let with = host.create("tool_allowlist: [x]").await;
        let without = host.create("name: none").await;
        let look = "command -v belljar-tool; ls /run/belljar/service/tools.sock; env";
        let found = host.shell(&with, look).await.out;
        assert!(found.contains("/belljar-tool\n") && found.contains("/tools.sock\n"), "{found}");
        assert!(found.contains("PYTHONPATH=") && found.contains("NODE_PATH="), "{found}");
        let found = host.shell(&without, look).await.out;
        assert!(
            !found.contains("belljar-tool")
                && !found.contains("tools.sock")
                && !found.contains("PYTHONPATH"),
            "{found}"
        );
        // What is there cannot be changed.
        let write = "echo x > /run/belljar/tools/python/belljar_tools.py";
        assert_ne!(host.shell(&with, write).await.code, 0);
        assert_ne!(host.shell(&with, "rm /run/belljar/service/tools.sock").await.code, 0);
        host
    });
}

#[test]
fn an_address_is_a_tool() {
    with_host(async |host| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(async |request: http::Request<hyper::body::Incoming>| {
                    let path = request.uri().path().to_owned();
                    let tool = request.headers()["belljar-tool"].to_str().unwrap().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let body = String::from_utf8(body.to_vec()).unwrap();
                    let (status, text) = match path.as_str() {
                        "/echo" => (200, format!(r#"{{"tool": "{tool}", "got": {body}}}"#)),
                        "/large" => (200, "x".repeat(2 << 20)),
                        "/moved" => (302, String::new()),
                        _ => (500, "secret".to_owned()),
                    };
                    let answer =
                        http::Response::builder().status(status).header("location", "/echo");
                    answer.body(Full::new(Bytes::from(text)))
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        let tools = ["echo", "large", "moved", "broken"].map(|name| {
            format!("  - {{name: {name}, http: {{url: 'http://{address}/{name}'}}}}\n")
        });
        let policy = format!(
            "tool_allowlist: [echo, large, moved, broken, nobody]\ntools:\n{}  - {{name: nobody, http: {{url: 'http://127.0.0.1:1/'}}}}\n",
            tools.concat()
        );
        let id = host.create(&policy).await;
        let echoed = host.call(&id, "echo", r#"{"x": [1]}"#).await.unwrap();
        let echoed: serde_json::Value = serde_json::from_str(&echoed).unwrap();
        assert_eq!(echoed, serde_json::json!({"tool": "echo", "got": {"x": [1]}}));
        for name in ["large", "moved", "broken", "nobody"] {
            assert_eq!(host.call(&id, name, "{}").await, Err("tool-failed".to_owned()), "{name}");
        }
        host
    });
}

/// Whether a program with this word among its arguments runs, in whichever sandbox.
fn runs_on_this_machine(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.map(|process| process.path().join("cmdline"));
    let mut read = arguments.filter_map(|path| std::fs::read(path).ok());
    read.any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

#[test]
fn a_server_that_ends_is_missed_and_its_successor_answers() {
    with_host(async |host| {
        let id = host
            .create("tool_allowlist: [one]\ntools: [{name: one, command: [/bin/echo, '1']}]")
            .await;
        assert_eq!(host.call(&id, "one", "{}").await.as_deref(), Ok("1"));
        // Calls until one is missed, then as a program whose name is seen from outside, until the next server answers.
        let missed = format!("missed-{id}");
        let line = format!(
            "until belljar-tool call one '{{}}' 2>&1 | tee /tmp/said | grep -q error; do :; done; \
             exec sh -c 'until belljar-tool call one {{}} >/tmp/again 2>/dev/null; do :; done' {missed}"
        );
        let started = host
            .engine
            .start(
                id.as_str(),
                belljar_engine::ExecRequest::new(belljar_engine::Program::Shell(line.into())),
            )
            .await
            .unwrap();
        let process = started.process.clone();
        let state = host.stop().await;
        while !runs_on_this_machine(&missed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let host = host::Host::start(&state).await;
        host.engine.wait(&process.id, Some(Duration::from_secs(60))).await.unwrap();
        let said = host.shell(&id, "cat /tmp/again; grep -c unavailable /tmp/said").await;
        assert_eq!((said.code, said.out.as_str()), (0, "1\n1\n"), "{said:?}");
        assert_eq!(host.call(&id, "one", "{}").await.as_deref(), Ok("1"));
        host
    });
}
