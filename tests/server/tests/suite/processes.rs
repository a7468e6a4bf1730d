//! Processes over the wire: output as it comes, many readers, input, terminals, ends.

use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_server_tests::{
    Host, Written, create, create_with, exec, get, read_log, refused, shell, start, wait,
};
use bytes::Bytes;

async fn write_file(client: &Client, sandbox: &str, path: &str, data: &'static [u8]) {
    let request = v1::WriteFileRequest {
        sandbox: sandbox.to_owned(),
        path: path.to_owned(),
        data: Bytes::from_static(data),
        ..v1::WriteFileRequest::default()
    };
    client.files.clone().write_file(tokio_stream::iter([request])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_byte_arrives_while_the_command_runs() {
    let Some(host) = Host::serving("first_byte") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    // It ends only because its reader has read.
    let line = "printf first; until [ -e /tmp/read ]; do sleep 0.05; done; printf second";
    let request = v1::ExecStreamRequest {
        sandbox: sandbox.clone(),
        command: Some(v1::Command { timeout_secs: Some(60.0), ..shell(line) }),
        idempotency_key: None,
    };
    let mut stream = client.processes.clone().exec_stream(request).await.unwrap().into_inner();
    let mut written = Written::default();
    while let Some(output) = stream.message().await.unwrap() {
        if output.started.is_some() {
            continue;
        }
        let first = written.stdout.is_empty();
        written.add(output);
        if first {
            assert_eq!(written.stdout, b"first");
            write_file(&client, &sandbox, "/tmp/read", b"x").await;
        }
    }
    assert_eq!(written.stdout, b"firstsecond");
    assert_eq!(written.ended.unwrap().exit_code, Some(0));
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_every_speed_get_the_same_bytes_and_hold_nobody_up() {
    let Some(host) = Host::serving("readers") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let process = start(&client, &sandbox, shell("seq 1 1500000")).await.process_id;
    // One that never reads: its stream is open, and nothing is taken from it.
    let request = v1::FollowLogRequest {
        process_id: process.clone(),
        follow: true,
        ..v1::FollowLogRequest::default()
    };
    let stalled = host.client().await.processes.follow_log(request.clone()).await.unwrap();
    let mut readers = Vec::new();
    for index in 0..8u64 {
        // Each on a connection of its own, so that one's slowness is not another's.
        let (client, process) = (host.client().await, process.clone());
        readers.push(tokio::spawn(async move {
            let request = v1::FollowLogRequest {
                process_id: process,
                follow: true,
                ..v1::FollowLogRequest::default()
            };
            let mut stream =
                client.processes.clone().follow_log(request).await.unwrap().into_inner();
            let mut written = Written::default();
            let mut pieces = 0u64;
            while let Some(output) = stream.message().await.unwrap() {
                written.add(output);
                pieces += 1;
                if index > 4 && pieces.is_multiple_of(10 - index) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            written
        }));
    }
    // The process ends although somebody does not read.
    let ended = wait(&client, &process).await;
    assert_eq!((ended.exit_code, ended.reason()), (Some(0), v1::Reason::Exited));
    let expected: String = (1..=1_500_000).map(|n| format!("{n}\n")).collect();
    for reader in readers {
        let written = reader.await.unwrap();
        assert!(written.stdout == expected.as_bytes(), "{} bytes", written.stdout.len());
        assert_eq!(written.ended.unwrap().exit_code, Some(0));
    }
    // From the middle, and only what was asked for.
    let middle = expected.len() as u64 / 2;
    let request = v1::FollowLogRequest {
        since: Some(v1::Offsets { stdout: middle, stderr: 0 }),
        channels: vec![v1::Channel::Stdout.into()],
        ..request
    };
    let mut stream = client.processes.clone().follow_log(request).await.unwrap().into_inner();
    let mut tail = Vec::new();
    while let Some(output) = stream.message().await.unwrap() {
        if tail.is_empty() && output.ended.is_none() {
            assert_eq!(output.offset, middle);
        }
        tail.extend_from_slice(&output.data);
    }
    assert!(tail == expected.as_bytes()[middle as usize..]);
    drop(stalled);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_kills_nothing_and_may_come_back() {
    let Some(host) = Host::serving("attach") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let line = "i=0; while read line; do i=$((i+1)); echo \"$i $line\"; done; exit 4";
    let command = v1::Command { stdin: true, ..shell(line) };
    let process = start(&client, &sandbox, command).await.process_id;
    let mut offset = 0;
    for turn in 1..=10u64 {
        // A new connection each time, cut off in the middle of the stream.
        let visitor = host.client().await;
        let request = v1::FollowLogRequest {
            process_id: process.clone(),
            since: Some(v1::Offsets { stdout: offset, stderr: 0 }),
            follow: true,
            ..v1::FollowLogRequest::default()
        };
        let mut stream = visitor.processes.clone().follow_log(request).await.unwrap().into_inner();
        input(&visitor, &process, format!("turn{turn}\n"), false).await;
        let mut seen = Vec::new();
        while !seen.ends_with(b"\n") {
            let output = stream.message().await.unwrap().unwrap();
            assert_eq!(output.offset, offset);
            offset += output.data.len() as u64;
            seen.extend_from_slice(&output.data);
        }
        assert_eq!(String::from_utf8_lossy(&seen), format!("{turn} turn{turn}\n"));
    }
    input(&client, &process, String::new(), true).await;
    let ended = wait(&client, &process).await;
    assert_eq!(ended.exit_code, Some(4));
    let all = read_log(&client, &process, true).await.unwrap();
    assert_eq!(all.stdout.iter().filter(|byte| **byte == b'\n').count(), 10);
    // An ended process takes no input.
    let late = v1::WriteInputRequest {
        process_id: process,
        data: Bytes::from_static(b"late"),
        close: false,
    };
    let late = client.processes.clone().write_input(tokio_stream::iter([late])).await;
    assert_eq!(refused(late), Code::ProcessEnded);
    host.finish().await;
}

async fn input(client: &Client, process: &str, text: String, close: bool) {
    let request =
        v1::WriteInputRequest { process_id: process.to_owned(), data: text.into(), close };
    client.processes.clone().write_input(tokio_stream::iter([request])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_the_size_that_it_is_given() {
    let Some(host) = Host::serving("terminal") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let line = "stty size; until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; stty size";
    let terminal = Some(v1::Terminal { rows: 33, columns: 77 });
    let command = v1::Command { terminal, timeout_secs: Some(60.0), ..shell(line) };
    let process = start(&client, &sandbox, command).await.process_id;
    let request = v1::ResizeTerminalRequest {
        process_id: process.clone(),
        size: Some(v1::Terminal { rows: 40, columns: 120 }),
    };
    // Not before the first size was told.
    let request_log = v1::FollowLogRequest {
        process_id: process.clone(),
        follow: true,
        ..v1::FollowLogRequest::default()
    };
    let mut stream = client.processes.clone().follow_log(request_log).await.unwrap().into_inner();
    let mut text = String::new();
    while let Some(output) = stream.message().await.unwrap() {
        let first = text.is_empty();
        text.push_str(&String::from_utf8_lossy(&output.data));
        if first {
            client.processes.clone().resize_terminal(request.clone()).await.unwrap();
        }
    }
    assert_eq!(text, "33 77\r\n40 120\r\n");
    assert!(wait(&client, &process).await.terminal);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_has_its_reason() {
    let Some(host) = Host::serving("reasons") else { return };
    let client = host.client().await;
    let limits = v1::Limits { memory_bytes: Some(64 << 20), ..v1::Limits::default() };
    let request =
        v1::CreateSandboxRequest { limits: Some(limits), ..v1::CreateSandboxRequest::default() };
    let sandbox = create_with(&client, request).await.sandbox_id;

    let exited = start(&client, &sandbox, shell("exit 7")).await.process_id;
    let exited = wait(&client, &exited).await;
    assert_eq!((exited.reason(), exited.exit_code), (v1::Reason::Exited, Some(7)));

    let signalled = start(&client, &sandbox, shell("sleep 1000")).await.process_id;
    let request = v1::SignalProcessRequest { process_id: signalled.clone(), signal: 9 };
    client.processes.clone().signal_process(request).await.unwrap();
    let signalled = wait(&client, &signalled).await;
    assert_eq!((signalled.reason(), signalled.exit_code), (v1::Reason::Signalled, Some(137)));

    let timed = v1::Command { timeout_secs: Some(0.3), ..shell("sleep 1000") };
    let timed = start(&client, &sandbox, timed).await.process_id;
    // Waiting has a bound of its own, which is not the process's.
    let soon = v1::WaitProcessRequest { process_id: timed.clone(), timeout_secs: Some(0.01) };
    let soon = client.processes.clone().wait_process(soon).await.unwrap().into_inner();
    assert!(soon.finished_at.is_none());
    let timed = wait(&client, &timed).await;
    assert_eq!((timed.reason(), timed.exit_code), (v1::Reason::TimedOut, Some(124)));
    assert!(timed.timed_out);

    // It does not end with TERM, so that the grace time matters.
    let cancelled =
        start(&client, &sandbox, shell("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
            .await;
    let cancelled = cancelled.process_id;
    first_byte(&client, &cancelled).await;
    let request = v1::CancelProcessRequest { process_id: cancelled.clone(), grace_secs: Some(0.3) };
    let cancelled = client.processes.clone().cancel_process(request).await.unwrap().into_inner();
    assert_eq!(cancelled.reason(), v1::Reason::Cancelled, "{cancelled:?}");
    assert_eq!(cancelled.status(), v1::ProcessStatus::Cancelled);

    let hungry = "exec python3 -c 'x=bytearray(300<<20); print(len(x))'";
    let hungry = start(&client, &sandbox, shell(hungry)).await.process_id;
    let hungry = wait(&client, &hungry).await;
    assert_eq!(hungry.reason(), v1::Reason::Oom, "{hungry:?}");
    assert!(hungry.limits_hit.iter().any(|limit| limit == "oom"), "{hungry:?}");

    let lost = start(&client, &sandbox, shell("sleep 1000")).await.process_id;
    belljar_server_tests::destroy(&client, &sandbox).await;
    let lost = get(&client, &lost).await.unwrap();
    assert!(lost.finished_at.is_some(), "{lost:?}");
    assert_eq!(lost.reason(), v1::Reason::Lost, "{lost:?}");
    host.finish().await;
}

async fn first_byte(client: &Client, process: &str) {
    let request = v1::FollowLogRequest {
        process_id: process.to_owned(),
        follow: true,
        ..v1::FollowLogRequest::default()
    };
    let mut stream = client.processes.clone().follow_log(request).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_process() {
    let Some(host) = Host::serving("idempotency") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let ask = async |line: &str| {
        let request = v1::StartProcessRequest {
            sandbox: sandbox.clone(),
            command: Some(shell(line)),
            idempotency_key: Some("once".to_owned()),
        };
        client.processes.clone().start_process(request).await
    };
    let line = "echo x >> /tmp/times";
    let first = ask(line).await.unwrap().into_inner().process_id;
    let mut again = Vec::new();
    for _ in 0..5 {
        again.push(ask(line).await.unwrap().into_inner().process_id);
    }
    assert!(again.iter().all(|id| *id == first));
    wait(&client, &first).await;
    assert_eq!(&exec(&client, &sandbox, "wc -l < /tmp/times").await.stdout[..], b"1\n");
    assert_eq!(refused(ask("echo y >> /tmp/times").await), Code::IdempotencyConflict);
    host.finish().await;
}
