//! Policies over gRPC and REST: kept, used, asked, and on record.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_server_tests::{Host, create_with, exec, get, refused, shell, start, wait};
use serde_json::{Value, json};

use crate::keys::tenant_key;

const TEXT: &str = "
name: builds
defaults: {max_memory_mb: 128, timeout_seconds: 20}
rules:
  - {name: no-publishing, condition: {field: command, operator: matches, value: publish}, action: deny, message: people publish}
  - {name: tickets, condition: {field: context.ticket, operator: lt, value: 10}, action: deny}
  - {name: no-hooks, condition: {field: path, operator: matches, value: hooks}, action: deny}
";

fn under(policy: v1::PolicySpec) -> v1::CreateSandboxRequest {
    v1::CreateSandboxRequest { policy: Some(policy), ..Default::default() }
}

fn document(text: &str) -> v1::PolicySpec {
    v1::PolicySpec { document: Some(text.to_owned()), ..Default::default() }
}

fn by_name(name: &str) -> v1::PolicySpec {
    v1::PolicySpec { name: Some(name.to_owned()), ..Default::default() }
}

async fn try_create(client: &Client, request: v1::CreateSandboxRequest) -> Code {
    refused(client.sandboxes.clone().create_sandbox(request).await)
}

async fn try_exec(client: &Client, sandbox: &str, command: v1::Command) -> Code {
    let request = v1::ExecRequest {
        sandbox: sandbox.to_owned(),
        command: Some(command),
        ..Default::default()
    };
    refused(client.processes.clone().exec(request).await)
}

