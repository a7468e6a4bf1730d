//! Ports of sandboxes: joined to streams, shown by names of their own, and to nobody else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_server_tests::{Host, create, refused, settled, start};
use tokio_stream::StreamExt;

/// Says what it got: the whole head. `/ws` changes the protocol and echoes; `/slow` waits for the reader.
const INSIDE: &str = r#"
import http.server, socketserver, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/ws":
            self.send_response(101); self.send_header("upgrade", "echo"); self.send_header("connection", "upgrade")
            self.end_headers()
            while data := self.connection.recv(65536):
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = (self.path + "\n" + str(self.headers)).encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("content-length", str(len(body)))
        self.send_header("set-cookie", "inside=1; Domain=localhost")
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True; daemon_threads = True
server = Server(("127.0.0.1", 8000), Handler)
print("listening", flush=True)
server.serve_forever()
"#;

/// Echoes what it hears until it has heard all, then says goodbye.
const ECHO: &str = r#"
import socket
s = socket.create_server(("127.0.0.1", 9000))
print("listening", flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536): c.sendall(data)
    c.sendall(b"goodbye"); c.close()
"#;

/// Starts a program inside and waits until it listens.
async fn serve(client: &Client, sandbox: &str, program: &str) {
    let argv = ["python3", "-c", program].map(str::to_owned).to_vec();
    let command = v1::Command { argv, ..v1::Command::default() };
    let process = start(client, sandbox, command).await;
    let request = v1::FollowLogRequest {
        process_id: process.process_id,
        follow: true,
        ..v1::FollowLogRequest::default()
    };
    let mut log = client.processes.clone().follow_log(request).await.unwrap().into_inner();
    let first = log.message().await.unwrap().unwrap();
    assert_eq!(first.data, "listening\n", "{first:?}");
}

async fn expose(client: &Client, sandbox: &str, port: u32, public: bool) -> v1::ExposedPort {
    let request = v1::ExposePortRequest {
        sandbox: sandbox.to_owned(),
        port,
        public,
        ..v1::ExposePortRequest::default()
    };
    client.ports.clone().expose_port(request).await.unwrap().into_inner()
}

/// One request over a connection of its own: the status, and everything that came.
fn ask(host: &Host, name: &str, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(host.url().replace("http://", "")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, answer)
}

