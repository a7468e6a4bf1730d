//! Files over REST, against a real sandbox.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use http::{Method, header};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use support::{Client, with_server};

async fn ranged(client: &Client, path: &str, range: &str) -> support::Answer {
    let request = client.request(Method::GET, path).header(header::RANGE, range);
    client.ask(request.body(Full::default()).unwrap()).await
}

#[test]
fn contents_are_read_and_written_in_whole_and_in_part() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let files = format!("/v1/sandboxes/{id}/files");
        let content = |path: &str| format!("{files}/content?path={path}");
        let written = client.put(&content("a.bin"), &b"0123456789"[..]).await.ok();
        assert_eq!((&written["size"], &written["kind"]), (&json!(10), &json!("file")));
        let whole = client.get(&content("a.bin")).await;
        assert_eq!((&whole.body[..], whole.status.as_u16()), (&b"0123456789"[..], 200));
        assert_eq!(whole.headers[header::ACCEPT_RANGES], "bytes");
        let head = client.bare(Method::HEAD, &content("a.bin")).await;
        assert_eq!(head.headers[header::CONTENT_LENGTH], "10");

        let part = ranged(&client, &content("a.bin"), "bytes=2-4").await;
        assert_eq!((&part.body[..], part.status.as_u16()), (&b"234"[..], 206));
        assert_eq!(part.headers[header::CONTENT_RANGE], "bytes 2-4/10");
        let tail = ranged(&client, &content("a.bin"), "bytes=-3").await;
        assert_eq!(&tail.body[..], b"789");
        let outside = ranged(&client, &content("a.bin"), "bytes=10-").await;
        outside.problem(416, "invalid-argument");
        assert_eq!(outside.headers[header::CONTENT_RANGE], "bytes */10");

        let more = client.put(&(content("a.bin") + "&mode=append"), &b"ab"[..]).await.ok();
        assert_eq!(more["size"], 12);
        let new = content("a.bin") + "&mode=create_new";
        client.put(&new, &b"x"[..]).await.problem(409, "file-exists");
        let deep = content("d/e/f.txt") + "&make_parents=true&permissions=600";
        assert_eq!(
            client.put(&deep, &b"x"[..]).await.ok()["mode"].as_u64().unwrap() & 0o777,
            0o600
        );
        client
            .put(&(content("b") + "&permissions=9"), &b""[..])
            .await
            .problem(400, "invalid-argument");
        client.get(&content("/nothing")).await.problem(404, "file-not-found");
        client.get(&content("d")).await.problem(400, "file-kind-wrong");

        client.bare(Method::DELETE, &content("a.bin")).await.ok();
        client.get(&content("a.bin")).await.problem(404, "file-not-found");
        // The kernel makes this one up: it has contents and no size.
        let made_up = client.get(&content("/proc/version")).await;
        assert!(made_up.body.starts_with(b"Linux"), "{made_up:?}");
    });
}

#[test]
fn large_files_stream_both_ways() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let path = format!("/v1/sandboxes/{id}/files/content?path=/tmp/large");
        let large: Vec<u8> = (0..24 << 20_u32).map(|number| (number % 251) as u8).collect();
        let written = client.put(&path, large.clone()).await.ok();
        assert_eq!(written["size"], large.len());
        let request = client.request(Method::GET, &path).body(Full::default()).unwrap();
        let read = client.send(request).await.into_body().collect().await.unwrap().to_bytes();
        assert!(read == large, "{} bytes came back", read.len());
    });
}

