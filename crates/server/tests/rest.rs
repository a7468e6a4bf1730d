//! The API over REST, against real sandboxes.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use http::{Method, header};
use http_body_util::Full;
use serde_json::{Value, json};
use support::{Client, with_server};

fn decoded(data: &Value) -> Vec<u8> {
    use base64::Engine;
    let text = data.as_str().expect("base64");
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}

#[test]
fn a_sandbox_lives_and_ends() {
    with_server(async |client| {
        let id = client.create(json!({"name": "web", "labels": {"team": "a=b"}})).await;
        let by_name = client.get("/v1/sandboxes/web").await.ok();
        assert_eq!((&by_name["sandbox_id"], &by_name["state"]), (&json!(id), &json!("ready")));

        let found = client.get("/v1/sandboxes?label=team%3Da%3Db&state=ready").await.ok();
        assert_eq!(found["sandboxes"].as_array().unwrap().len(), 1);
        let none = client.get("/v1/sandboxes?label=team=other").await.ok();
        assert_eq!(none["sandboxes"], json!([]));

        let exec = format!("/v1/sandboxes/{id}/exec");
        let done = client.post(&exec, &json!({"command": {"shell": "echo hi; exit 3"}})).await.ok();
        assert_eq!((&done["exit_code"], &done["stdout"]), (&json!(3), &json!("hi\n")));

        let act = async |verb: &str, body: &Value| {
            client.post(&format!("/v1/sandboxes/web/{verb}"), body).await
        };
        let extended = act("extend", &json!({"idle_timeout_secs": 90})).await.ok();
        assert_eq!(extended["idle_timeout_secs"], 90.0);
        assert_eq!(act("pause", &Value::Null).await.ok()["state"], "paused");
        act("exec", &json!({"command": {"argv": ["true"]}}))
            .await
            .problem(409, "sandbox-not-ready");
        assert_eq!(act("resume", &Value::Null).await.ok()["state"], "ready");

        client.bare(Method::DELETE, "/v1/sandboxes/web").await.ok();
        client.get("/v1/sandboxes/web").await.problem(404, "sandbox-not-found");
    });
}

#[test]
fn a_sandbox_whose_files_cannot_be_written_is_not_left_behind() {
    with_server(async |client| {
        let with_file = |path: &str| json!({"files": [{"path": path, "content": "YQ=="}]});
        let snapshot = async |id: &str| {
            let made = client.post(&format!("/v1/sandboxes/{id}/snapshots"), &json!({})).await.ok();
            format!("/v1/snapshots/{}/restore", made["snapshot_id"].as_str().unwrap())
        };
        let count = async || {
            let listed = client.get("/v1/sandboxes").await.ok();
            listed["sandboxes"].as_array().unwrap().len()
        };
        let id = client.create(with_file("/workspace/deep/a")).await;
        let restore = snapshot(&id).await;
        assert_eq!(count().await, 1);
        for path in ["/proc/nothing", ""] {
            let refused = client.post("/v1/sandboxes", &with_file(path)).await;
            assert!(refused.status.is_client_error(), "{refused:?}");
            let refused = client.post(&restore, &json!({"create": with_file(path)})).await;
            assert!(refused.status.is_client_error(), "{refused:?}");
        }
        assert_eq!(count().await, 1);
        client.post(&restore, &json!({"create": with_file("b")})).await.ok();
        assert_eq!(count().await, 2);
    });
}

#[test]
fn over_the_unix_socket_it_is_the_same() {
    with_server(async |client| {
        let client = Client { unix: true, ..client };
        assert_eq!(client.get("/v1/caller").await.ok()["by"], "socket");
        let id = client.create(json!({})).await;
        let exec = format!("/v1/sandboxes/{id}/exec");
        let done = client.post(&exec, &json!({"command": {"argv": ["true"]}})).await.ok();
        assert_eq!(done["exit_code"], 0);
    });
}

