//! Programs on a pseudo-terminal.

use belljar_protocol::v1::{Done, Input, Resize, Terminal, frame::Body};

use crate::host::{Agent, shell, terminal};

#[test]
fn a_terminal_has_a_size_and_can_be_resized() {
    let (_agent, mut host) = Agent::configured();
    let start = terminal(
        "tty; stty size; trap 'stty size' WINCH; echo ready; until read x; do :; done; echo done $x",
    );
    let (stream, _) = host.start(&start);
    let text = host.read_until(stream, "ready\r\n");
    assert!(text.starts_with("/dev/pts/") && text.contains("30 100\r\n"), "{text}");
    let resize = Resize { process: start.process.clone(), rows: 50, columns: 60 };
    let answer = host.request(Body::Resize(resize));
    assert_eq!(host.receive_on(answer), Body::Done(Done { size: 0 }));
    host.send(stream, Body::Input(Input { data: b"yes\n".to_vec(), close: false }));
    let text = host.read_until(stream, "done yes\r\n");
    assert!(text.contains("50 60\r\n"), "{text}");
}

#[test]
fn control_characters_reach_the_program() {
    let (_agent, mut host) = Agent::configured();
    let (stream, _) = host.start(&terminal("echo ready; exec sleep 1000"));
    host.read_until(stream, "ready\r\n");
    host.send(stream, Body::Input(Input { data: b"\x03".to_vec(), close: false }));
    let mut ended = None;
    loop {
        match host.receive_on(stream) {
            Body::Exited(exited) => ended = exited.status,
            Body::Closed(_) => break,
            _ => {}
        }
    }
    assert_eq!(ended, Some(belljar_protocol::v1::exited::Status::Signal(2)));
}

#[test]
fn closing_the_input_ends_it() {
    let (_agent, mut host) = Agent::configured();
    let (stream, _) = host.start(&terminal("stty -echo; echo ready; cat; echo end"));
    host.read_until(stream, "ready\r\n");
    host.send(stream, Body::Input(Input { data: b"line\n".to_vec(), close: true }));
    let text = host.read_until(stream, "end\r\n");
    assert!(text.contains("line\r\n"), "{text}");
}

#[test]
fn it_is_the_controlling_terminal() {
    let (_agent, mut host) = Agent::configured();
    let mut start = terminal("echo $TERM > /dev/tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all");
    start.terminal = Some(Terminal::default());
    let run = {
        let (stream, _) = host.start(&start);
        host.finish(stream)
    };
    assert_eq!(run.out(), "xterm-256color\r\nall\r\n");
    let start = shell("true");
    host.run(&start);
    let resize = Resize { process: start.process, rows: 1, columns: 1 };
    assert_eq!(host.ask_failing(Body::Resize(resize)).code, "invalid-argument");
}
