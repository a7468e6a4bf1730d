//! The registry with clients that answer, do not answer, and go away.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::SandboxId;
use tokio::sync::mpsc::Receiver;

use super::*;

const SOON: Duration = Duration::from_secs(5);

fn sandbox(text: &str) -> SandboxId {
    SandboxId::parse(text).unwrap()
}

fn declared(name: &str) -> v1::ToolDeclaration {
    v1::ToolDeclaration { name: name.to_owned(), ..Default::default() }
}

fn hello(tools: &[&str]) -> v1::CallbackHello {
    v1::CallbackHello {
        tools: tools.iter().map(|name| declared(name)).collect(),
        ..Default::default()
    }
}

fn offer(tools: &[&str]) -> Offer {
    Offer::new(hello(tools)).unwrap()
}

fn tool(name: &str) -> v1::ToolCall {
    v1::ToolCall { name: name.to_owned(), arguments: "{}".to_owned(), process_id: None }
}

/// A client that answers each call with what `answer` makes of it.
fn answering(
    client: Arc<Client>,
    mut calls: Receiver<v1::ServerCallback>,
    answer: impl Fn(v1::CallbackCall) -> v1::CallbackAnswer + Send + 'static,
) {
    tokio::spawn(async move {
        while let Some(message) = calls.recv().await {
            if let Some(call) = message.call {
                client.answer(answer(call));
            }
        }
    });
}

fn result(call: &v1::CallbackCall, json: &str) -> v1::CallbackAnswer {
    let tool_result = Some(v1::ToolResult { json: json.to_owned() });
    v1::CallbackAnswer { call_id: call.call_id, tool_result, ..Default::default() }
}

#[tokio::test]
async fn a_tool_is_asked_of_the_client_that_declared_it_for_that_sandbox() {
    let (callbacks, one, two) = (Callbacks::default(), sandbox("n001aaaa"), sandbox("n001bbbb"));
    let mut places = Vec::new();
    for (sandbox, json) in [(&one, "1"), (&two, "2")] {
        let (client, calls) = Client::new();
        places.push(callbacks.register(sandbox, &client, offer(&["add"])).unwrap());
        answering(client, calls, |call| result(&call, json));
    }
    assert_eq!(callbacks.tool(&one, tool("add"), SOON).await.as_deref(), Ok("1"));
    assert_eq!(callbacks.tool(&two, tool("add"), SOON).await.as_deref(), Ok("2"));
    assert_eq!(callbacks.tool(&one, tool("other"), SOON).await, Err(CallError::Absent));
    let elsewhere = sandbox("n001cccc");
    assert_eq!(callbacks.tool(&elsewhere, tool("add"), SOON).await, Err(CallError::Absent));
    assert_eq!(callbacks.tools(&one).len(), 1);
    drop(places);
    assert_eq!(callbacks.tool(&one, tool("add"), SOON).await, Err(CallError::Absent));
    assert!(callbacks.tools(&one).is_empty());
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let (client, mut calls) = Client::new();
    let _place = callbacks.register(&id, &client, offer(&["echo"])).unwrap();
    let asked = (0..50).map(|number| {
        let call = v1::ToolCall { arguments: format!("[{number}]"), ..tool("echo") };
        let (callbacks, id) = (callbacks.clone(), id.clone());
        tokio::spawn(async move { callbacks.tool(&id, call, SOON).await })
    });
    let asked: Vec<_> = asked.collect();
    let mut received = Vec::new();
    while received.len() < 50 {
        received.push(calls.recv().await.unwrap().call.unwrap());
    }
    for call in received.iter().rev() {
        client.answer(result(call, &call.tool.as_ref().unwrap().arguments));
    }
    for (number, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.unwrap(), Ok(format!("[{number}]")));
    }
}

#[tokio::test]
async fn who_goes_away_lets_nobody_wait() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let (client, mut calls) = Client::new();
    let place = callbacks.register(&id, &client, offer(&["slow"])).unwrap();
    let asked = {
        let (callbacks, id) = (callbacks.clone(), id.clone());
        let hour = Duration::from_secs(3600);
        tokio::spawn(async move { callbacks.tool(&id, tool("slow"), hour).await })
    };
    calls.recv().await.unwrap();
    drop(place);
    assert_eq!(asked.await.unwrap(), Err(CallError::Vanished));
}

#[tokio::test(start_paused = true)]
async fn who_takes_too_long_is_told_so() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let (client, mut calls) = Client::new();
    let _place = callbacks.register(&id, &client, offer(&["slow"])).unwrap();
    assert_eq!(callbacks.tool(&id, tool("slow"), SOON).await, Err(CallError::TimedOut));
    let call = calls.recv().await.unwrap().call.unwrap();
    assert_eq!(call.deadline_ms, 5000);
    assert_eq!(calls.recv().await.unwrap().cancel.unwrap().call_id, call.call_id);
    // It comes too late and harms nothing.
    client.answer(result(&call, "1"));
}