#[test]
fn everything_that_is_wrong_is_a_problem() {
    with_server(async |client| {
        let create = "/v1/sandboxes";
        let raw = async |method: Method, path: &str, kind: &str, body: &str| {
            let builder = client.request(method, path).header(header::CONTENT_TYPE, kind);
            client.ask(builder.body(Full::from(body.to_owned())).unwrap()).await
        };
        let json = "application/json";
        let problem = raw(Method::POST, create, json, "{\n \"nmae\": 1}").await;
        let problem = problem.problem(400, "invalid-argument");
        let cause = problem["cause"].to_string();
        assert!(cause.contains("nmae") && cause.contains("line 2"), "{problem}");
        let nested = raw(Method::POST, create, json, r#"{"limits": {"pids": "many"}}"#).await;
        let nested = nested.problem(400, "invalid-argument");
        assert!(nested["message"].as_str().unwrap().contains("limits.pids"), "{nested}");
        raw(Method::POST, create, json, "[\"name\"]").await.problem(400, "invalid-argument");
        raw(Method::POST, create, json, "{} {}").await.problem(400, "invalid-argument");
        raw(Method::POST, create, "text/plain", "{}").await.problem(415, "unsupported-media-type");
        let large = format!(r#"{{"create": {{"name": "{}"}}}}"#, "x".repeat(2 << 20));
        raw(Method::POST, "/v1/explain", json, &large).await.problem(413, "request-too-large");

        let wrong = raw(Method::PATCH, create, json, "{}").await;
        wrong.problem(405, "method-not-allowed");
        assert_eq!(wrong.headers[header::ALLOW], "POST,GET,HEAD");
        client.get("/v1/nothing").await.problem(404, "route-not-found");
        client.get("/v1/sandboxes?labl=x").await.problem(400, "invalid-argument");
        client.get("/v1/sandboxes?page_size=many").await.problem(400, "invalid-argument");
        client.get("/v1/sandboxes?label=x").await.problem(400, "invalid-argument");
        client.get("/v1/sandboxes/%ff").await.problem(400, "invalid-argument");
        client.get("/v1/sandboxes/none").await.problem(404, "sandbox-not-found");
        client.get("/v1/processes/none/attach").await.problem(400, "invalid-argument");

        // The twins that are allowed.
        let options = client.bare(Method::OPTIONS, create).await;
        assert_eq!((options.status.as_u16(), options.body.len()), (204, 0));
        assert_eq!(options.headers[header::ALLOW], "POST,GET,HEAD");
        assert!(!options.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
        let head = client.bare(Method::HEAD, create).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        let named = client.request(Method::GET, create).header("x-request-id", "mine-1");
        let named = client.ask(named.body(Full::default()).unwrap()).await;
        assert_eq!(named.headers["x-request-id"], "mine-1");
    });
}

#[test]
fn the_first_byte_arrives_while_the_command_runs() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let script = "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second";
        let path = format!("/v1/sandboxes/{id}/exec");
        let request =
            client.json_request(Method::POST, &path, &json!({"command": {"shell": script}}));
        let mut events = client.events(request).await;
        let started = events.expect("started").await;
        let process = started.data["started"]["process_id"].as_str().unwrap().to_owned();
        let first = events.expect("output").await;
        assert_eq!(decoded(&first.data["data"]), b"first\n");
        assert_eq!(first.id.as_deref(), Some("6,0"));

        // Only now can it go on.
        client.put(&format!("/v1/sandboxes/{id}/files/content?path=/tmp/go"), "").await.ok();
        let second = events.expect("output").await;
        assert_eq!(decoded(&second.data["data"]), b"second\n");
        let ended = events.expect("ended").await;
        assert_eq!(ended.data["ended"]["exit_code"], 0);
        assert!(events.next().await.is_none());

        // Who lost the connection after the first goes on with the second.
        let log = format!("/v1/processes/{process}/log?follow=true");
        let again = client.request(Method::GET, &log).header("last-event-id", "6,0");
        let mut again = client.events(again.body(Full::default()).unwrap()).await;
        assert_eq!(decoded(&again.expect("output").await.data["data"]), b"second\n");
        again.expect("ended").await;
    });
}

#[test]
fn a_run_is_collected_or_streamed() {
    with_server(async |client| {
        let run = json!({
            "session": {"ephemeral": true},
            "command": {"shell": "cat in; echo out > /output/a.txt"},
            "write": [{"path": "in", "content": "aGVsbG8="}],
            "read": ["/output/a.txt"],
        });
        let done = client.post("/v1/run", &run).await.ok();
        assert_eq!(done["ended"]["result"]["stdout"], "hello", "{done}");
        assert_eq!(decoded(&done["ended"]["files"][0]["content"]), b"out\n");
        let sandbox = done["started"]["sandbox"]["sandbox_id"].as_str().unwrap();
        assert_eq!(client.get("/v1/sandboxes").await.ok()["sandboxes"], json!([]), "{sandbox}");

        let request = client.json_request(Method::POST, "/v1/run", &run);
        let mut events = client.events(request).await;
        events.expect("started").await;
        let output = events.expect("output").await;
        assert_eq!(decoded(&output.data["output"]["data"]), b"hello");
        events.expect("ended").await;
    });
}