async fn put(client: &Client, text: &str) -> Result<v1::Policy, tonic::Status> {
    let request = v1::PutPolicyRequest {
        name: "builds".to_owned(),
        documents: vec![v1::PolicyDocument { text: text.to_owned(), ..Default::default() }],
        ..Default::default()
    };
    client.policies.clone().put_policy(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_bounds_a_sandbox_and_is_asked() {
    let Some(host) = Host::serving("policies") else { return };
    let client = host.client().await;
    let sandbox = create_with(&client, under(document(TEXT))).await;
    let policy = sandbox.policy.clone().unwrap();
    assert_eq!(policy.name, "builds");
    assert_eq!(sandbox.limits.unwrap().memory_bytes, Some(128 << 20));
    let id = sandbox.sandbox_id.as_str();

    assert_eq!(exec(&client, id, "echo fine").await.stdout, "fine\n");
    assert_eq!(try_exec(&client, id, shell("npm publish")).await, Code::PolicyDenied);
    let told = |context: &str| v1::Command { context: Some(context.to_owned()), ..shell("true") };
    assert_eq!(try_exec(&client, id, told(r#"{"ticket": 7}"#)).await, Code::PolicyDenied);
    assert_eq!(try_exec(&client, id, told(r#"{"ticket": "x"}"#)).await, Code::PolicyDenied);
    assert_eq!(try_exec(&client, id, told("7")).await, Code::InvalidArgument);
    let long = v1::Command { timeout_secs: Some(60.0), ..shell("true") };
    assert_eq!(try_exec(&client, id, long).await, Code::PolicyDenied);
    let write = |path: &str| v1::WriteFileRequest {
        sandbox: id.to_owned(),
        path: path.to_owned(),
        ..Default::default()
    };
    let written = client.files.clone().write_file(tokio_stream::iter([write("/tmp/hooks")])).await;
    assert_eq!(refused(written), Code::PolicyDenied);
    client.files.clone().write_file(tokio_stream::iter([write("/tmp/fine")])).await.unwrap();

    let more = v1::CreateSandboxRequest {
        limits: Some(v1::Limits { memory_bytes: Some(256 << 20), ..Default::default() }),
        ..under(document(TEXT))
    };
    assert_eq!(try_create(&client, more).await, Code::PolicyDenied);
    let network = v1::CreateSandboxRequest {
        network: Some(v1::Network { mode: Some("full".to_owned()), ..Default::default() }),
        ..under(document(TEXT))
    };
    assert_eq!(try_create(&client, network).await, Code::PolicyDenied);
    assert_eq!(try_create(&client, under(document("nmae: x"))).await, Code::InvalidPolicy);
    assert_eq!(try_create(&client, under(v1::PolicySpec::default())).await, Code::InvalidArgument);

    // One record for each decision, by verdict, rule and digest.
    let query = v1::QueryAuditRequest {
        verdict: Some("deny".to_owned()),
        policy: Some(policy.digest[..12].to_owned()),
        rule: Some("no-publishing".to_owned()),
        ..Default::default()
    };
    let mut records = client.system.clone().query_audit(query).await.unwrap().into_inner();
    let record = records.message().await.unwrap().unwrap();
    assert_eq!((record.action.as_str(), record.outcome.as_str()), ("policy.exec", "policy-denied"));
    assert!(record.detail["context"].contains("npm publish"), "{record:?}");
    assert_eq!(records.message().await.unwrap(), None);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_policies_are_versioned_and_each_tenants_own() {
    let Some(host) = Host::serving("kept_policies") else { return };
    let admin = host.client().await;
    let owner = host.client_with(Some(&tenant_key(&admin, "owner").await)).await;
    let stranger = host.client_with(Some(&tenant_key(&admin, "stranger").await)).await;
    assert_eq!(put(&owner, TEXT).await.unwrap().version, 1);
    assert_eq!(put(&owner, "name: open").await.unwrap().version, 2);

    let first = create_with(&owner, under(by_name("builds@1"))).await;
    let newest = create_with(&owner, under(by_name("builds"))).await;
    assert_eq!(first.policy.unwrap().version, Some(1));
    assert_eq!(newest.policy.unwrap().version, Some(2));
    let publish = shell("echo publish");
    assert_eq!(try_exec(&owner, &first.sandbox_id, publish.clone()).await, Code::PolicyDenied);
    assert_eq!(exec(&owner, &newest.sandbox_id, "echo publish").await.exit_code, 0);

    assert_eq!(try_create(&stranger, under(by_name("builds"))).await, Code::PolicyNotFound);
    let request = v1::GetPolicyRequest { name: "builds".to_owned(), tenant: None };
    assert_eq!(refused(stranger.policies.clone().get_policy(request).await), Code::PolicyNotFound);

    // Directories of the host are the operator's to give: in a document of one's own never, by name yes.
    let mounts = "{name: m, sandbox_mounts: {input_dir: /usr/share}}";
    assert_eq!(refused(put(&owner, mounts).await), Code::PermissionDenied);
    assert_eq!(try_create(&owner, under(document(mounts))).await, Code::PermissionDenied);
    let request = v1::PutPolicyRequest {
        name: "shared".to_owned(),
        documents: vec![v1::PolicyDocument { text: mounts.to_owned(), ..Default::default() }],
        tenant: Some("owner".to_owned()),
    };
    admin.policies.clone().put_policy(request).await.unwrap();
    let shared = create_with(&owner, under(by_name("shared"))).await;
    assert_eq!(exec(&owner, &shared.sandbox_id, "test -d /input/doc").await.exit_code, 0);

    let request = v1::RemovePolicyRequest { name: "builds".to_owned(), tenant: None };
    owner.policies.clone().remove_policy(request).await.unwrap();
    assert_eq!(try_create(&owner, under(by_name("builds"))).await, Code::PolicyNotFound);
    // Who runs under it goes on, also after the server died.
    host.kill();
    host.serve(&[], &[]);
    let owner = host.client_with(Some(&tenant_key(&host.client().await, "owner").await)).await;
    assert_eq!(try_exec(&owner, &first.sandbox_id, publish).await, Code::PolicyDenied);
    host.finish().await;
}

/// One request over REST.
fn rest(host: &Host, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let port = host.port();
    let mut stream = TcpStream::connect(&port).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_over_rest() {
    let Some(host) = Host::serving("policies_rest") else { return };
    let put = json!({"documents": [{"origin": "builds.yaml", "text": TEXT}]});
    let (status, kept) = rest(&host, "PUT", "/v1/policies/builds", Some(put));
    assert_eq!((status, &kept["version"]), (200, &json!(1)), "{kept}");
    let (status, shown) = rest(&host, "GET", "/v1/policies/builds@1", None);
    assert_eq!((status, &shown["digest"]), (200, &kept["digest"]));
    assert!(shown["effective"].as_str().unwrap().contains("no-publishing"), "{shown}");
    let (_, listed) = rest(&host, "GET", "/v1/policies", None);
    assert_eq!(listed["policies"][0]["name"], "builds");

    let create = json!({"policy": {"name": "builds"}});
    let (status, sandbox) = rest(&host, "POST", "/v1/sandboxes", Some(create));
    assert_eq!((status, &sandbox["policy"]["digest"]), (200, &kept["digest"]), "{sandbox}");
    let id = sandbox["sandbox_id"].as_str().unwrap();
    let exec = |line: &str| {
        let body = json!({"command": {"shell": line}});
        rest(&host, "POST", &format!("/v1/sandboxes/{id}/exec"), Some(body))
    };
    let (status, problem) = exec("npm publish");
    assert_eq!((status, &problem["code"]), (403, &json!("policy-denied")), "{problem}");
    assert!(problem.to_string().contains("no-publishing"), "{problem}");
    assert!(problem.to_string().contains("people publish"), "{problem}");
    assert_eq!(exec("echo fine").0, 200);
    let (status, problem) =
        rest(&host, "PUT", &format!("/v1/sandboxes/{id}/files/content?path=/tmp/hooks"), None);
    assert!(status >= 400 || problem.is_null(), "{problem}");

    let (status, learned) = rest(&host, "GET", &format!("/v1/sandboxes/{id}/policy/learned"), None);
    assert_eq!(status, 200, "{learned}");
    assert!(learned["document"].as_str().unwrap().contains("echo fine"), "{learned}");
    assert!(!learned["document"].as_str().unwrap().contains("publish"), "{learned}");
    let (_, audit) = rest(&host, "GET", "/v1/audit?verdict=deny&rule=no-publishing", None);
    assert_eq!(audit["records"].as_array().unwrap().len(), 1, "{audit}");
    assert_eq!(rest(&host, "DELETE", "/v1/policies/builds", None).0, 200);
    assert_eq!(rest(&host, "GET", "/v1/policies/builds", None).0, 404);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_out_in_code_is_in_the_answer() {
    let Some(host) = Host::serving("findings") else { return };
    let client = host.client().await;
    // With a policy that looks at them, and without any.
    let looking = "
name: looking
rules:
  - {name: no-natives, condition: {field: finding_names, operator: contains, value: ctypes.CDLL}, action: deny}
";
    let bare = create_with(&client, v1::CreateSandboxRequest::default()).await.sandbox_id;
    let looked_at = create_with(&client, under(document(looking))).await.sandbox_id;
    let code = |text: &str| v1::Command {
        code: Some(text.to_owned()),
        language: Some("python".to_owned()),
        ..Default::default()
    };
    let (plain, shells) = ("print(1)", "import os as o\nprint(o.popen('true').read())");
    let found =
        vec![v1::Finding { line: 2, column: 7, rule: "shell".into(), name: "os.popen".into() }];
    let mut processes = client.processes.clone();
    for sandbox in [&bare, &looked_at] {
        let request = |text: &str, key: Option<&str>| v1::ExecRequest {
            sandbox: sandbox.clone(),
            command: Some(code(text)),
            idempotency_key: key.map(|key| format!("{key}-{sandbox}")),
            ..Default::default()
        };
        let done = processes.exec(request(plain, None)).await.unwrap().into_inner();
        assert_eq!((done.exit_code, done.findings), (0, vec![]));
        let done = processes.exec(request(shells, None)).await.unwrap().into_inner();
        assert_eq!((done.exit_code, &done.findings), (0, &found));
        // They are on record; lists leave them out.
        let kept = get(&client, &done.process_id).await.unwrap();
        assert_eq!(kept.findings, found);
        for _ in 0..2 {
            let done = processes.exec(request(shells, Some("once"))).await.unwrap().into_inner();
            assert_eq!(done.findings, found);
        }
        let started = start(&client, sandbox, code(shells)).await;
        assert_eq!(started.findings, found);
        wait(&client, &started.process_id).await;

        let path = format!("/v1/sandboxes/{sandbox}/exec");
        let body = json!({"command": {"code": shells, "language": "python"}});
        let (status, done) = rest(&host, "POST", &path, Some(body));
        let expected = json!([{"line": 2, "column": 7, "rule": "shell", "name": "os.popen"}]);
        assert_eq!((status, &done["findings"]), (200, &expected), "{done}");
        let process = format!("/v1/processes/{}", done["process_id"].as_str().unwrap());
        assert_eq!(rest(&host, "GET", &process, None).1["findings"], expected);
        let (_, listed) = rest(&host, "GET", &format!("/v1/processes?sandbox={sandbox}"), None);
        assert_eq!(listed["processes"][0]["findings"], json!([]), "{listed}");
        // Code of a length that takes a while to read.
        let long = format!("{shells}\n{}", "x = 1\n".repeat(10_000));
        let done = processes.exec(request(&long, None)).await.unwrap().into_inner();
        assert_eq!((done.exit_code, done.findings), (0, found.clone()));
    }
    // Rules see the names.
    let native = code("import ctypes; ctypes.CDLL(None)");
    assert_eq!(try_exec(&client, &looked_at, native.clone()).await, Code::PolicyDenied);
    let request =
        v1::ExecRequest { sandbox: bare, command: Some(native), ..v1::ExecRequest::default() };
    let done = processes.exec(request).await.unwrap().into_inner();
    assert!(done.findings.iter().all(|found| found.rule == "native-code"), "{done:?}");
    assert!(!done.findings.is_empty());
    host.finish().await;
}
