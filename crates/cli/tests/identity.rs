//! `belljar token` and `belljar webhooks`: what opens one sandbox, and who is told.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use support::Place;

#[test]
fn a_token_opens_its_sandbox_and_nothing_else() {
    let Some(place) = Place::with_sandboxes() else { return };
    let create = |name: &str| {
        place.run(&["create", "--name", name, "--json"]).exits(0).json()["sandbox_id"].clone()
    };
    let (own, other) = (create("own"), create("other"));
    let own = own.as_str().unwrap();
    let issued = place.run(&["token", "own", "--expires", "10m", "--json"]).exits(0).json();
    assert!(issued["expires_at"].is_string(), "{issued}");
    let token = issued["token"].as_str().unwrap();
    let socket = format!("unix:{}", place.state_dir().join("server.sock").display());
    let with = |words: &[&str]| {
        let words: Vec<&str> =
            ["--server", &socket, "--api-key", token].iter().chain(words).copied().collect();
        place.run(&words)
    };
    with(&["exec", own, "--", "echo", "opened"]).exits(0).says("opened\n");
    let refused = with(&["exec", other.as_str().unwrap(), "--json", "--", "true"]).exits(125);
    assert_eq!(refused.json()["error"]["code"], "sandbox-not-found");
    assert_eq!(
        with(&["tenants", "list", "--json"]).exits(125).json()["error"]["code"],
        "permission-denied"
    );
    // For people: the token alone is data, its end is for them.
    let plain = place.run(&["token", "own"]).exits(0);
    assert_eq!(plain.stdout.trim().split('.').count(), 3, "{}", plain.stdout);
    assert!(plain.stderr.contains("it ends at "), "{}", plain.stderr);
    // A token for something else is no key, and one for nothing is not issued.
    let preview = place.run(&["token", "own", "--for", "preview"]).exits(0).stdout;
    let words = ["--server", &socket, "--api-key", preview.trim(), "list", "--json"];
    assert_eq!(place.run(&words).exits(125).json()["error"]["code"], "token-invalid");
    let absent = place.run(&["token", "nonesuch", "--json"]).exits(125).json();
    assert_eq!(absent["error"]["code"], "sandbox-not-found");
    let long = place.run(&["token", "own", "--expires", "30d", "--json"]).exits(125).json();
    assert_eq!(long["error"]["code"], "invalid-argument");
}

#[test]
fn webhooks_are_added_told_listed_and_removed() {
    let Some(place) = Place::with_sandboxes() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    place.write("secret", "a-secret-of-some-length\n");
    let secret = place.path("secret").display().to_string();
    let add = |more: &[&str]| {
        let words: Vec<&str> = ["webhooks", "add", &url, "--secret-file", &secret, "--json"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        place.run(&words)
    };
    let added = add(&["--kind", "sandbox-ready"]).exits(0);
    assert!(!added.stdout.contains("a-secret-of-some-length"));
    let id = added.json()["webhook_id"].as_str().unwrap().to_owned();
    add(&["--kind", "nonesuch"]).exits(125);
    let empty = place.run_input(&["webhooks", "add", &url, "--secret-file", "-", "--json"], b"");
    assert_eq!(empty.exits(125).json()["error"]["code"], "invalid-argument");
    let short = place
        .run_input(&["webhooks", "add", &url, "--secret-file", "-", "--json"], b"fifteen letters");
    assert_eq!(short.exits(125).json()["error"]["code"], "invalid-argument");

    let told = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let mut reader = BufReader::new(&stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(count) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = count.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        (head, String::from_utf8(body).unwrap())
    });
    let sandbox = place.run(&["create", "--json"]).exits(0).json()["sandbox_id"].clone();
    let (head, body) = told.join().unwrap();
    assert!(head.starts_with("POST /hook "), "{head}");
    assert!(head.to_ascii_lowercase().contains("signature"), "{head}");
    assert!(body.contains(sandbox.as_str().unwrap()), "{body}");

    let listed = place.run(&["webhooks", "list", "--json"]).exits(0);
    assert!(
        listed.stdout.contains(&id) && !listed.stdout.contains("a-secret"),
        "{}",
        listed.stdout
    );
    let table = place.run(&["webhooks", "list"]).exits(0).stdout;
    assert!(table.contains(&url) && table.contains("sandbox-ready"), "{table}");
    assert_eq!(place.run(&["webhooks", "rm", &id, "--json"]).exits(0).json()["removed"], id);
    assert_eq!(place.run(&["webhooks", "list", "--json"]).exits(0).json(), serde_json::json!([]));
    let gone = place.run(&["webhooks", "rm", &id, "--json"]).exits(125).json();
    assert_eq!(gone["error"]["code"], "webhook-not-found");
}