#[tokio::test]
async fn calls_that_wait_for_one_client_are_bounded() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let (client, mut calls) = Client::new();
    let _place = callbacks.register(&id, &client, offer(&["slow"])).unwrap();
    let ask = || {
        let (callbacks, id) = (callbacks.clone(), id.clone());
        tokio::spawn(async move { callbacks.tool(&id, tool("slow"), SOON).await })
    };
    let waiting: Vec<_> = (0..MAX_CALLS).map(|_| ask()).collect();
    let mut received = Vec::new();
    while received.len() < MAX_CALLS as usize {
        received.push(calls.recv().await.unwrap().call.unwrap());
    }
    assert_eq!(ask().await.unwrap(), Err(CallError::Busy));
    for call in &received {
        client.answer(result(call, "1"));
    }
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().as_deref(), Ok("1"));
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_refused() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let (client, calls) = Client::new();
    let _place = callbacks
        .register(&id, &client, offer(&["broken", "deep", "large", "fails", "verdict", "fine"]))
        .unwrap();
    answering(client, calls, |call| match call.tool.as_ref().unwrap().name.as_str() {
        "broken" => result(&call, "{"),
        "deep" => result(&call, &("[".repeat(100) + &"]".repeat(100))),
        "large" => result(&call, &format!("\"{}\"", "x".repeat(MAX_RESULT))),
        "fails" => {
            let tool_error = Some(v1::ToolError { message: "no such city".to_owned() });
            v1::CallbackAnswer { call_id: call.call_id, tool_error, ..Default::default() }
        }
        "verdict" => {
            let connection = Some(v1::ConnectionVerdict { allow: true, ..Default::default() });
            v1::CallbackAnswer { call_id: call.call_id, connection, ..Default::default() }
        }
        _ => result(&call, "null"),
    });
    for name in ["broken", "deep", "large", "verdict"] {
        let answer = callbacks.tool(&id, tool(name), SOON).await;
        assert!(matches!(answer, Err(CallError::Malformed(_))), "{name}: {answer:?}");
    }
    let failed = CallError::Failed("no such city".to_owned());
    assert_eq!(callbacks.tool(&id, tool("fails"), SOON).await, Err(failed));
    assert_eq!(callbacks.tool(&id, tool("fine"), SOON).await.as_deref(), Ok("null"));
}

#[tokio::test]
async fn decisions_are_asked_of_who_makes_them() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let connection = || v1::ConnectionCall { transport: "tcp".to_owned(), ..Default::default() };
    let request = || v1::RequestCall { method: "GET".to_owned(), ..Default::default() };
    let (tools, _calls) = Client::new();
    let _place = callbacks.register(&id, &tools, offer(&["add"])).unwrap();
    assert_eq!(callbacks.decides(&id), (false, false));
    assert_eq!(callbacks.connection(&id, connection(), SOON).await, Err(CallError::Absent));
    assert_eq!(callbacks.request(&id, request(), SOON).await, Err(CallError::Absent));

    let (client, calls) = Client::new();
    let decides =
        v1::CallbackHello { decides_connections: true, handles_requests: true, ..hello(&[]) };
    let _second = callbacks.register(&id, &client, Offer::new(decides.clone()).unwrap()).unwrap();
    assert_eq!(callbacks.decides(&id), (true, true));
    answering(client, calls, |call| {
        let connection = call.connection.map(|call| v1::ConnectionVerdict {
            allow: call.transport == "tcp",
            ..Default::default()
        });
        let request = call.request.map(|call| v1::RequestVerdict {
            allow: true,
            set_headers: vec![v1::HttpHeader { name: "X-Was".to_owned(), value: call.method }],
            ..Default::default()
        });
        v1::CallbackAnswer { call_id: call.call_id, connection, request, ..Default::default() }
    });
    assert!(callbacks.connection(&id, connection(), SOON).await.unwrap().allow);
    let udp = v1::ConnectionCall { transport: "udp".to_owned(), ..Default::default() };
    assert!(!callbacks.connection(&id, udp, SOON).await.unwrap().allow);
    let verdict = callbacks.request(&id, request(), SOON).await.unwrap();
    assert_eq!(
        (verdict.set_headers[0].name.as_str(), verdict.set_headers[0].value.as_str()),
        ("x-was", "GET")
    );

    let (third, _calls) = Client::new();
    let refused = callbacks.register(&id, &third, Offer::new(decides).unwrap()).unwrap_err();
    assert_eq!(refused.code, Code::CallbackExists);
}

#[test]
fn one_client_answers_for_one_thing_until_it_is_gone() {
    let (callbacks, id) = (Callbacks::default(), sandbox("n001aaaa"));
    let (first, _calls) = Client::new();
    let place = callbacks.register(&id, &first, offer(&["a", "b"])).unwrap();
    let (second, _calls) = Client::new();
    let refused = callbacks.register(&id, &second, offer(&["b", "c"])).unwrap_err();
    assert_eq!(refused.code, Code::CallbackExists);
    // What was refused is not half taken.
    assert!(callbacks.declaration(&id, "c").is_none());
    // The first lets go of `b`, or leaves altogether.
    place.change(offer(&["a"])).unwrap();
    let other = callbacks.register(&id, &second, offer(&["b", "c"])).unwrap();
    assert_eq!(place.change(offer(&["a", "b"])).unwrap_err().code, Code::CallbackExists);
    assert!(callbacks.declaration(&id, "a").is_some());
    drop(place);
    other.change(offer(&["a", "b", "c"])).unwrap();
}

#[test]
fn declarations_are_bounded() {
    let check = |hello: v1::CallbackHello, fine: bool| {
        assert_eq!(Offer::new(hello.clone()).is_ok(), fine, "{hello:?}");
    };
    check(hello(&["get_weather", "a.b-c"]), true);
    check(hello(&["twice", "twice"]), false);
    for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
        check(hello(&[name]), false);
    }
    let names: Vec<_> = (0..=MAX_TOOLS).map(|number| format!("t{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    check(hello(&names), false);
    check(hello(&names[1..]), true);
    let schema = |text: &str| v1::CallbackHello {
        tools: vec![v1::ToolDeclaration { input_schema: text.to_owned(), ..declared("a") }],
        ..Default::default()
    };
    check(schema(r#"{"type": "object"}"#), true);
    check(schema("true"), false);
    check(schema("{"), false);
    check(schema(&format!("{{\"a\": {}1{}}}", "[".repeat(70), "]".repeat(70))), false);
    check(schema(&format!("{{\"a\": \"{}\"}}", "x".repeat(70_000))), false);
}