fn name(exposed: &v1::ExposedPort) -> String {
    let url = exposed.url.clone().unwrap();
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

async fn forward(
    client: &Client,
    sandbox: &str,
    port: u32,
    pieces: Vec<Vec<u8>>,
) -> Result<Vec<u8>, tonic::Status> {
    let head = v1::ForwardPortRequest { sandbox: sandbox.to_owned(), port, ..Default::default() };
    let rest = pieces
        .into_iter()
        .map(|data| v1::ForwardPortRequest { data: data.into(), ..Default::default() });
    let messages = tokio_stream::iter([head]).chain(tokio_stream::iter(rest.collect::<Vec<_>>()));
    let mut answers = client.ports.clone().forward_port(messages).await?.into_inner();
    let mut received = Vec::new();
    while let Some(answer) = answers.message().await? {
        received.extend_from_slice(&answer.data);
    }
    Ok(received)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_joined_to_a_port_to_the_last_byte() {
    let Some(host) = Host::serving("forward") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    serve(&client, &sandbox, ECHO).await;
    // More than every window and buffer on the way, both ways.
    let pieces: Vec<Vec<u8>> = (0..200u32).map(|n| vec![n as u8; 40_000]).collect();
    let mut expected = pieces.concat();
    expected.extend_from_slice(b"goodbye");
    assert!(forward(&client, &sandbox, 9000, pieces).await.unwrap() == expected);
    // Many at once, each its own.
    let mut several = tokio::task::JoinSet::new();
    for n in 0..20u8 {
        let (client, sandbox) = (client.clone(), sandbox.clone());
        several.spawn(async move {
            let received = forward(&client, &sandbox, 9000, vec![vec![n; 10]]).await.unwrap();
            assert_eq!(received, [&[n; 10][..], b"goodbye"].concat());
        });
    }
    // The server inside takes one after the other; whoever waits is served in the end.
    several.join_all().await;
    let nothing = forward(&client, &sandbox, 9001, Vec::new()).await;
    assert_eq!(refused(nothing), Code::PortUnreachable);
    let invalid = forward(&client, &sandbox, 0, Vec::new()).await;
    assert_eq!(refused(invalid), Code::InvalidArgument);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shown_port_opens_for_its_token_and_hides_again() {
    let Some(host) = Host::serving("preview") else { return };
    let client = host.client().await;
    let (sandbox, other) = (create(&client).await, create(&client).await);
    serve(&client, &sandbox, INSIDE).await;
    let shown = expose(&client, &sandbox, 8000, false).await;
    let name = name(&shown);
    let token = shown.token.clone().unwrap();
    let with = |token: &str| ask(&host, &name, "/x?y=1", &format!("x-belljar-token: {token}\r\n"));
    let (status, answer) = with(&token);
    assert_eq!(status, "200", "{answer}");
    assert!(answer.contains("/x?y=1\n"), "{answer}");
    // What let the request in did not go in with it, and cookies of the inside are for this name alone.
    assert!(!answer.contains(&token), "{answer}");
    assert!(answer.contains("set-cookie: inside=1\r\n"), "{answer}");
    // A page of the inside says that something is missing; that is its answer, not ours.
    let (status, answer) = ask(&host, &name, "/missing", &format!("x-belljar-token: {token}\r\n"));
    assert_eq!((status.as_str(), answer.contains("/missing\n")), ("404", true));
    // In a browser: the address with the token leads on to the one without, and the cookie opens that.
    let (status, answer) = ask(&host, &name, &format!("/?belljar_token={token}"), "");
    assert_eq!(status, "303");
    assert!(answer.contains("location: /\r\n") && answer.contains("HttpOnly"), "{answer}");
    let cookie = format!("cookie: a=1; belljar_preview={token}\r\n");
    let (status, answer) = ask(&host, &name, "/", &cookie);
    assert_eq!(status, "200");
    assert!(answer.contains("a=1") && !answer.contains(&token), "{answer}");
    // Another site's page does not act in the visitor's name.
    let foreign = format!("{cookie}origin: http://evil.example\r\n");
    assert_eq!(ask(&host, &name, "/", &foreign).0, "403");
    // Nor does another sandbox's, which browsers take for the same site; a link from there leads here.
    let fetched = |mode: &str, dest: &str| {
        let kind = format!(
            "sec-fetch-site: same-site\r\nsec-fetch-mode: {mode}\r\nsec-fetch-dest: {dest}\r\n"
        );
        ask(&host, &name, "/", &format!("{cookie}{kind}")).0
    };
    assert_eq!(fetched("no-cors", "script"), "403");
    assert_eq!(fetched("navigate", "document"), "200");

    // Nobody else: no token, a wrong one, one for another sandbox, one for another port, one for the API.
    assert_eq!(ask(&host, &name, "/", "").0, "401");
    assert_eq!(with("no.such.token").0, "401");
    assert_eq!(with(&expose(&client, &other, 8000, false).await.token.unwrap()).0, "401");
    assert_eq!(with(&expose(&client, &sandbox, 8001, false).await.token.unwrap()).0, "401");
    let request = v1::IssueTokenRequest { sandbox: sandbox.clone(), ..Default::default() };
    let api = client.system.clone().issue_token(request).await.unwrap().into_inner().token;
    assert_eq!(with(&api).0, "401");
    // A port that is not shown has no name, also for who has a token of the sandbox.
    let hidden = name.replace("8000-", "9000-");
    assert_eq!(ask(&host, &hidden, "/", &format!("x-belljar-token: {token}\r\n")).0, "401");

    // What a key let in stays out once the key is revoked.
    let request = v1::CreateKeyRequest { name: "maker".to_owned(), ..Default::default() };
    let made = client.system.clone().create_key(request).await.unwrap().into_inner();
    let maker = host.client_with(Some(&made.secret)).await;
    let by_key = expose(&maker, &sandbox, 8000, false).await.token.unwrap();
    assert_eq!(with(&by_key).0, "200");
    let request = v1::RevokeKeyRequest { key_id: made.key.unwrap().key_id };
    client.system.clone().revoke_key(request).await.unwrap();
    assert_eq!((with(&by_key).0, with(&token).0), ("401".to_owned(), "200".to_owned()));

    // Public: for everybody, until it is hidden.
    expose(&client, &sandbox, 8000, true).await;
    assert_eq!(ask(&host, &name, "/", "").0, "200");
    let request = v1::HidePortRequest { sandbox: sandbox.clone(), port: 8000 };
    assert!(client.ports.clone().hide_port(request).await.unwrap().into_inner().was_shown);
    assert_eq!(ask(&host, &name, "/", "").0, "401");
    assert_eq!(with(&token).0, "401");
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_by_a_path_has_no_origin_and_gets_no_key() {
    let Some(host) = Host::serving("ports-path") else { return };
    let admin = host.client().await;
    let secret = crate::keys::tenant_key(&admin, "mine").await;
    let theirs = crate::keys::tenant_key(&admin, "theirs").await;
    let client = host.client_with(Some(&secret)).await;
    let sandbox = create(&client).await;
    serve(&client, &sandbox, INSIDE).await;
    let path = format!("/v1/sandboxes/{sandbox}/ports/8000/a/../b?c=%2F");
    let with = |secret: &str| {
        let headers = format!("authorization: Bearer {secret}\r\ncookie: theirs=1\r\n");
        ask(&host, "localhost", &path, &headers)
    };
    let (status, answer) = with(&secret);
    assert_eq!(status, "200", "{answer}");
    assert!(answer.contains("/a/../b?c=%2F\n"), "{answer}");
    assert!(answer.contains("content-security-policy: sandbox "), "{answer}");
    assert!(!answer.contains("set-cookie") && !answer.contains("theirs=1"), "{answer}");
    assert!(!answer.contains(&secret), "{answer}");
    // To another tenant there is no such sandbox.
    assert_eq!(with(&theirs).0, "404");
    assert_eq!(ask(&host, "localhost", &path, "").0, "401");
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn protocols_can_be_changed_and_names_outlive_a_server() {
    let Some(host) = Host::serving("ports-upgrade") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    serve(&client, &sandbox, INSIDE).await;
    let mut shown = expose(&client, &sandbox, 8000, true).await;
    let upgrade = |name: &str| {
        let mut stream = TcpStream::connect(host.url().replace("http://", "")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = "connection: upgrade\r\nupgrade: echo\r\n";
        stream
            .write_all(format!("GET /ws HTTP/1.1\r\nhost: {name}\r\n{head}\r\n").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        (stream, String::from_utf8(answer).unwrap())
    };
    let (mut stream, answer) = upgrade(&name(&shown));
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    for text in ["one", "two"] {
        stream.write_all(text.as_bytes()).unwrap();
        let mut echo = [0; 3];
        stream.read_exact(&mut echo).unwrap();
        assert_eq!(echo, text.as_bytes());
    }
    // What a sandbox shows stays shown when another server takes over.
    host.kill();
    host.serve(&[], &[]);
    let client = host.client().await;
    let request = v1::ListPortsRequest { sandbox: sandbox.clone() };
    let ports = client.ports.clone().list_ports(request).await.unwrap().into_inner().ports;
    assert_eq!(ports.len(), 1);
    shown.url.clone_from(&ports[0].url);
    let (status, answer) = ask(&host, &name(&shown), "/", "");
    assert_eq!(status, "200", "{answer}");
    // And is gone with the sandbox.
    belljar_server_tests::destroy(&client, &sandbox).await;
    let gone = settled(async || match ask(&host, &name(&shown), "/", "").0.as_str() {
        "401" => Ok(()),
        other => Err(other.to_owned()),
    });
    gone.await.unwrap();
    host.finish().await;
}
