//! Credentials: given to requests that fit, on the host, and taken out of what comes back.

use serde_json::Value;

use crate::web::Inspected;

const SECRET: &str = "hunter2-secret";

/// A document with one credential for `good.example` and rules for everything.
fn document(credential: &str) -> String {
    format!(
        "
network:
  rules:
    - {{host: good.example, path: /*, verdict: allow}}
    - {{host: also.example, path: /*, verdict: allow}}
    - {{host: plain.example, path: /*, verdict: allow}}
credentials:
  - name: it
    source: {{store: token}}
    host: [good.example, plain.example]
{credential}"
    )
}

fn sent<'v>(told: &'v Value, name: &str) -> Option<&'v str> {
    told["headers"][name].as_str()
}

#[tokio::test]
async fn a_request_that_fits_gets_it_and_the_reply_does_not_tell() {
    let inspected =
        Inspected::new(&document("    inject: bearer\n    path: /api/*\n    method: GET\n")).await;
    for mut client in [inspected.one("good.example").await, inspected.two("good.example").await] {
        let guests = [("authorization", "Bearer guest"), ("accept-encoding", "gzip")];
        let reply = client.ask("GET", "/api/x", &guests, "").await;
        let masked = format!("Bearer {}", "*".repeat(SECRET.len()));
        assert_eq!(sent(&reply.json(), "authorization"), Some(masked.as_str()));
        assert_eq!(reply.headers["x-got"], masked.as_str(), "headers do not tell either");
        assert_eq!(sent(&reply.json(), "accept-encoding"), Some("identity"));
        // Twins that do not fit keep what the guest sent.
        for (method, target) in [("GET", "/other"), ("POST", "/api/x"), ("GET", "/api%2fx")] {
            let told = client.ask(method, target, &guests, "").await.json();
            assert_eq!(sent(&told, "authorization"), Some("Bearer guest"), "{method} {target}");
        }
    }
    // Another host, also by a redirect, is another host.
    let reply = inspected.one("good.example").await.get("/redirect").await;
    assert_eq!(
        (reply.status, reply.headers["location"].to_str().unwrap()),
        (302, "https://also.example/")
    );
    let told = inspected.one("also.example").await.get("/api/x").await.json();
    assert_eq!(sent(&told, "authorization"), None);
}

#[tokio::test]
async fn a_request_that_may_be_taken_for_another_gets_nothing() {
    let inspected =
        Inspected::new(&document("    inject: bearer\n    path: /api/*\n    method: GET\n")).await;
    for mut client in [inspected.one("good.example").await, inspected.two("good.example").await] {
        for (name, value, given) in [
            ("x-http-method-override", "DELETE", false),
            ("x-http-method-override", "get", true),
            ("x-original-url", "/admin", false),
            ("x-rewrite-url", "https://good.example/api/../admin", false),
            ("x-original-url", "/api/y", true),
        ] {
            let told = client.ask("GET", "/api/x", &[(name, value)], "").await.json();
            assert_eq!(sent(&told, "authorization").is_some(), given, "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn what_stands_beside_the_status_does_not_tell() {
    let inspected = Inspected::new(&document("    inject: bearer\n")).await;
    let reply = inspected.one("good.example").await.get("/phrase").await;
    let masked = format!("no Bearer {}", "*".repeat(SECRET.len()));
    assert_eq!((reply.status, reply.phrase), (401, Some(masked)));
    // Twin: words without a secret pass as they are.
    let guests = [("authorization", "Bearer guest")];
    let reply = inspected.one("also.example").await.ask("GET", "/phrase", &guests, "").await;
    assert_eq!(reply.phrase.as_deref(), Some("no Bearer guest"));
}

#[tokio::test]
async fn a_reply_that_cannot_be_looked_through_is_not_given() {
    let inspected = Inspected::new(&document("    inject: bearer\n")).await;
    let mut client = inspected.one("good.example").await;
    client.get("/encoded").await.refused(502, "unsupported");
    client.get("/coded").await.refused(502, "unsupported");
    // Twins: without a credential a body may be encoded; a transfer coding is for nobody but the neighbour who decodes it.
    let mut client = inspected.one("also.example").await;
    assert_eq!(client.get("/encoded").await.status, 200);
    client.get("/coded").await.refused(502, "unsupported");
}

#[tokio::test]
async fn plain_http_gets_it_only_where_the_credential_says_so() {
    let inspected = Inspected::new(&document("    inject: bearer\n")).await;
    let told = inspected.clear().await.get("/x").await.json();
    assert_eq!(sent(&told, "authorization"), None);
    let inspected = Inspected::new(&document("    inject: bearer\n    plain_http: true\n")).await;
    let told = inspected.clear().await.get("/x").await.json();
    assert!(sent(&told, "authorization").is_some());
}

#[tokio::test]
async fn a_guests_own_header_is_refused_where_the_credential_says_so() {
    let inspected =
        Inspected::new(&document("    inject: bearer\n    guest_header: refuse\n")).await;
    let mut client = inspected.one("good.example").await;
    let reply = client.ask("GET", "/x", &[("authorization", "Bearer guest")], "").await;
    reply.refused(403, "rule-denies");
    assert!(inspected.web.seen().is_empty());
    assert_eq!(client.get("/x").await.status, 200);
}

#[tokio::test]
async fn a_secret_is_rotated_and_missed() {
    let inspected = Inspected::new(&document(
        "    inject: {header: {name: x-api-key, template: 'k {secret}'}}\n",
    ))
    .await;
    let mut client = inspected.one("good.example").await;
    let masked = |length: usize| format!("k {}", "*".repeat(length));
    let told = client.get("/x").await.json();
    assert_eq!(sent(&told, "x-api-key"), Some(masked(SECRET.len()).as_str()));
    let set = |value: &str| {
        inspected.store.0.lock().unwrap().insert("token".to_owned(), value.to_owned())
    };
    set("another");
    let told = client.get("/x").await.json();
    assert_eq!(sent(&told, "x-api-key"), Some(masked(7).as_str()), "on the same connection");
    set("line\r\nbreak");
    client.get("/x").await.refused(502, "secret-unavailable");
    inspected.store.0.lock().unwrap().clear();
    let told = client.get("/x").await.refused(502, "secret-unavailable");
    assert_eq!(told["code"], "secret-unavailable");
    assert_eq!(inspected.web.seen().len(), 2, "without it, nothing is sent");
}

#[tokio::test]
async fn placeholders_are_replaced_on_the_way() {
    let inspected = Inspected::new(&document(
        "    inject: {placeholder: {text: PLACEHOLDER, in: [header, query, body]}}\n",
    ))
    .await;
    let mask = "*".repeat(SECRET.len());
    for mut client in [inspected.one("good.example").await, inspected.two("good.example").await] {
        let fields = [("x-key", "PLACEHOLDER"), ("content-type", "text/plain")];
        let told = client.ask("POST", "/x?k=PLACEHOLDER", &fields, "a PLACEHOLDER b").await.json();
        assert_eq!(sent(&told, "x-key"), Some(mask.as_str()));
        assert_eq!(told["body"], format!("a {mask} b"));
        assert_eq!(told["length"], 4 + SECRET.len());
        let query = told["target"].as_str().unwrap();
        assert!(query.starts_with("/x?k=***") && !query.contains("PLACEHOLDER"), "{query}");
        // Large bodies are not held.
        let large = [vec![b'x'; 3 << 20], b"PLACEHOLDER".to_vec()].concat();
        let told = client.ask("POST", "/x", &[], large).await.json();
        assert_eq!(told["length"], (3 << 20) + SECRET.len());
    }
    let told = inspected.one("also.example").await;
    let told = { told }.ask("POST", "/x", &[("x-key", "PLACEHOLDER")], "PLACEHOLDER").await.json();
    assert_eq!((sent(&told, "x-key"), &told["body"]), (Some("PLACEHOLDER"), &"PLACEHOLDER".into()));
}

#[tokio::test]
async fn requests_are_signed_for_aws() {
    let inspected =
        Inspected::new(&document("    inject: {sigv4: {region: eu-west-1, service: sqs}}\n")).await;
    inspected.store.0.lock().unwrap().insert("token".to_owned(), "AKID:THESECRETKEY".to_owned());
    let mut client = inspected.one("good.example").await;
    let guests = [
        ("authorization", "AWS4-HMAC-SHA256 Credential=GUEST/x"),
        ("x-amz-date", "19700101T000000Z"),
        ("x-amz-target", "AmazonSQS.SendMessage"),
    ];
    let told = client.ask("POST", "/", &guests, "{}").await.json();
    let signed = sent(&told, "authorization").unwrap();
    assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{signed}");
    assert!(signed.contains("SignedHeaders=host;x-amz-date;x-amz-target,"), "{signed}");
    assert_ne!(sent(&told, "x-amz-date"), Some("19700101T000000Z"));
    assert_eq!(told["body"], "{}");
}

/// Reads `/api/x` byte by byte, as a guest does that hopes to get what a whole reply does not show.
async fn in_parts(inspected: &Inspected, two: bool) -> (Vec<u16>, String) {
    let mut client = match two {
        true => inspected.two("good.example").await,
        false => inspected.one("good.example").await,
    };
    let whole = client.get("/api/x").await.body.len();
    let (mut statuses, mut text) = (Vec::new(), String::new());
    for at in 0..whole {
        // The host repeats the range too, so it is as long in every request.
        let range = format!("bytes={at:04}-{at:04}");
        let fields = [("range", range.as_str()), ("if-range", "\"x\"")];
        let reply = client.ask("GET", "/api/x", &fields, "").await;
        if !statuses.contains(&reply.status) {
            statuses.push(reply.status);
        }
        text.push_str(&String::from_utf8_lossy(&reply.body));
        if reply.status == 200 {
            break;
        }
    }
    (statuses, text)
}

#[tokio::test]
async fn a_reply_in_parts_does_not_tell_either() {
    let inspected = Inspected::new(&document("    inject: bearer\n    path: /api/*\n")).await;
    for two in [false, true] {
        let (statuses, text) = in_parts(&inspected, two).await;
        assert_eq!(statuses, [200], "what is asked for in parts comes whole");
        assert!(text.contains(&"*".repeat(SECRET.len())) && !text.contains(SECRET), "{text}");
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((sent(&told, "range"), sent(&told, "if-range")), (None, None));
    }
    // Twins: requests that get nothing keep theirs, and so do those of a credential that says so.
    let mut client = inspected.one("good.example").await;
    let reply = client.ask("GET", "/other", &[("range", "bytes=0-3")], "").await;
    assert_eq!((reply.status, reply.body.len()), (206, 4));
    let trusting = document("    inject: bearer\n    path: /api/*\n    ranges: true\n");
    let inspected = Inspected::new(&trusting).await;
    let (statuses, text) = in_parts(&inspected, false).await;
    assert_eq!(statuses, [206]);
    assert!(text.contains(SECRET), "which is why it has to be said: {text}");
    // A signature is no secret: what it signs may come in parts.
    let signing = document("    inject: {sigv4: {region: eu-west-1, service: s3}}\n");
    let inspected = Inspected::new(&signing).await;
    inspected.store.0.lock().unwrap().insert("token".to_owned(), "AKID:THESECRETKEY".to_owned());
    let mut client = inspected.one("good.example").await;
    let reply = client.ask("GET", "/x", &[("range", "bytes=0-3")], "").await;
    assert_eq!(reply.status, 206);
}
