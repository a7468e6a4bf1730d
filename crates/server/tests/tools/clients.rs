//! Tools that are functions of connected clients.

use belljar_api::v1;
use belljar_api::v1::callbacks_client::CallbacksClient;
use belljar_engine::{NewKey, Quotas, Role, TenantId};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use super::host::with_host;

const CALL: &str = r#"
from belljar_tools import call, list_tools, ToolError
import sys
try:
    print(call("add", a=1, b=2))
except ToolError as error:
    print(error.code, error.message)
"#;

fn add(_: &str, arguments: Value) -> Option<Result<Value, String>> {
    let number = |name: &str| arguments[name].as_i64().ok_or(format!("{name} is no number"));
    Some(number("a").and_then(|a| Ok(json!(a + number("b")?))))
}

#[test]
fn a_client_answers_over_grpc() {
    with_host(async |host| {
        let id = host.create("tool_allowlist: [add, boom]").await;
        let ran = host.python(&id, CALL).await;
        assert!(ran.out.starts_with("tool-unavailable "), "{ran:?}");
        // What the client offers beyond the list does not exist inside.
        let client = host.client(&id, &["add", "unlisted"], add).await;
        assert_eq!(host.python(&id, CALL).await.out, "3\n");
        assert_eq!(host.call(&id, "unlisted", "{}").await, Err("tool-not-found".to_owned()));
        let list = host.shell(&id, "belljar-tool list").await.out;
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list[0]["description"], "does add");
        let failed = host.python(&id, &CALL.replace("b=2", "b='x'")).await;
        assert_eq!(failed.out, "tool-failed b is no number\n", "{failed:?}");
        drop(client);
        // The server learns of it when the connection ends.
        loop {
            let ran = host.python(&id, CALL).await;
            if ran.out.starts_with("tool-unavailable ") {
                break;
            }
        }
        host
    });
}

#[test]
fn a_client_that_vanishes_lets_nobody_wait() {
    with_host(async |host| {
        let id = host.create("tool_allowlist: [add]").await;
        let mut client = host.client(&id, &["add"], |_, _| None).await;
        let (engine, sandbox) = (host.engine.clone(), id.clone());
        let line = "belljar-tool call add '{}'";
        let program = belljar_engine::Program::Shell(line.into());
        let waiting = tokio::spawn(async move {
            let process = engine.exec(&sandbox, belljar_engine::ExecRequest::new(program)).await;
            process.unwrap().wait().await.unwrap()
        });
        client.heard.recv().await.unwrap();
        drop(client);
        let ended = waiting.await.unwrap();
        let said = String::from_utf8(ended.stderr.data).unwrap();
        assert!(said.contains("went away") && said.contains("(tool-unavailable)"), "{said}");
        host
    });
}

#[test]
fn a_client_answers_over_a_web_socket() {
    with_host(async |host| {
        let id = host.create("tool_allowlist: [add]").await;
        let stream = tokio::net::TcpStream::connect(host.address).await.unwrap();
        let url = format!("ws://{}/v1/callbacks", host.address);
        let (mut socket, _) = client_async(url, stream).await.unwrap();
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "integer"}}}).to_string();
        let tools = json!([{"name": "add", "description": "adds", "input_schema": schema}]);
        let hello = json!({"hello": {"sandbox_id": id.as_str(), "tools": tools}});
        socket.send(Message::Text(hello.to_string().into())).await.unwrap();
        let answering = tokio::spawn(async move {
            while let Some(Ok(message)) = socket.next().await {
                let Message::Text(text) = message else { continue };
                let message: Value = serde_json::from_str(&text).unwrap();
                let Some(call) = message["call"].as_object() else { continue };
                let arguments: Value =
                    serde_json::from_str(call["tool"]["arguments"].as_str().unwrap()).unwrap();
                let sum = arguments["a"].as_i64().unwrap() + arguments["b"].as_i64().unwrap();
                let result =
                    json!({"call_id": call["call_id"], "tool_result": {"json": sum.to_string()}});
                let answer = json!({"answer": result}).to_string();
                socket.send(Message::Text(answer.into())).await.unwrap();
            }
        });
        // It is asked once it is known.
        while host.call(&id, "add", r#"{"a": 1, "b": 1}"#).await != Ok("2".to_owned()) {}
        assert_eq!(host.python(&id, CALL).await.out, "3\n");
        let bad = host.python(&id, &CALL.replace("a=1", "a='x'")).await;
        assert!(bad.out.starts_with("invalid-argument "), "{bad:?}");
        answering.abort();
        host
    });
}