#[test]
fn files_of_a_run_are_bounded_and_its_end_is_told() {
    with_server(async |client| {
        let run = async |command: &str, field: &str, files: Value| {
            let session = json!({"name": "bounded"});
            let run = json!({"session": session, "command": {"shell": command}, field: files});
            client.post("/v1/run", &run).await
        };
        let file = json!({"path": "in", "content": "YQ=="});
        for (field, each) in [("read", json!("in")), ("write", file.clone())] {
            let refused = run("true", field, json!(vec![each; 1001])).await;
            assert_eq!(refused.status, 400, "{refused:?}");
            let message = refused.json()["message"].to_string();
            assert!(message.contains("1001 files, more than 1000"), "{message}");
        }
        let with_files = json!({"files": vec![file.clone(); 1001]});
        assert_eq!(client.post("/v1/sandboxes", &with_files).await.status, 400);
        // Nothing was begun for them; so many are well.
        assert_eq!(client.get("/v1/sandboxes").await.ok()["sandboxes"], json!([]));
        run("test -e in", "write", json!(vec![file; 20])).await.ok();

        let make = "for n in 1 2 3; do head -c 12000000 /dev/zero > /output/$n; done; exit 3";
        let refused = run(make, "read", json!(["/output/1", "/output/2", "/output/3"])).await;
        let problem = refused.json();
        assert_eq!(problem["code"], "file-failed", "{problem}");
        assert!(problem["message"].as_str().unwrap().contains("`/output/3`"), "{problem}");
        assert!(problem["remedy"].as_str().unwrap().contains("exit status 3"), "{problem}");
        let done = run("exit 4", "read", json!(["/output/1", "/output/2"])).await.ok();
        assert_eq!(done["ended"]["result"]["exit_code"], 4);
        let sizes = done["ended"]["files"].as_array().unwrap().iter();
        let sizes: Vec<_> = sizes.map(|file| decoded(&file["content"]).len()).collect();
        assert_eq!(sizes, [12_000_000; 2]);
    });
}

