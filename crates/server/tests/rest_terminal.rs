//! Processes over WebSocket, against a real sandbox.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::Method;
use serde_json::{Value, json};
use support::{Client, with_server};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

type Socket = WebSocketStream<TcpStream>;

async fn connect(client: &Client, path: &str) -> Socket {
    let stream = TcpStream::connect(client.address).await.unwrap();
    client_async(format!("ws://{}{path}", client.address), stream).await.unwrap().0
}

/// The next message that says something.
async fn next(socket: &mut Socket) -> Option<Message> {
    loop {
        match socket.next().await?.unwrap() {
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
            message => return Some(message),
        }
    }
}

async fn told(socket: &mut Socket) -> Value {
    match next(socket).await {
        Some(Message::Text(text)) => serde_json::from_str(&text).unwrap(),
        other => panic!("not text: {other:?}"),
    }
}

/// Gathers output of a channel until it has the text.
async fn output(socket: &mut Socket, channel: u8, text: &str) -> u64 {
    let (mut seen, mut first) = (Vec::new(), None);
    while !String::from_utf8_lossy(&seen).contains(text) {
        match next(socket).await {
            Some(Message::Binary(frame)) if frame[0] == channel => {
                first.get_or_insert(u64::from_be_bytes(frame[1..9].try_into().unwrap()));
                seen.extend_from_slice(&frame[9..]);
            }
            Some(Message::Binary(_)) => {}
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&seen)),
        }
    }
    first.unwrap()
}

#[test]
fn input_goes_in_and_output_comes_out_any_number_of_times() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let start = format!("/v1/sandboxes/{id}/processes");
        let command = json!({"command": {"argv": ["cat"], "stdin": true}});
        let started = client.post(&start, &command).await.ok();
        let process = started["process_id"].as_str().unwrap();
        let attach = format!("/v1/processes/{process}/attach");

        let mut first = connect(&client, &attach).await;
        first.send(Message::Binary("one\n".into())).await.unwrap();
        assert_eq!(output(&mut first, 1, "one\n").await, 0);
        drop(first);

        let mut second = connect(&client, &attach).await;
        assert_eq!(output(&mut second, 1, "one\n").await, 0);
        let mut later = connect(&client, &format!("{attach}?since=4")).await;
        second.send(Message::Binary("two\n".into())).await.unwrap();
        output(&mut second, 1, "two\n").await;
        assert_eq!(output(&mut later, 1, "two\n").await, 4);
        second.send(Message::Text("{\"nonsense\": 1}".into())).await.unwrap();
        assert_eq!(told(&mut second).await["problem"]["code"], "invalid-argument");
        second.send(Message::Text("{\"close\": true}".into())).await.unwrap();
        for socket in [&mut second, &mut later] {
            assert_eq!(told(socket).await["ended"]["exit_code"], 0);
            assert!(next(socket).await.is_none());
        }
    });
}

#[test]
fn a_websocket_has_its_place_until_it_ends() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let mut open = Vec::new();
        for _ in 0..8 {
            open.push(connect(&client, &format!("/v1/sandboxes/{id}/shell")).await);
        }
        let connections = async || {
            let server = client.get("/v1/server").await.ok();
            server["counts"]["connections"].as_u64().unwrap()
        };
        assert!(connections().await > 8);
        drop(open);
        // The server learns of it as soon as the sockets tell, and the one that asks has a place, too.
        let gone = async { while connections().await >= 8 {} };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    });
}

#[test]
fn a_client_that_answers_for_a_sandbox_has_it_for_itself_until_it_leaves() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let hello = |sandbox: &str| {
            let tools = json!([{"name": "add", "description": "adds"}]);
            Message::Text(
                json!({"hello": {"sandbox_id": sandbox, "tools": tools}}).to_string().into(),
            )
        };
        let mut first = connect(&client, "/v1/callbacks").await;
        first.send(hello(&id)).await.unwrap();
        assert_eq!(told(&mut first).await["ready"]["sandbox_id"], id.as_str());
        // Saying it again is fine; another client is told that there is one.
        first.send(hello(&id)).await.unwrap();
        assert!(told(&mut first).await["ready"].is_object());
        let mut second = connect(&client, "/v1/callbacks").await;
        second.send(hello(&id)).await.unwrap();
        assert_eq!(told(&mut second).await["problem"]["code"], "callback-exists");
        assert!(next(&mut second).await.is_none());
        first.close(None).await.unwrap();
        while next(&mut first).await.is_some() {}
        drop(first);
        // The server learns of it as soon as the socket tells.
        let mut third = loop {
            let mut third = connect(&client, "/v1/callbacks").await;
            third.send(hello(&id)).await.unwrap();
            if told(&mut third).await["ready"].is_object() {
                break third;
            }
        };
        for (message, code) in [
            (r#"{"answer": {"call_id": 1}}"#, "invalid-argument"),
            (r#"{"hello": {"sandbox_id": "nothing-there"}}"#, "sandbox-not-found"),
            (r#"{"nonsense": 1}"#, "invalid-argument"),
            ("{}", "invalid-argument"),
        ] {
            let mut wrong = connect(&client, "/v1/callbacks").await;
            wrong.send(Message::Text(message.into())).await.unwrap();
            assert_eq!(told(&mut wrong).await["problem"]["code"], code, "{message}");
        }
        client.bare(Method::DELETE, &format!("/v1/sandboxes/{id}")).await.ok();
        assert_eq!(told(&mut third).await["problem"]["code"], "sandbox-gone");
    });
}

#[test]
fn a_shell_has_a_terminal_that_changes_its_size() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let mut shell = connect(&client, &format!("/v1/sandboxes/{id}/shell")).await;
        let command =
            json!({"argv": ["/bin/sh"], "stdin": true, "terminal": {"rows": 24, "columns": 80}});
        shell.send(Message::Text(command.to_string().into())).await.unwrap();
        assert_eq!(told(&mut shell).await["started"]["terminal"], true);
        shell
            .send(Message::Text(r#"{"resize": {"rows": 33, "columns": 99}}"#.into()))
            .await
            .unwrap();
        shell.send(Message::Binary("stty size\n".into())).await.unwrap();
        output(&mut shell, 1, "33 99").await;
        shell.send(Message::Text(r#"{"signal": 9}"#.into())).await.unwrap();
        let ended = loop {
            match next(&mut shell).await {
                Some(Message::Text(text)) => break serde_json::from_str::<Value>(&text).unwrap(),
                Some(_) => {}
                None => panic!("the end was not told"),
            }
        };
        assert_eq!(ended["ended"]["reason"], "signalled", "{ended}");

        let mut wrong = connect(&client, &format!("/v1/sandboxes/{id}/shell")).await;
        wrong.send(Message::Text(r#"{"argv": "sh"}"#.into())).await.unwrap();
        assert_eq!(told(&mut wrong).await["problem"]["code"], "invalid-argument");
        assert!(next(&mut wrong).await.is_none(), "what went wrong is told, and goodbye said");
    });
}
