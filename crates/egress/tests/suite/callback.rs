//! Programs that decide: asked about names, connections and requests, and a no wherever they do not say yes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belljar_egress::{
    Callback, Connecting, Decider, Decision, Greeting, Handled, HandledRequest, Identity, Reason,
    SecretError, SecretValue, Stage, Verdict,
};
use hickory_proto::op::ResponseCode;
use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::origin::{echo, is_cut, says};
use crate::web::Inspected;
use crate::world::{Inspection, LIMIT, World, rules};

/// What a program saw, and how it decides about names it knows.
#[derive(Default)]
struct Program {
    asked: Mutex<Vec<Connecting>>,
    requests: Mutex<Vec<String>>,
    resolver: Mutex<Option<SocketAddr>>,
    mute: Mutex<bool>,
}

const BOTH: Callback = Callback { connections: true, requests: false };

fn yes(http: bool, lasting: bool, resolver: Option<SocketAddr>) -> Decision {
    Decision::Allow { http, lasting, resolver, words: String::new() }
}

#[async_trait]
impl Decider for Program {
    fn is_there(&self, _: &Identity) -> bool {
        true
    }

    async fn connection(&self, _: &Identity, asked: &Connecting, _: Duration) -> Decision {
        self.asked.lock().unwrap().push(asked.clone());
        if *self.mute.lock().unwrap() {
            return Decision::Unanswered("gone".to_owned());
        }
        let name = asked.question.as_ref().map(|(name, _)| name).or(asked.host.as_ref());
        match name.map(String::as_str) {
            Some("raw.example") => yes(false, false, *self.resolver.lock().unwrap()),
            Some("kept.example") => yes(false, true, None),
            Some("good.example" | "also.example" | "plain.example") => yes(true, false, None),
            Some("named.example") if asked.question.is_some() => yes(false, false, None),
            Some(_) => Decision::Deny { words: "not on my watch".to_owned() },
            None if asked.port == 7 => Decision::Deny { words: String::new() },
            None => yes(false, false, None),
        }
    }

    async fn request(&self, _: &Identity, request: HandledRequest<'_>) -> Handled {
        let (source, alpn) = (request.source.unwrap(), request.greeting.map(|it| it.alpn.clone()));
        assert!(source.ip().is_loopback() && request.address.is_some());
        let line = format!(
            "{} {}{} {:?} h2={}",
            request.method, request.host, request.path, alpn, request.http2
        );
        self.requests.lock().unwrap().push(line);
        if request.path == "/no" {
            return Handled::Deny { words: "no, thank you".to_owned() };
        }
        if request.path == "/silent" {
            return Handled::Unanswered("a secret of the program".to_owned());
        }
        let header = |name: &'static str, value: &'static str| {
            (name.parse().unwrap(), HeaderValue::from_static(value))
        };
        let set = vec![
            header("authorization", "Bearer given-by-program"),
            header("x-added", "1"),
            header("host", "evil.example"),
        ];
        Handled::Send { set, remove: vec!["x-gone".parse().unwrap()] }
    }

    async fn secret(&self, _: &Identity, _: &str) -> Result<SecretValue, SecretError> {
        Err(SecretError::NotFound)
    }
}

async fn world(yaml: &str, callback: Callback) -> (World, Arc<Program>) {
    let program = Arc::new(Program::default());
    let decider = Some(Arc::clone(&program) as Arc<dyn Decider>);
    let inspection = Inspection { decider, callback, ..Inspection::default() };
    let world = World::inspecting(rules(yaml), inspection).await;
    (world, program)
}

async fn inspected(yaml: &str, callback: Callback) -> (Inspected, Arc<Program>) {
    let program = Arc::new(Program::default());
    let decider = Some(Arc::clone(&program) as Arc<dyn Decider>);
    let inspection = Inspection { decider, callback, ..Inspection::default() };
    (Inspected::with(yaml, inspection).await, program)
}

