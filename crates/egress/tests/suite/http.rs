//! Requests that are looked into: judged one by one, whatever they travel in.

use std::sync::Arc;

use belljar_egress::{Authority, Reason, Stage, Verdict};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::origin::is_cut;
use crate::web::{Client, Inspected, LARGE, greet_with};
use crate::world::{Inspection, rules, sandbox};

const RULES: &str = "
network:
  rules:
    - {name: read, host: good.example, method: [GET, HEAD], path: /public/*, verdict: allow}
    - {name: secret-part, host: good.example, path: /public/secret/*, verdict: deny, message: not for you}
    - {name: write, host: good.example, method: POST, path: /items, verdict: allow}
    - {name: any, host: also.example, path: /*, verdict: allow}
    - {name: clear, host: plain.example, path: /public/*, verdict: allow}
";

#[tokio::test]
async fn each_request_on_a_connection_is_judged() {
    let inspected = Inspected::new(RULES).await;
    for mut client in [inspected.one("good.example").await, inspected.two("good.example").await] {
        assert_eq!(client.get("/public/a?q=1").await.json()["target"], "/public/a?q=1");
        let told = client.ask("POST", "/public/a", &[], "x").await.refused(403, "not-listed");
        assert_eq!(
            (&told["host"], &told["code"]),
            (&"good.example".into(), &"policy-denied".into())
        );
        client.get("/private").await.refused(403, "not-listed");
        assert_eq!(client.ask("POST", "/items", &[], "hello").await.json()["body"], "hello");
        client.ask("DELETE", "/items", &[], "").await.refused(403, "not-listed");
        let reply = client.ask("HEAD", "/private", &[], "").await;
        let decision = reply.headers["x-belljar-decision"].to_str().unwrap();
        assert_eq!((reply.status, decision, reply.body.len()), (403, "deny", 0));
    }
    let seen = inspected.web.seen();
    let once = ["GET /public/a", "POST /items"];
    assert_eq!(seen, [once, once].concat(), "nothing else arrived");
    let records = inspected.world.records(12).await;
    let requests: Vec<_> = records.iter().filter(|it| it.stage == Stage::Request).collect();
    assert_eq!(requests.len(), 12);
    let first = requests.iter().find(|it| it.path.as_deref() == Some("/public/a")).unwrap();
    assert_eq!((first.verdict, first.rule.as_deref()), (Verdict::Allow, Some("read")));
    assert_eq!(first.sni.as_deref(), Some("good.example"));
}

#[tokio::test]
async fn tricks_with_paths_and_methods_do_not_help() {
    let inspected = Inspected::new(
        "
network:
  rules:
    - {name: secret, host: good.example, path: /public/secret, verdict: deny, message: not for you}
    - {name: secrets, host: good.example, path: /public/secret/*, verdict: deny}
    - {name: read, host: good.example, method: GET, path: /public/*, verdict: allow}
",
    )
    .await;
    let mut client = inspected.one("good.example").await;
    for (target, status) in [
        ("/public/../private", 403),
        ("/public/%2e%2e/private", 403),
        ("/public/..%2fprivate", 400),
        ("/public/..;/private", 400),
        ("/public/%252e%252e/private", 400),
        ("/public%2fx", 403),
        ("/public/secret", 403),
        ("/public//secret", 403),
        ("/public/./secret/x", 403),
        ("/public/%73ecret", 403),
        ("/public/secret;x=1", 403),
        ("/public/secret%2fx", 403),
        ("/public/%2573ecret", 403),
        ("/public/a%00", 400),
        ("/public/a%5c..", 400),
    ] {
        let reply = client.get(target).await;
        assert_eq!(reply.status, status, "{target}: {:?}", reply.body);
        assert!(reply.headers.contains_key("x-belljar-decision"), "{target}");
    }
    let told = client.get("/public/secret").await.refused(403, "rule-denies");
    assert_eq!((&told["rule"], &told["message"]), (&"secret".into(), &"not for you".into()));
    let disguised = [("x-http-method-override", "DELETE")];
    client.ask("GET", "/public/a", &disguised, "").await.refused(403, "not-listed");
    for name in ["x-original-url", "x-rewrite-url"] {
        let ask = async |client: &mut Client, path| {
            client.ask("GET", "/public/a", &[(name, path)], "").await
        };
        ask(&mut client, "/private").await.refused(403, "not-listed");
        ask(&mut client, "/public/secret").await.refused(403, "rule-denies");
        ask(&mut client, "private").await.refused(400, "malformed");
    }
    assert_eq!(inspected.web.seen(), <[String; 0]>::default());
    // The harmless twins; what is judged is what is sent.
    assert_eq!(client.get("/public/x/../a").await.json()["target"], "/public/a");
    assert_eq!(client.get("/public/@s%2fname").await.json()["target"], "/public/@s%2Fname");
    assert_eq!(client.get("/public/SECRET").await.status, 200, "paths have case");
    let renamed = [("x-original-url", "/public/b")];
    assert_eq!(client.ask("GET", "/public/a", &renamed, "").await.status, 200);
}

#[tokio::test]
async fn a_connection_is_for_one_host() {
    let inspected = Inspected::new(RULES).await;
    let mut client = inspected.one("good.example").await;
    for host in ["also.example", "evil.example", "good.example:1"] {
        let reply = client.ask("GET", "/public/a", &[("host", host)], "").await;
        assert_eq!(reply.status, 403, "{host}");
    }
    let mut client = inspected.two("good.example").await;
    client.authority = format!("also.example:{}", inspected.web.address.port());
    client.get("/x").await.refused(403, "sni-mismatch");
    assert!(inspected.web.seen().is_empty());
    assert_eq!(inspected.one("also.example").await.get("/x").await.status, 200);
}

#[tokio::test]
async fn ambiguous_messages_are_refused() {
    let inspected = Inspected::new(RULES).await;
    for text in [
        "POST /items HTTP/1.1\r\nhost: HOST\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "POST /items HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "GET /public/a HTTP/1.1\r\nhost: HOST\r\nhost: HOST\r\n\r\n",
        "GET /public/a HTTP/1.1\r\nhost : HOST\r\n\r\n",
        "GET /public/a HTTP/1.1\r\nhost: HOST\r\nx: a\r\n b\r\n\r\n",
        "GET /public/a HTTP/1.1\r\n\r\n",
        "GET https://also.example/public/a HTTP/1.1\r\nhost: HOST\r\n\r\n",
        "NOT HTTP AT ALL\r\n\r\n",
    ] {
        let mut stream = inspected.greet("good.example", &[b"http/1.1"]).await.unwrap();
        let host = format!("good.example:{}", inspected.web.address.port());
        stream.write_all(text.replace("HOST", &host).as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"HTTP/1.1 400", "{text}");
    }
    // Which of two lengths would count, and what is a request then? Nobody needs to know.
    for order in [
        "transfer-encoding: chunked\r\ncontent-length: 60\r\n",
        "content-length: 60\r\ntransfer-encoding: chunked\r\n",
    ] {
        let text = format!(
            "POST /items HTTP/1.1\r\nhost: HOST\r\n{order}\r\n0\r\n\r\nGET /private HTTP/1.1\r\nhost: HOST\r\n\r\n"
        );
        let mut stream = inspected.greet("good.example", &[b"http/1.1"]).await.unwrap();
        let host = format!("good.example:{}", inspected.web.address.port());
        stream.write_all(text.replace("HOST", &host).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        assert!(reply.starts_with(b"HTTP/1.1 400"), "{order}");
    }
    assert!(inspected.web.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_the_clients_own_fault() {
    let inspected = Inspected::new(RULES).await;
    let host = format!("good.example:{}", inspected.web.address.port());
    for (body, status) in [
        ("3;x=\"\r\ny\"\r\nabc\r\n0\r\n\r\n", "400"),
        ("3\nabc\n0\n\n", "400"),
        ("x\r\n", "400"),
        ("3;x=y\r\nabc\r\n0\r\n\r\n", "200"),
    ] {
        let mut stream = inspected.greet("good.example", &[b"http/1.1"]).await.unwrap();
        let head = "POST /items HTTP/1.1\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n";
        let text = head.replace("HOST", &host) + body;
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply[9..], status.as_bytes(), "{body:?}");
    }
}

#[tokio::test]
async fn what_is_not_http_goes_nowhere() {
    let inspected = Inspected::new(RULES).await;
    let mut stream = inspected.world.reach("plain.example", inspected.plain.address.port()).await;
    stream.write_all(b"\x00\x01binary protocol\r\n\r\n").await.unwrap();
    let mut left = Vec::new();
    let _ = stream.read_to_end(&mut left).await;
    assert!(inspected.plain.seen().is_empty());
    assert_eq!(inspected.clear().await.get("/public/a").await.status, 200);
    inspected.clear().await.get("/private").await.refused(403, "not-listed");
}

#[tokio::test]
async fn bodies_of_any_size_trailers_and_continue() {
    let inspected = Inspected::new(RULES).await;
    for mut client in [inspected.one("also.example").await, inspected.two("also.example").await] {
        let large = client.ask("POST", "/upload", &[], vec![b'y'; LARGE]).await;
        assert_eq!(large.json()["length"], LARGE);
        assert_eq!(client.get("/large").await.body.len(), LARGE);
        let reply = client.ask("GET", "/trailers", &[("te", "trailers")], "").await;
        assert_eq!(reply.body, "data");
        assert_eq!(reply.trailers.unwrap()["x-sum"], "42");
        let trailers =
            HeaderMap::from_iter([("x-up".parse().unwrap(), HeaderValue::from_static("7"))]);
        let frames = [Ok(Frame::data(Bytes::from("up"))), Ok(Frame::trailers(trailers))];
        let request = Request::post("/up").header("trailer", "x-up");
        let request = request.body(StreamBody::new(stream::iter(frames)).boxed()).unwrap();
        let told = client.send(request).await.json();
        assert!(told["trailers"].as_str().unwrap().contains("x-up"), "{told}");
        assert_eq!(client.ask("HEAD", "/x", &[], "").await.status, 200);
    }
    // A body is asked for once the request is allowed, and not before.
    let host = format!("also.example:{}", inspected.web.address.port());
    let mut stream = inspected.greet("also.example", &[b"http/1.1"]).await.unwrap();
    let text = format!(
        "POST /x HTTP/1.1\r\nhost: {host}\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut reply = [0; 25];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ok").await.unwrap();
    stream.read_exact(&mut reply[..12]).await.unwrap();
    assert_eq!(&reply[..12], b"HTTP/1.1 200");
}

/// A WebSocket outlives the connection that it was asked for on, and still counts among what a sandbox has open.
#[tokio::test]
async fn websockets_count_among_the_connections_of_a_sandbox() {
    let rules = "network: {rules: [{host: good.example, path: /ws, verdict: allow}]}";
    let inspection = Inspection { max_flows: Some(2), ..Inspection::default() };
    let inspected = Inspected::with(rules, inspection).await;
    let host = format!("good.example:{}", inspected.web.address.port());
    let text = format!(
        "GET /ws HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let open = async || {
        let mut stream = inspected.greet("good.example", &[b"http/1.1"]).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        (stream, String::from_utf8_lossy(&head).into_owned())
    };
    let (first, head) = open().await;
    assert_eq!(head, "HTTP/1.1 101");
    // The connection is over as such; what it became has two sockets of four, and a third would be needed to begin.
    inspected.world.records(1).await;
    let (second, head) = open().await;
    assert_eq!(head, "HTTP/1.1 429");
    drop((first, second));
    // Two records each: of the request and of the connection.
    inspected.world.records(4).await;
    let (_third, head) = open().await;
    assert_eq!(head, "HTTP/1.1 101");
}

#[tokio::test]
async fn websockets_pass_where_they_are_allowed_and_nothing_else_does() {
    let inspected = Inspected::new(
        "
network:
  rules:
    - {host: good.example, method: GET, verdict: allow}
    - {host: also.example, method: [GET, WEBSOCKET], verdict: allow}
",
    )
    .await;
    for (name, open) in [("also.example", true), ("good.example", false)] {
        let mut stream = inspected.greet(name, &[b"http/1.1"]).await.unwrap();
        let host = format!("{name}:{}", inspected.web.address.port());
        let text = format!(
            "GET /ws HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        if open {
            assert!(head.starts_with("HTTP/1.1 101"), "{head}");
            stream.write_all(b"frames").await.unwrap();
            let mut back = [0; 6];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(&back, b"frames");
        } else {
            assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        }
    }
    assert_eq!(inspected.web.seen(), ["GET /ws"]);
    let upgrade = [
        ("connection", "upgrade, http2-settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
    ];
    let told = inspected.one("good.example").await.ask("GET", "/x", &upgrade, "").await.json();
    assert!(told["headers"].get("upgrade").is_none(), "{told}");
}

#[tokio::test]
async fn the_other_side_must_prove_who_it_is() {
    let nobody = Arc::new(RootCertStore::empty());
    let inspection = Inspection { roots: Some(nobody), ..Inspection::default() };
    let inspected = Inspected::with(RULES, inspection).await;
    let mut client = inspected.one("good.example").await;
    client.get("/public/a").await.refused(502, "certificate-invalid");
    assert!(inspected.web.seen().is_empty());
}

#[tokio::test]
async fn an_authority_is_for_one_sandbox() {
    let inspected = Inspected::new(RULES).await;
    let other = Authority::generate(&sandbox()).unwrap();
    let certificate = CertificateDer::from_pem_slice(other.certificate_pem().as_bytes()).unwrap();
    let port = inspected.web.address.port();
    let stream = inspected.world.reach("good.example", port).await;
    assert!(greet_with(certificate, "good.example", &[b"h2"], stream).await.is_err());
    // One that was kept over a restart is the same.
    let again = Authority::restore(&sandbox(), &other.key_pem(), other.certificate_pem()).unwrap();
    assert_eq!(again.certificate_pem(), other.certificate_pem());
    assert!(!inspected.authority.certificate_pem().contains("PRIVATE"));
    assert!(inspected.greet("good.example", &[b"h2"]).await.is_ok());
}

#[tokio::test]
async fn changed_rules_cut_what_they_no_longer_allow() {
    let inspected = Inspected::new(RULES).await;
    let mut client = inspected.one("good.example").await;
    assert_eq!(client.get("/public/a").await.status, 200);
    inspected.world.gate.set_rules(rules(
        "network: {rules: [{host: good.example, path: /other/*, verdict: allow}]}",
    ));
    client.get("/public/a").await.refused(403, "not-listed");
    let mut stream = inspected.world.reach("good.example", inspected.web.address.port()).await;
    inspected.world.gate.set_rules(rules("network_allowlist: [also.example]"));
    assert!(is_cut(&mut stream).await);
}

#[tokio::test]
async fn a_spent_budget_is_429_and_every_request_is_recorded() {
    let inspected = Inspected::new(
        "network: {rules: [{name: few, host: good.example, path: /*, verdict: allow, budgets: [{requests: 2}]}]}",
    )
    .await;
    let mut client = inspected.one("good.example").await;
    assert_eq!(client.get("/a%2Fb").await.status, 200, "two readings, one request");
    assert_eq!(client.get("/b").await.status, 200);
    client.get("/c").await.refused(429, "budget-spent");
    let records = inspected.world.records(3).await;
    assert_eq!(records[2].reason, Reason::BudgetSpent);
}