#[test]
fn trees_are_looked_at_and_changed() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let files = format!("/v1/sandboxes/{id}/files");
        let act = async |verb: &str, body: serde_json::Value| {
            client.post(&format!("{files}/{verb}"), &body).await
        };
        act("mkdir", json!({"path": "a/b", "parents": true})).await.ok();
        act("mkdir", json!({"path": "a/b"})).await.problem(409, "file-exists");
        client.put(&format!("{files}/content?path=a/b/x.py"), &b"import os\n"[..]).await.ok();
        act("chmod", json!({"path": "a/b/x.py", "permissions": 0o755})).await.ok();
        // Who leaves them out does not mean none at all; who writes 0 does.
        let missing = act("chmod", json!({"path": "a/b/x.py"})).await;
        missing.problem(400, "invalid-argument");
        act("mkdir", json!({"path": "closed"})).await.ok();
        let closed = act("chmod", json!({"path": "closed", "permissions": 0})).await.ok();
        assert_eq!(closed["mode"].as_u64().unwrap_or_default() & 0o777, 0);
        act("remove", json!({"path": "closed"})).await.ok();
        act("move", json!({"from": "a/b/x.py", "to": "a/y.py"})).await.ok();
        act("copy", json!({"from": "a", "to": "c", "recursive": true})).await.ok();

        let listed = client.get(&format!("{files}?path=.&depth=3&page_size=3")).await.ok();
        assert_eq!(listed["files"].as_array().unwrap().len(), 3);
        let token = listed["next_page_token"].as_str().expect("there is more");
        let rest = client.get(&format!("{files}?path=.&depth=3&page_token={token}")).await.ok();
        assert!(!rest["files"].as_array().unwrap().is_empty());
        let info = client.get(&format!("{files}/stat?path=a/y.py")).await.ok();
        assert_eq!(info["mode"].as_u64().unwrap() & 0o777, 0o755);

        let search = format!("{files}/search?name=*.py&content=import");
        let hits = client.get(&search).await.ok();
        assert_eq!(hits["hits"].as_array().unwrap().len(), 2, "{hits}");
        let lines = client.request(Method::GET, &search).header("accept", "application/x-ndjson");
        let lines = client.ask(lines.body(Full::default()).unwrap()).await;
        assert_eq!(lines.headers[header::CONTENT_TYPE], "application/x-ndjson");
        assert_eq!(lines.body.iter().filter(|byte| **byte == b'\n').count(), 2);

        for format in ["tar", "tar_gz", "zip"] {
            let archive = client.get(&format!("{files}/archive?path=a&format={format}")).await;
            assert_eq!(archive.status, 200, "{format}");
            let place = format!("{files}/archive?path=from-{format}&format={format}");
            act("mkdir", json!({"path": format!("from-{format}")})).await.ok();
            let unpacked = client.put(&place, archive.body).await.ok();
            assert_eq!(unpacked["files"], 1, "{format}: {unpacked}");
        }
        client.get(&format!("{files}/archive?path=/nothing")).await.problem(404, "file-not-found");
        client
            .put(&format!("{files}/archive?path=a&format=zip"), &b"no zip"[..])
            .await
            .problem(400, "archive-refused");
        act("remove", json!({"path": "a"})).await.problem(409, "file-failed");
        act("remove", json!({"path": "a", "recursive": true})).await.ok();
        client.get(&format!("{files}/stat?path=a")).await.problem(404, "file-not-found");
    });
}

#[test]
fn changes_are_told() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let files = format!("/v1/sandboxes/{id}/files");
        let request = client.request(Method::GET, &format!("{files}/watch?path=/tmp"));
        let mut events = client.events(request.body(Full::default()).unwrap()).await;
        assert_eq!(events.expect("change").await.data["kind"], "watching");
        client.put(&format!("{files}/content?path=/tmp/new"), &b"x"[..]).await.ok();
        let change = events.expect("change").await;
        assert_eq!(
            (&change.data["kind"], &change.data["path"]),
            (&json!("created"), &json!("new"))
        );
    });
}

#[test]
fn files_are_kept_and_restored() {
    with_server(async |client| {
        let id = client.create(json!({"name": "one"})).await;
        client
            .put(&format!("/v1/sandboxes/{id}/files/content?path=/workspace/a"), "kept")
            .await
            .ok();
        let create = "/v1/sandboxes/one/snapshots";
        let kept = client.post(create, &json!({"name": "base", "labels": {"k": "v"}})).await.ok();
        assert_eq!(kept["sandbox_id"], json!(id));
        client.post(create, &json!({"name": "base"})).await.problem(409, "snapshot-exists");
        let list = client.get("/v1/snapshots?label=k=v&sandbox=one").await.ok();
        assert_eq!(list["snapshots"], json!([kept]));
        assert_eq!(client.get("/v1/snapshots?sandbox=two").await.ok()["snapshots"], json!([]));

        let restore = "/v1/snapshots/base/restore";
        let restored = client.post(restore, &json!({"create": {"name": "two"}})).await.ok();
        assert_eq!(restored["name"], "two");
        let read = client.get("/v1/sandboxes/two/files/content?path=/workspace/a").await;
        assert_eq!(&read.body[..], b"kept", "{}", read.status);
        client
            .post(restore, &json!({"create": {"name": "two"}}))
            .await
            .problem(409, "sandbox-exists");
        let workspace = json!({"create": {"workspace": {"path": "/srv"}}});
        client.post(restore, &workspace).await.problem(400, "conflicting-options");

        client.bare(Method::DELETE, "/v1/snapshots/base").await.ok();
        client.get("/v1/snapshots/base").await.problem(404, "snapshot-not-found");
        client.post(restore, &json!({})).await.problem(404, "snapshot-not-found");
    });
}

#[test]
fn a_closed_working_directory_is_not_the_root() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let content = |path: &str| format!("/v1/sandboxes/{id}/files/content?path={path}");
        let chmod = json!({"path": "/workspace", "permissions": 0});
        client.post(&format!("/v1/sandboxes/{id}/files/chmod"), &chmod).await.ok();
        client.get(&content("etc/passwd")).await.problem(403, "file-denied");
        assert_eq!(client.get(&content("/etc/passwd")).await.status, 200);
        let open = json!({"path": "/workspace", "permissions": 0o755});
        client.post(&format!("/v1/sandboxes/{id}/files/chmod"), &open).await.ok();
        client.get(&content("etc/passwd")).await.problem(404, "file-not-found");
    });
}
