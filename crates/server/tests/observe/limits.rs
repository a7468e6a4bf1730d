use std::time::{Duration, Instant};

use belljar_api::v1;
use belljar_api::v1::callbacks_client::CallbacksClient;
use belljar_api::v1::files_client::FilesClient;
use belljar_api::v1::processes_client::ProcessesClient;
use belljar_engine::{CreateRequest, NewKey, Quotas, Role, Scope, TenantId};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::fake;
use crate::support::{Server, bearing, code};

async fn key(server: &Server, tenant: &str, rate: Option<u64>) -> String {
    let tenant = TenantId::parse(tenant).unwrap();
    let quotas = Quotas { requests_per_second: rate, ..Quotas::default() };
    server.setup.engine.tenants().create(tenant.clone(), quotas).await.unwrap();
    let name = "test".to_owned();
    let new = NewKey { name, tenant, role: Role::Tenant, scopes: Vec::new(), expires_at: None };
    let (_, secret) = server.setup.engine.keys().create(new).await.unwrap();
    secret.expose().to_owned()
}

#[tokio::test]
async fn a_tenant_that_asks_too_often_is_told_when_to_come_back() {
    let server = Server::start().await;
    let slow = key(&server, "slow", Some(1)).await;
    let fast = key(&server, "fast", None).await;
    let mut sandboxes = server.sandboxes();
    let list = v1::ListSandboxesRequest::default;
    let mut limited = None;
    for _ in 0..50 {
        sandboxes.list_sandboxes(bearing(&fast, list())).await.unwrap();
        if let Err(status) = sandboxes.list_sandboxes(bearing(&slow, list())).await {
            limited = Some(status);
            break;
        }
    }
    let limited = limited.expect("fifty requests take less than fifty seconds");
    assert_eq!(limited.code(), tonic::Code::ResourceExhausted);
    assert_eq!(code(&limited), "rate-limited");
    let bearer = format!("Bearer {slow}");
    let answers = async {
        loop {
            let (status, headers, _) = server.get("/metrics", &[("authorization", &bearer)]).await;
            if status == 429 {
                return headers;
            }
        }
    };
    let headers = tokio::time::timeout(Duration::from_secs(20), answers).await.unwrap();
    assert_eq!(headers["retry-after"], "1");
    // The operator is not limited.
    for _ in 0..50 {
        sandboxes.list_sandboxes(list()).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_sends_wrong_keys_is_throttled_and_on_record() {
    let server = Server::start().await;
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(server.get("/metrics", &[("authorization", "Bearer wrong")]).await.0);
        if statuses.last() == Some(&429) {
            break;
        }
    }
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses.last(), Some(&429));
    // Who has a right key, or needs none, is not kept out by others of the same address.
    assert_eq!(server.get("/metrics", &[]).await.0, 200);
    let bearer = format!("Bearer {}", key(&server, "right", None).await);
    assert_eq!(server.get("/v1/caller", &[("authorization", &bearer)]).await.0, 200);
    let query = v1::QueryAuditRequest {
        action: Some("identify".to_owned()),
        ..v1::QueryAuditRequest::default()
    };
    let mut records = server.system().query_audit(query).await.unwrap().into_inner();
    let record = records.message().await.unwrap().unwrap();
    assert_eq!(
        (record.actor.as_str(), record.outcome.as_str()),
        ("address:127.0.0.1", "unauthenticated")
    );
    server.stop().await;
}

/// A sandbox of a tenant that may ask once a second.
async fn of_slow(server: &Server) -> (String, String) {
    let slow = key(server, "slow", Some(1)).await;
    let tenant = Scope::Tenant(TenantId::parse("slow").unwrap());
    let engine = server.setup.engine.scoped(tenant);
    let sandbox = engine.create(CreateRequest::default()).await.unwrap();
    (slow, sandbox.id.to_string())
}

async fn recorded(server: &Server, action: &str) -> usize {
    let query = v1::QueryAuditRequest {
        action: Some(action.to_owned()),
        ..v1::QueryAuditRequest::default()
    };
    let mut records = server.system().query_audit(query).await.unwrap().into_inner();
    let mut count = 0;
    while records.message().await.unwrap().is_some() {
        count += 1;
    }
    count
}