#[tokio::test]
async fn a_program_decides_about_names_and_each_connection() {
    let (world, program) = world("network: {mode: allowlist}", BOTH).await;
    let origin = echo("127.0.0.2").await;
    for name in ["raw.example", "named.example", "other.example"] {
        world.upstream.set(name, &["127.0.0.2"]);
    }
    assert_eq!(world.resolve("other.example").await, Err(ResponseCode::NXDomain));
    assert_eq!(world.upstream.asked(), [""; 0], "a name that is denied never leaves");
    let mut stream = world.reach("raw.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    drop(stream);
    let records = world.records(2).await;
    assert_eq!((records[0].stage, records[0].reason), (Stage::Dns, Reason::CallbackDenies));
    assert_eq!(records[0].rule.as_deref(), Some("callback: not on my watch"));
    let flow = &records[1];
    assert_eq!((flow.reason, flow.host.as_deref()), (Reason::CallbackAllows, Some("raw.example")));
    assert_eq!(flow.rule.as_deref(), Some("callback"));

    let asked = program.asked.lock().unwrap().clone();
    assert_eq!(asked[1].question, Some(("raw.example".to_owned(), "A".to_owned())));
    assert_eq!((asked[1].port, asked[2].port), (53, origin.port()));
    assert_eq!(asked[2].host.as_deref(), Some("raw.example"));
    assert_eq!(asked[2].address, Some("127.0.0.2".parse().unwrap()));
    assert!(asked[2].source.unwrap().ip().is_loopback());

    // Each connection is asked about anew; a name that may be resolved need not be one to connect to.
    let mut stream = world.reach("named.example", origin.port()).await;
    assert!(is_cut(&mut stream).await);
    let mut stream = world.reach("raw.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    // Who leaves takes what is new with it.
    *program.mute.lock().unwrap() = true;
    assert!(is_cut(&mut world.connect(origin).await).await);
    assert_eq!(says(&mut stream, b"still").await.unwrap(), b"still");
    let last = world.records(4).await.pop().unwrap();
    assert_eq!((last.reason, last.verdict), (Reason::CallbackUnanswered, Verdict::Deny));
}

#[tokio::test]
async fn rules_come_before_the_program_and_addresses_are_checked() {
    let yaml = "network_allowlist: [listed.example]\nnetwork: {rules: [{host: raw.example, verdict: deny}]}";
    let (world, program) = world(yaml, BOTH).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("listed.example", &["127.0.0.2"]);
    world.upstream.set("kept.example", &["127.0.0.9"]);
    let mut stream = world.reach("listed.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    assert_eq!(world.resolve("raw.example").await, Err(ResponseCode::NXDomain));
    assert_eq!(program.asked.lock().unwrap().len(), 0, "rules have decided");
    // The program says yes, but the address is one of the host's and nobody named it.
    assert_eq!(world.resolve("kept.example").await, Err(ResponseCode::NXDomain));
    assert!(is_cut(&mut world.connect("127.0.0.9:80".parse().unwrap()).await).await);
    // Nobody named this server either.
    *program.resolver.lock().unwrap() = Some("127.0.0.9:53".parse().unwrap());
    let (other, program) = self::world("network: {mode: allowlist}", BOTH).await;
    *program.resolver.lock().unwrap() = Some("127.0.0.9:53".parse().unwrap());
    assert_eq!(other.resolve("raw.example").await, Err(ResponseCode::NXDomain));
    assert_eq!(other.denied().await.reason, Reason::AddressNotPublic);
}

#[tokio::test]
async fn addresses_without_a_name_are_told_without_one() {
    let (world, program) = world("network: {mode: allowlist}", BOTH).await;
    let origin = echo("127.0.0.2").await;
    let mut stream = world.connect(origin).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    assert!(is_cut(&mut world.connect("127.0.0.2:7".parse().unwrap()).await).await);
    let asked = program.asked.lock().unwrap().clone();
    assert_eq!((asked.len(), &asked[0].host), (2, &None));
}

#[tokio::test]
async fn a_decision_for_the_sandbox_is_asked_for_once() {
    let (world, program) = world("network: {mode: allowlist}", BOTH).await;
    let origin = echo("127.0.0.2").await;
    world.upstream.set("kept.example", &["127.0.0.2"]);
    let address = world.resolve("kept.example").await.unwrap()[0];
    for _ in 0..3 {
        let mut stream = world.connect((address, origin.port()).into()).await;
        assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    }
    assert_eq!(program.asked.lock().unwrap().len(), 2, "the name, and one connection");
}

#[tokio::test]
async fn accepted_as_http_each_request_is_the_programs() {
    let (inspected, program) = inspected("network: {mode: allowlist}", BOTH).await;
    for mut client in [inspected.one("good.example").await, inspected.two("good.example").await] {
        let told = client.ask("GET", "/a", &[("x-gone", "1")], "").await;
        let text = String::from_utf8_lossy(&told.body).into_owned();
        assert!(!text.contains("given-by-program"), "what it set does not come back: {text}");
        let told = told.json();
        assert_eq!(told["headers"]["x-added"], "1");
        assert!(told["headers"]["authorization"].as_str().unwrap().starts_with('*'));
        assert!(told["headers"].get("x-gone").is_none());
        let told = client.get("/no").await.refused(403, "callback-denies");
        assert_eq!(told["message"], "no, thank you");
        let told = client.get("/silent").await.refused(403, "callback-unanswered");
        assert!(!told.to_string().contains("a secret"), "how it failed stays outside: {told}");
    }
    let seen = program.requests.lock().unwrap().clone();
    assert_eq!(seen[0], r#"GET good.example/a Some(["http/1.1"]) h2=false"#);
    assert_eq!(seen[3], r#"GET good.example/a Some(["h2"]) h2=true"#);
    assert_eq!(inspected.web.seen(), ["GET /a", "GET /a"]);
    let asked = program.asked.lock().unwrap().clone();
    let flow = asked.iter().find(|it| it.question.is_none()).unwrap();
    let sni = Some("good.example".to_owned());
    assert_eq!(flow.greeting, Some(Greeting { sni, alpn: vec!["http/1.1".to_owned()] }));
    let records = inspected.world.records(6).await;
    let request = records.iter().find(|it| it.path.as_deref() == Some("/no")).unwrap();
    assert_eq!(
        (request.reason, request.rule.as_deref()),
        (Reason::CallbackDenies, Some("callback: no, thank you"))
    );
}

#[tokio::test]
async fn one_name_is_accepted_and_not_its_neighbour_at_the_same_address() {
    let (inspected, program) = inspected("network: {mode: allowlist}", BOTH).await;
    let port = inspected.plain.address.port();
    inspected.world.upstream.set("also.example", &["127.0.0.3"]);
    for name in ["plain.example", "also.example"] {
        inspected.world.resolve(name).await.unwrap();
    }
    let ask = async |host: &str, then: &str| {
        let mut stream = inspected.world.connect(inspected.plain.address).await;
        let text = format!(
            "GET /1 HTTP/1.1\r\nhost: {host}:{port}\r\n\r\nGET /2 HTTP/1.1\r\nhost: {then}:{port}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = String::new();
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
        reply
    };
    let reply = ask("plain.example", "also.example").await;
    assert!(reply.contains("HTTP/1.1 200") && reply.contains("sni-mismatch"), "{reply}");
    let reply = ask("also.example", "also.example").await;
    assert_eq!(reply.matches("HTTP/1.1 200").count(), 2, "{reply}");
    // What is not HTTP fails.
    let mut stream = inspected.world.connect(inspected.plain.address).await;
    stream.write_all(b"SSH-2.0-x\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut reply)).await.unwrap();
    assert_eq!(inspected.plain.seen(), ["GET /1", "GET /1", "GET /2"]);
    let asked = program.asked.lock().unwrap().clone();
    let hosts: Vec<_> = asked.iter().filter_map(|it| it.host.as_deref()).collect();
    assert_eq!(hosts[..2], ["plain.example", "also.example"]);
}

#[tokio::test]
async fn middleware_sees_what_rules_allow_and_nothing_goes_past_it() {
    let callback = Callback { connections: false, requests: true };
    let (inspected, program) =
        inspected("network_allowlist: [good.example, plain.example]", callback).await;
    let mut client = inspected.one("good.example").await;
    assert_eq!(client.get("/a").await.status, 200);
    client.get("/no").await.refused(403, "callback-denies");
    assert_eq!(inspected.clear().await.get("/b").await.status, 200);
    assert_eq!(program.asked.lock().unwrap().len(), 0, "connections are not the program's");
    assert_eq!(inspected.world.resolve("also.example").await, Err(ResponseCode::NXDomain));
    let mut stream = inspected.world.reach("plain.example", inspected.plain.address.port()).await;
    stream.write_all(b"SSH-2.0-x\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut reply)).await.unwrap();
    assert_eq!(inspected.plain.seen(), ["GET /b"]);
}

#[tokio::test]
async fn the_proxy_door_asks_about_the_connection_too() {
    let (inspected, program) = inspected("network: {mode: allowlist}", BOTH).await;
    inspected.world.upstream.set("raw.example", &["127.0.0.3"]);
    let port = inspected.plain.address.port();
    let ask = async |host: &str| {
        let mut stream = tokio::net::TcpStream::connect(inspected.world.proxy).await.unwrap();
        let text = format!(
            "GET http://{host}:{port}/p HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = String::new();
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut reply)).await.unwrap().unwrap();
        reply
    };
    assert!(ask("other.example").await.contains("callback-denies"));
    assert_eq!(program.requests.lock().unwrap().len(), 0, "nobody asks about its requests");
    assert!(ask("raw.example").await.starts_with("HTTP/1.1 200"));
    assert_eq!(inspected.plain.seen(), ["GET /p"]);
}