#[test]
fn answers_do_not_wait_with_hellos() {
    const MORE: usize = 15;
    with_host(async |host| {
        let id = host.create("tool_allowlist: [add]").await;
        let tenant = TenantId::default();
        let quotas = Quotas { requests_per_second: Some(1), ..Quotas::default() };
        host.engine.tenants().set(&tenant, quotas).await.unwrap();
        let (name, role) = ("test".to_owned(), Role::Tenant);
        let key = NewKey { name, tenant, role, scopes: Vec::new(), expires_at: None };
        let (_, secret) = host.engine.keys().create(key).await.unwrap();
        let tools = vec![v1::ToolDeclaration { name: "add".to_owned(), ..Default::default() }];
        let hello = v1::CallbackHello { sandbox_id: id.to_string(), tools, ..Default::default() };
        let hello = v1::ClientCallback { hello: Some(hello), ..Default::default() };
        let (say, said) = mpsc::channel(2 * MORE);
        say.send(hello.clone()).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(said));
        let bearer = format!("Bearer {}", secret.expose()).parse().unwrap();
        request.metadata_mut().insert("authorization", bearer);
        let mut client = CallbacksClient::new(host.channel());
        let mut heard = client.serve(request).await.unwrap().into_inner();
        assert!(heard.message().await.unwrap().unwrap().ready.is_some());
        for _ in 0..MORE {
            say.send(hello.clone()).await.unwrap();
        }
        let told = tokio::spawn(async move {
            let mut taken_up = 0;
            while let Ok(Some(message)) = heard.message().await {
                taken_up += usize::from(message.ready.is_some());
                let Some(call) = message.call else { continue };
                let tool_result = Some(v1::ToolResult { json: taken_up.to_string() });
                let answer =
                    v1::CallbackAnswer { call_id: call.call_id, tool_result, ..Default::default() };
                let answer = v1::ClientCallback { answer: Some(answer), ..Default::default() };
                say.send(answer).await.unwrap();
            }
            taken_up
        });
        // By the time of the answer most hellos wait; they are taken up afterwards, one a second.
        let before: usize = host.call(&id, "add", "{}").await.unwrap().parse().unwrap();
        assert!(before < MORE, "{before}");
        assert!(!told.is_finished());
        told.abort();
        host
    });
}

#[test]
fn a_sandbox_has_its_own_tools_and_no_others() {
    with_host(async |host| {
        let one = host.create("tool_allowlist: [who, one]").await;
        let two = host.create("tool_allowlist: [who, two]").await;
        let _first = host.client(&one, &["who", "one"], |_, _| Some(Ok(json!("first")))).await;
        let _second = host.client(&two, &["who", "two"], |_, _| Some(Ok(json!("second")))).await;
        assert_eq!(host.call(&one, "who", "{}").await.as_deref(), Ok("\"first\""));
        assert_eq!(host.call(&two, "who", "{}").await.as_deref(), Ok("\"second\""));
        assert_eq!(host.call(&one, "one", "{}").await.as_deref(), Ok("\"first\""));
        assert_eq!(host.call(&one, "two", "{}").await, Err("tool-not-found".to_owned()));
        assert_eq!(host.call(&two, "one", "{}").await, Err("tool-not-found".to_owned()));
        host
    });
}

#[test]
fn node_calls_tools_too() {
    with_host(async |host| {
        let id = host.create("tool_allowlist: [add]").await;
        if host.shell(&id, "command -v node").await.code != 0 {
            belljar_testkit::skip("node_calls_tools_too", "there is no node in the sandbox");
            return host;
        }
        let _client = host.client(&id, &["add"], add).await;
        let code = r#"
const { call, listTools } = require('belljar-tools')
;(async () => {
  console.log(await call('add', { a: 20, b: 22 }), (await listTools()).length)
  await call('nothing').catch(error => console.log(error.code))
})()
"#;
        let ran = host.shell(&id, &format!("node -e '{}'", code.replace('\'', "\""))).await;
        assert_eq!(ran.out, "42 1\ntool-not-found\n", "{ran:?}");
        host
    });
}
