//! Calls of tools from inside, and hosts that answer them or are not there.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use belljar_protocol::v1::{Configure, ServeTools, ToolAnswer, ToolCall, frame::Body};

use crate::host::{Agent, Host, argv, configuration};

/// An agent with a socket for tools, and a host that does not serve them yet.
fn with_tools() -> (Agent, Host, std::path::PathBuf) {
    let agent = Agent::start();
    let mut host = agent.connect();
    let socket = agent.path("tools");
    let configure = Configure { tool_socket: socket.to_str().unwrap().into(), ..configuration() };
    assert!(matches!(host.ask(Body::Configure(configure)), Body::Configured(_)));
    (agent, host, socket)
}

fn say(socket: &std::path::Path, line: &str) -> UnixStream {
    let mut caller = UnixStream::connect(socket).unwrap();
    caller.write_all(line.as_bytes()).unwrap();
    caller
}

fn answer(mut caller: UnixStream) -> String {
    let mut text = String::new();
    caller.read_to_string(&mut text).unwrap();
    text
}

fn next_call(host: &mut Host) -> ToolCall {
    match host.receive() {
        Some((0, Body::ToolCall(call))) => call,
        other => panic!("no call: {other:?}"),
    }
}

fn post(host: &mut Host, call: u64, data: &[u8], more: bool, code: &str) {
    let answer = ToolAnswer { call, data: data.to_vec(), more, code: code.to_owned() };
    host.send(0, Body::ToolAnswer(answer));
}

#[test]
fn a_call_finds_the_host_that_serves_and_its_answer_the_caller() {
    let (_agent, mut host, socket) = with_tools();
    let alone = answer(say(&socket, "call add {}\n"));
    assert!(alone.starts_with("error tool-unavailable "), "{alone}");
    assert!(matches!(host.ask(Body::ServeTools(ServeTools::default())), Body::Done(_)));
    let first = say(&socket, "call add {\"a\": 1}\n");
    let one = next_call(&mut host);
    assert_eq!((one.name.as_slice(), one.arguments.as_slice()), (&b"add"[..], &b"{\"a\": 1}"[..]));
    assert_eq!(one.pid, std::process::id());
    let second = say(&socket, "list\n");
    let two = next_call(&mut host);
    assert!(two.name.is_empty());
    // In any order, in pieces, and as failures.
    post(&mut host, two.call, b"not\nnow", false, "tool-failed");
    assert_eq!(answer(second), "error tool-failed not now\n");
    post(&mut host, one.call, b"[1,", true, "");
    post(&mut host, 12345, b"nobody", false, "");
    post(&mut host, one.call, b"2]", false, "");
    assert_eq!(answer(first), "ok [1,2]\n");
}

#[test]
fn who_calls_is_known_by_the_process_it_belongs_to() {
    let (_agent, mut host, socket) = with_tools();
    assert!(matches!(host.ask(Body::ServeTools(ServeTools::default())), Body::Done(_)));
    let code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'list\\n'); s.recv(9)";
    let start =
        argv(&["sh", "-c", "python3 -c \"$0\" \"$1\"; true", code, socket.to_str().unwrap()]);
    let stream = host.request(Body::Start(start.clone()));
    // The program may call before the word about its start has come.
    let (mut call, mut started) = (None, false);
    while call.is_none() || !started {
        match host.receive() {
            Some((0, Body::ToolCall(one))) => call = Some(one),
            Some((of, Body::Started(_))) => started = of == stream,
            Some(_) => {}
            None => panic!("the agent is gone"),
        }
    }
    let call = call.unwrap();
    assert_eq!(call.process, start.process);
    post(&mut host, call.call, b"[]", false, "");
    host.finish(stream);
}

#[test]
fn a_host_that_goes_away_lets_nobody_wait() {
    let (agent, mut host, socket) = with_tools();
    assert!(matches!(host.ask(Body::ServeTools(ServeTools::default())), Body::Done(_)));
    let caller = say(&socket, "call add {}\n");
    next_call(&mut host);
    // A second one waits for its turn.
    let mut other = agent.connect();
    assert!(matches!(other.ask(Body::ServeTools(ServeTools::default())), Body::Done(_)));
    drop(host);
    let told = answer(caller);
    assert!(told.starts_with("error tool-unavailable "), "{told}");
    let caller = say(&socket, "call add {}\n");
    let call = next_call(&mut other);
    post(&mut other, call.call, b"1", false, "");
    assert_eq!(answer(caller), "ok 1\n");
}

#[test]
fn a_caller_that_leaves_takes_its_call_back() {
    let (_agent, mut host, socket) = with_tools();
    assert!(matches!(host.ask(Body::ServeTools(ServeTools::default())), Body::Done(_)));
    let caller = say(&socket, "call add {}\n");
    let call = next_call(&mut host);
    drop(caller);
    let Some((0, Body::ToolCancel(cancel))) = host.receive() else { panic!("no cancel") };
    assert_eq!(cancel.call, call.call);
    // Who only has nothing more to say still waits.
    let caller = say(&socket, "call add {}\n");
    caller.shutdown(std::net::Shutdown::Write).unwrap();
    let call = next_call(&mut host);
    post(&mut host, call.call, b"1", false, "");
    assert_eq!(answer(caller), "ok 1\n");
}
