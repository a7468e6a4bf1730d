//! The server's own life: one per state directory, ends by itself or on request, and takes no sandbox with it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_codes::Code;
use belljar_server_tests::{Host, create, destroy, exec, get, refused, shell, start, wait};
use belljar_testkit::PROMPT;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_touches_nothing() {
    let Some(host) = Host::serving("second") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let second = host.installation.run(["serve", "--json"]);
    assert_eq!(second.code(), 125, "{second}");
    assert_eq!(second.json()["error"]["code"], "server-running", "{second}");
    // The first goes on as before, on the same socket.
    assert_eq!(exec(&client, &sandbox, "echo still").await.exit_code, 0);
    assert_eq!(exec(&host.client().await, &sandbox, "echo here").await.exit_code, 0);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_automatic_server_ends_when_nobody_needs_it() {
    let Some(host) = Host::empty("automatic") else { return };
    host.serve(&["--automatic", "--idle", "0.5"], &[]);
    let client = host.client().await;
    let sandbox = create(&client).await;
    // A sandbox needs it, for longer than it would wait without one.
    assert!(!host.ends_within(Duration::from_secs(2)), "it ended under a sandbox");
    destroy(&client, &sandbox).await;
    // A request that is under way needs it too.
    let request = v1::WatchEventsRequest::default();
    let watching = client.sandboxes.clone().watch_events(request).await.unwrap();
    assert!(!host.ends_within(Duration::from_secs(2)), "it ended under a request");
    drop((watching, client));
    assert!(host.ends_within(PROMPT), "it did not end by itself");
    assert!(!host.socket().exists());
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_drains_and_leaves_sandboxes_alone() {
    let Some(host) = Host::serving("drain") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let detached = start(&client, &sandbox, shell("seq 1 5; sleep 4; seq 6 10; exit 5")).await;
    // Under way when the server is asked to end: it is answered.
    let under_way = {
        let (client, sandbox) = (client.clone(), sandbox.clone());
        tokio::spawn(async move {
            exec(&client, &sandbox, "echo begun > /tmp/begun; sleep 2; echo done").await
        })
    };
    let begun =
        async || exec(&host.client().await, &sandbox, "cat /tmp/begun").await.exit_code == 0;
    while !begun().await {}
    host.terminate();
    assert_eq!(&under_way.await.unwrap().stdout[..], b"done\n");
    assert!(host.ends_within(Duration::from_secs(15)), "it did not end");
    // Nobody attends now; the process goes on, and the next server has all of it.
    host.serve(&[], &[]);
    let client = host.client().await;
    let ended = wait(&client, &detached.process_id).await;
    assert_eq!((ended.exit_code, ended.reason()), (Some(5), v1::Reason::Exited));
    let log = belljar_server_tests::read_log(&client, &detached.process_id, false).await.unwrap();
    assert_eq!(log.stdout, b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    assert_eq!(exec(&client, &sandbox, "cat /tmp/begun").await.exit_code, 0);
    assert_eq!(get(&client, &detached.process_id).await.unwrap().exit_code, Some(5));
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_let_go_while_others_are_served() {
    let Some(host) = Host::empty("slow") else { return };
    host.serve(&["--patience", "2"], &[]);
    let port = host.port();
    let open = |text: &str| {
        let mut stream = TcpStream::connect(&port).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let stalled_body = |path: &str, kind: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: {port}\r\ncontent-type: {kind}\r\ncontent-length: 500\r\n\r\n{{"
        )
    };
    let slow = [
        ("nothing at all", open("")),
        ("half a line", open("GET /heal")),
        ("half a head", open(&format!("GET /healthz HTTP/1.1\r\nhost: {port}\r\n"))),
        ("half an HTTP/2 preface", open("PRI * HTTP/2.0\r\n")),
        ("a stalled body", open(&stalled_body("/v1/sandboxes", "application/json"))),
        (
            "a stalled message",
            open(&stalled_body(
                "/belljar.v1.Sandboxes/CreateSandbox",
                "application/grpc-web+proto",
            )),
        ),
    ];
    // Others are served meanwhile, at once.
    let client = host.client_with(None).await;
    let sandbox = create(&client).await;
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(exec(&client, &sandbox, "true").await.exit_code, 0);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for (what, mut stream) in slow {
        let mut answer = Vec::new();
        // The end of the connection, with or without words; only silence is a failure.
        let ended = match stream.read_to_end(&mut answer) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(ended, "{what}: not let go of");
    }
    // One that sends on, slowly, is not taken for one that stopped; and a stream may be silent.
    let request = v1::WatchEventsRequest::default();
    let mut watching = client.sandboxes.clone().watch_events(request).await.unwrap().into_inner();
    assert!(tokio::time::timeout(Duration::from_secs(5), watching.message()).await.is_err());
    let started = start(&client, &sandbox, shell("true")).await;
    let event = tokio::time::timeout(PROMPT, watching.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(event.process_id, Some(started.process_id));
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_the_answer_to_one_request() {
    let Some(host) = Host::empty("panic") else { return };
    host.serve(&[], &[("BELLJAR_FAULT", "panic:pause.noted")]);
    let client = host.client().await;
    let sandbox = create(&client).await;
    // Over the same connection as the request that fails.
    let everything = v1::WatchEventsRequest::default();
    let watched = client.sandboxes.clone().watch_events(everything).await;
    let mut watched = watched.unwrap().into_inner();
    let request = v1::PauseSandboxRequest { sandbox: sandbox.clone() };
    let answer = client.sandboxes.clone().pause_sandbox(request).await;
    assert_eq!(refused(answer), Code::Internal);
    let second = create(&client).await;
    let (port, path) = (host.port(), format!("/v1/sandboxes/{second}/pause"));
    let mut stream = TcpStream::connect(&port).unwrap();
    stream.set_read_timeout(Some(PROMPT)).unwrap();
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: {port}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains("\"code\":\"internal\""), "{answer}");
    assert!(host.log().contains("asked to panic at pause.noted"), "{}", host.log());
    // The server lives on, and so does what shared the connection.
    let other = create(&client).await;
    assert_eq!(exec(&client, &other, "echo on").await.exit_code, 0);
    let told = tokio::time::timeout(PROMPT, watched.message()).await.unwrap().unwrap();
    assert!(told.is_some());
    // Nor does what failed midway stand in the way of anything.
    for sandbox in [&sandbox, &second, &other] {
        destroy(&client, sandbox).await;
    }
    host.finish().await;
}