#[tokio::test]
async fn hellos_in_one_conversation_count_as_requests_and_wait_for_their_turn() {
    const SAID: usize = 200;
    let server = Server::start().await;
    let (slow, sandbox) = of_slow(&server).await;
    let hello = v1::CallbackHello { sandbox_id: sandbox, ..v1::CallbackHello::default() };
    let hello = v1::ClientCallback { hello: Some(hello), ..v1::ClientCallback::default() };
    let said = futures_util::stream::iter(vec![hello; SAID]).chain(futures_util::stream::pending());
    let mut client = CallbacksClient::new(server.channel());
    let begun = Instant::now();
    let mut heard = client.serve(bearing(&slow, said)).await.unwrap().into_inner();
    // Two come at once. The third would be one too many, and waits.
    for _ in 0..3 {
        assert!(heard.message().await.unwrap().unwrap().ready.is_some());
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "one a second: {:?}", begun.elapsed());
    // There is nothing to wait for any more.
    let never = Quotas { requests_per_second: Some(0), ..Quotas::default() };
    let tenants = server.setup.engine.tenants();
    tenants.set(&TenantId::parse("slow").unwrap(), never).await.unwrap();
    let mut ready = 3;
    let end = loop {
        match heard.message().await {
            Ok(Some(_)) if ready == SAID - 1 => panic!("all were heard"),
            Ok(Some(_)) => ready += 1,
            Ok(None) => panic!("ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(code(&end), "rate-limited");
    assert_eq!(recorded(&server, "callback.serve").await, ready, "refusals are not on record");
    server.stop().await;
}

type Socket = tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>;

async fn attach(server: &Server, key: &str, process: &str) -> Socket {
    let path = format!("ws://{}/v1/processes/{process}/attach", server.address);
    let mut request = path.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

/// What is told next, beside output.
async fn told(socket: &mut Socket) -> serde_json::Value {
    let told = async {
        loop {
            if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.unwrap()
}

#[tokio::test]
async fn signals_in_one_conversation_count_as_requests() {
    const SENT: usize = 200;
    let server = Server::start().await;
    let (slow, sandbox) = of_slow(&server).await;
    let engine = &server.setup.engine;
    let process = engine.start(&sandbox, fake::exec(&["stuck"])).await.unwrap();
    let mut socket = attach(&server, &slow, process.process.id.as_str()).await;
    for _ in 0..SENT {
        socket.send(Message::Text(r#"{"signal": 10}"#.into())).await.unwrap();
    }
    let refused = told(&mut socket).await;
    assert_eq!(refused["problem"]["code"], "rate-limited", "{refused}");
    assert!(recorded(&server, "process.signal").await < SENT);
    server.stop().await;
}

#[tokio::test]
async fn nothing_new_is_said_with_a_key_that_was_revoked_meanwhile() {
    let server = Server::start().await;
    let (secret, engine) = (key(&server, "a", None).await, &server.setup.engine);
    let scoped = engine.scoped(Scope::Tenant(TenantId::parse("a").unwrap()));
    let sandbox = scoped.create(CreateRequest::default()).await.unwrap().id;
    let echo = v1::Command { argv: vec!["cat".to_owned()], stdin: true, ..v1::Command::default() };
    let start = v1::StartProcessRequest {
        sandbox: sandbox.to_string(),
        command: Some(echo),
        idempotency_key: None,
    };
    let mut processes = ProcessesClient::new(server.channel());
    let process = processes.start_process(bearing(&secret, start)).await.unwrap().into_inner();
    let mut socket = attach(&server, &secret, &process.process_id).await;
    let hello = v1::CallbackHello { sandbox_id: sandbox.to_string(), ..Default::default() };
    let hello = v1::ClientCallback { hello: Some(hello), ..Default::default() };
    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let mut client = CallbacksClient::new(server.channel());
    let said = tokio_stream::wrappers::UnboundedReceiverStream::new(said);
    say.send(hello.clone()).unwrap();
    let mut heard = client.serve(bearing(&secret, said)).await.unwrap().into_inner();
    assert!(heard.message().await.unwrap().unwrap().ready.is_some());
    say.send(hello.clone()).unwrap();
    assert!(heard.message().await.unwrap().unwrap().ready.is_some());
    socket.send(Message::Binary("one".into())).await.unwrap();
    let output = async {
        loop {
            match socket.next().await.unwrap().unwrap() {
                Message::Binary(output) => return output,
                Message::Text(text) => panic!("{text}"),
                _ => {}
            }
        }
    };
    let output = tokio::time::timeout(Duration::from_secs(20), output).await.unwrap();
    assert!(output.ends_with(b"one"), "{output:?}");

    // Begun, and about nothing yet.
    let channel = server.channel();
    let (write, written) = tokio::sync::mpsc::unbounded_channel();
    let written = tokio_stream::wrappers::UnboundedReceiverStream::new(written);
    let (mut files, open) = (FilesClient::new(channel.clone()), bearing(&secret, written));
    let writing = tokio::spawn(async move { files.write_file(open).await });
    let (begin, begun) = tokio::sync::mpsc::unbounded_channel();
    let begun = tokio_stream::wrappers::UnboundedReceiverStream::new(begun);
    let mut silent = CallbacksClient::new(channel.clone());
    let mut silent = silent.serve(bearing(&secret, begun)).await.unwrap().into_inner();

    let made = scoped.keys().list().await.unwrap().remove(0);
    engine.keys().revoke(&made.id).await.unwrap();
    socket.send(Message::Text(r#"{"signal": 10}"#.into())).await.unwrap();
    assert_eq!(told(&mut socket).await["problem"]["code"], "unauthenticated");
    assert_eq!(recorded(&server, "process.signal").await, 0);
    socket.send(Message::Binary("two".into())).await.unwrap();
    assert_eq!(told(&mut socket).await["problem"]["code"], "unauthenticated");
    say.send(hello.clone()).unwrap();
    assert_eq!(code(&heard.message().await.unwrap_err()), "unauthenticated");
    begin.send(hello).unwrap();
    assert_eq!(code(&silent.message().await.unwrap_err()), "unauthenticated");
    let path = "/tmp/late".to_owned();
    let head = v1::WriteFileRequest { sandbox: sandbox.to_string(), path, ..Default::default() };
    write.send(head).unwrap();
    assert_eq!(code(&writing.await.unwrap().unwrap_err()), "unauthenticated");
    server.stop().await;
}