#[test]
fn processes_are_followed_and_acted_on() {
    with_server(async |client| {
        let id = client.create(json!({})).await;
        let start = format!("/v1/sandboxes/{id}/processes");
        let command = json!({"command": {"argv": ["cat"], "stdin": true}});
        let started = client.post(&start, &command).await.ok();
        let process = format!("/v1/processes/{}", started["process_id"].as_str().unwrap());
        let waited = client.get(&format!("{process}/wait?timeout_secs=0")).await.ok();
        assert_eq!(waited["exit_code"], Value::Null);
        client
            .get(&format!("{process}/wait?timeout_secs=61"))
            .await
            .problem(400, "invalid-argument");

        let input = client.request(Method::POST, &format!("{process}/input?close=true"));
        let written = client.ask(input.body(Full::from("\u{e9}t\u{e9}\n")).unwrap()).await.ok();
        assert_eq!(written["written"], 6);
        let ended = client.get(&format!("{process}/wait")).await.ok();
        assert_eq!((&ended["exit_code"], &ended["reason"]), (&json!(0), &json!("exited")));

        let plain = client.get(&format!("{process}/log?channel=stdout&since=3")).await;
        assert_eq!(&plain.body[..], "\u{e9}\n".as_bytes());
        assert_eq!(plain.headers["belljar-offset"], "3");
        let page = client.get(&format!("{process}/log")).await.ok();
        assert_eq!((&page["next"], &page["more"]), (&json!("6,0"), &json!(false)));
        assert_eq!(decoded(&page["output"][0]["data"]), "\u{e9}t\u{e9}\n".as_bytes());
        let signal = json!({"signal": 15});
        client.post(&format!("{process}/signal"), &signal).await.problem(409, "process-ended");

        let sleeper =
            client.post(&start, &json!({"command": {"argv": ["sleep", "100"]}})).await.ok();
        let sleeper = format!("/v1/processes/{}", sleeper["process_id"].as_str().unwrap());
        let input = client.request(Method::POST, &format!("{sleeper}/input"));
        let refused = client.ask(input.body(Full::from("abc")).unwrap()).await;
        refused.problem(400, "invalid-argument");
        let cancelled = client.post(&format!("{sleeper}/cancel"), &Value::Null).await.ok();
        assert_eq!(cancelled["reason"], "cancelled");
        let listed = client.get(&format!("/v1/processes?sandbox={id}&status=cancelled")).await.ok();
        assert_eq!(listed["processes"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn asking_twice_with_a_key_is_asking_once() {
    with_server(async |client| {
        let create = async |body: Value| {
            let mut request = client.json_request(Method::POST, "/v1/sandboxes", &body);
            request.headers_mut().insert("idempotency-key", "k1".parse().unwrap());
            client.ask(request).await
        };
        let first = create(json!({"labels": {"a": "b"}})).await.ok();
        let again = create(json!({"labels": {"a": "b"}})).await.ok();
        assert_eq!(first["sandbox_id"], again["sandbox_id"]);
        create(json!({"labels": {"a": "c"}})).await.problem(409, "idempotency-conflict");
        create(json!({"idempotency_key": "k2"})).await.problem(400, "invalid-argument");
    });
}

#[test]
fn keys_open_their_tenant_and_nothing_else() {
    with_server(async |client| {
        client
            .post("/v1/tenants", &json!({"tenant": "blue", "quotas": {"sandboxes": 1}}))
            .await
            .ok();
        let admin = client.post("/v1/keys", &json!({"name": "root", "role": "admin"})).await.ok();
        let admin = admin["secret"].as_str().unwrap().to_owned();
        // From now on nobody gets in over TCP without one.
        client.get("/v1/sandboxes").await.problem(401, "unauthenticated");
        let admin = Client { key: Some(admin), ..client.clone() };
        let blue = admin.post("/v1/keys", &json!({"name": "b", "tenant": "blue"})).await.ok();
        let (id, secret) = (&blue["key"]["key_id"], blue["secret"].as_str().unwrap().to_owned());
        let blue = Client { key: Some(secret), ..client.clone() };
        assert_eq!(blue.get("/v1/caller").await.ok()["tenant"], "blue");

        let hidden = admin.create(json!({"name": "web"})).await;
        blue.get("/v1/sandboxes/web").await.problem(404, "sandbox-not-found");
        blue.get(&format!("/v1/sandboxes/{hidden}")).await.problem(404, "sandbox-not-found");
        blue.create(json!({"name": "web"})).await;
        blue.post("/v1/sandboxes", &json!({})).await.problem(429, "quota-exceeded");
        blue.get("/v1/audit").await.problem(403, "permission-denied");
        let usage = admin.get("/v1/tenants/blue").await.ok();
        assert_eq!(usage["usage"]["sandboxes"], 1, "{usage}");

        let records =
            admin.get("/v1/audit?action=sandbox.create&outcome=quota-exceeded").await.ok();
        assert_eq!(records["records"].as_array().unwrap().len(), 1, "{records}");
        admin.get("/v1/audit?since=yesterday").await.problem(400, "invalid-argument");
        let listed = admin.get("/v1/keys?tenant=blue").await.ok();
        assert_eq!(
            (&listed["keys"][0]["key_id"], listed.to_string().contains("secret")),
            (id, false)
        );
        let token = blue.post("/v1/tokens", &json!({"sandbox": "web"})).await.ok();
        let token = Client { key: token["token"].as_str().map(str::to_owned), ..client.clone() };
        assert_eq!(token.get("/v1/caller").await.ok()["role"], "sandbox");
        let hook = json!({"url": "http://127.0.0.1:9/", "secret": "0123456789abcdef"});
        let hook = blue.post("/v1/webhooks", &hook).await.ok();
        let path = format!("/v1/webhooks/{}", hook["webhook_id"].as_str().unwrap());
        admin.bare(Method::DELETE, "/v1/webhooks/nothing").await.problem(404, "webhook-not-found");
        assert_eq!(blue.get("/v1/webhooks").await.ok()["webhooks"].as_array().unwrap().len(), 1);
        blue.bare(Method::DELETE, &path).await.ok();
        let set = |name: &str, body: Value| {
            blue.ask(blue.json_request(Method::PUT, &format!("/v1/secrets/{name}"), &body))
        };
        let named = json!({"value": "hunter2", "tenant": "default"});
        set("token", named).await.problem(404, "tenant-not-found");
        set("a%20b", json!({"value": "x"})).await.problem(400, "invalid-name");
        let set = set("token", json!({"value": "hunter2"})).await.ok();
        assert_eq!((&set["name"], &set["tenant"]), (&json!("token"), &json!("blue")));
        token.get("/v1/secrets").await.problem(403, "permission-denied");
        let listed = blue.get("/v1/secrets").await.ok();
        assert_eq!(listed["secrets"].as_array().unwrap().len(), 1);
        let audited = admin.get("/v1/audit?action=secret.set").await.ok();
        assert_eq!(audited["records"].as_array().unwrap().len(), 3, "{audited}");
        assert!(!format!("{set}{listed}{audited}").contains("hunter2"));
        let kept = blue.post("/v1/sandboxes/web/snapshots", &json!({})).await.ok();
        let kept = format!("/v1/snapshots/{}", kept["snapshot_id"].as_str().unwrap());
        admin.bare(Method::DELETE, &kept).await.ok();
        let audited = admin.get("/v1/audit?action=snapshot.remove").await.ok();
        assert_eq!(audited["records"][0]["tenant"], "blue", "whoever did it: {audited}");
        blue.bare(Method::DELETE, "/v1/secrets/token").await.ok();
        blue.bare(Method::DELETE, "/v1/secrets/token").await.problem(404, "secret-not-found");
        admin.bare(Method::DELETE, &format!("/v1/keys/{}", id.as_str().unwrap())).await.ok();
        blue.get("/v1/sandboxes").await.problem(401, "unauthenticated");
    });
}

#[test]
fn events_are_told_and_told_again() {
    with_server(async |client| {
        let since = client.get("/v1/events").await.ok()["events"].as_array().unwrap().len();
        assert_eq!(since, 0);
        let request = client.request(Method::GET, "/v1/events?since=0&kind=sandbox_ready");
        let mut events = client.events(request.body(Full::default()).unwrap()).await;
        let first = client.create(json!({})).await;
        let told = events.expect("event").await;
        assert_eq!(
            (&told.data["kind"], &told.data["sandbox_id"]),
            (&json!("sandbox_ready"), &json!(first))
        );

        let second = client.create(json!({})).await;
        drop(events);
        let request = client.request(Method::GET, "/v1/events?kind=sandbox_ready");
        let request = request.header("last-event-id", told.id.expect("an id"));
        let mut events = client.events(request.body(Full::default()).unwrap()).await;
        assert_eq!(events.expect("event").await.data["sandbox_id"], json!(second));
    });
}

#[test]
fn the_document_tells_of_every_route() {
    with_server(async |client| {
        let document = client.get("/openapi.json").await.ok();
        assert_eq!(document["openapi"], "3.1.0");
        let mut ids = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                ids.push(operation["operationId"].as_str().unwrap().to_owned());
                assert!(operation["summary"].is_string(), "{method} {path}");
                assert!(operation["responses"]["401"].is_object(), "{method} {path}");
                let named: Vec<_> = operation["parameters"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|parameter| parameter["in"] == "path")
                    .map(|parameter| format!("{{{}}}", parameter["name"].as_str().unwrap()))
                    .collect();
                assert!(named.iter().all(|name| path.contains(name)), "{path}");
                assert_eq!(named.len(), path.matches('{').count(), "{path}");
            }
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "operation ids are unique");
        let page = client.get("/docs").await;
        assert_eq!(page.headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let text = String::from_utf8(page.body.to_vec()).unwrap();
        assert!(text.contains("/v1/sandboxes/{sandbox}/exec") && !text.contains("<script"));
    });
}

#[test]
fn backends_are_probed_and_leaks_looked_for() {
    with_server(async |client| {
        let native = |all: &Value| {
            let mut probes = all["probes"].as_array().unwrap().iter();
            probes.find(|probe| probe["backend"] == "native").unwrap().clone()
        };
        let mut all = client.get("/v1/probe").await.ok();
        // A probe has a limit of time, which a machine under load may miss.
        while native(&all)["detail"].as_str().unwrap().contains("did not start within") {
            all = client.get("/v1/probe?refresh=true").await.ok();
        }
        assert_eq!(native(&all)["works"], true, "{all}");
        assert!(native(&all)["start_ms"].as_f64().unwrap() > 0.0, "{all}");
        let one = client.get("/v1/probe?backend=native").await.ok();
        assert_eq!(one["probes"].as_array().unwrap().len(), 1, "{one}");

        // What a sandbox owns is no leak, and asking to remove leaks does not touch it.
        let id = client.create(json!({})).await;
        for fix in [false, true] {
            let leaks = client.post("/v1/leaks", &json!({"fix": fix})).await.ok();
            assert_eq!(leaks["leaks"].as_array().map_or(0, Vec::len), 0, "{leaks}");
        }
        let run = json!({"command": {"argv": ["true"]}});
        let run = client.post(&format!("/v1/sandboxes/{id}/exec"), &run).await.ok();
        assert_eq!(run["exit_code"].as_i64().unwrap_or_default(), 0, "{run}");

        // What belongs to the whole machine is for its operator only.
        client.post("/v1/tenants", &json!({"tenant": "acme"})).await.ok();
        let key = client.post("/v1/keys", &json!({"name": "a", "tenant": "acme"})).await.ok();
        let tenant = Client { key: key["secret"].as_str().map(str::to_owned), ..client.clone() };
        let refused = tenant.post("/v1/leaks", &json!({})).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    });
}
