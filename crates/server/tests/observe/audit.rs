use belljar_api::v1;
use belljar_api::v1::files_client::FilesClient;
use belljar_api::v1::policies_client::PoliciesClient;
use belljar_api::v1::processes_client::ProcessesClient;
use belljar_api::v1::sandboxes_client::SandboxesClient;
use belljar_api::v1::secrets_client::SecretsClient;
use belljar_api::v1::system_client::SystemClient;
use belljar_engine::AuditLog;

use crate::fake;
use crate::support::{Server, bearing, code};

async fn query(server: &Server, query: v1::QueryAuditRequest) -> Vec<v1::AuditRecord> {
    let mut system = SystemClient::new(server.channel());
    let mut answers = system.query_audit(query).await.unwrap().into_inner();
    let mut records = Vec::new();
    while let Some(record) = answers.message().await.unwrap() {
        records.push(record);
    }
    records
}

#[tokio::test]
async fn who_did_what_with_which_outcome() {
    let server = Server::start().await;
    let mut sandboxes = SandboxesClient::new(server.channel());
    let mut create = tonic::Request::new(v1::CreateSandboxRequest {
        name: Some("web".to_owned()),
        ..v1::CreateSandboxRequest::default()
    });
    create.metadata_mut().insert("x-request-id", "r-17".parse().unwrap());
    let id = sandboxes.create_sandbox(create).await.unwrap().into_inner().sandbox_id;
    let destroy = v1::DestroySandboxRequest { sandbox: "web".to_owned() };
    sandboxes.destroy_sandbox(destroy).await.unwrap();
    let destroy = v1::DestroySandboxRequest { sandbox: "nothing".to_owned() };
    sandboxes.destroy_sandbox(destroy).await.unwrap_err();
    // Looking around is not on record.
    sandboxes.list_sandboxes(v1::ListSandboxesRequest::default()).await.unwrap();

    let records = query(&server, v1::QueryAuditRequest::default()).await;
    let uid = rustix::process::getuid().as_raw();
    let shown: Vec<_> = records.iter().map(|r| (r.action.as_str(), r.outcome.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("sandbox.create", "ok"),
            ("sandbox.destroy", "ok"),
            ("sandbox.destroy", "sandbox-not-found"),
        ]
    );
    assert_eq!(records[0].actor, format!("uid:{uid}"));
    assert_eq!((records[0].seq, records[0].request_id.as_str()), (1, "r-17"));
    assert_eq!(records[0].sandbox_id.as_deref(), Some(id.as_str()));
    assert_eq!(records[1].sandbox_id.as_deref(), Some(id.as_str()), "whatever it was called");
    assert_eq!(records[2].detail["target"], "nothing");

    let only = v1::QueryAuditRequest {
        outcome: Some("sandbox-not-found".to_owned()),
        ..v1::QueryAuditRequest::default()
    };
    assert_eq!(query(&server, only).await.len(), 1);

    let setup = server.stop().await;
    let report = AuditLog::of(&setup.state()).verify(None).await.unwrap();
    assert_eq!(report.records, 4, "stopping the server is on record too");
}

#[tokio::test]
async fn a_run_that_is_refused_is_on_record_as_of_its_sandbox() {
    let server = Server::start().await;
    let id = server.create().await;
    let argv = vec!["true".to_owned()];
    let request = |session| v1::RunRequest {
        command: Some(v1::Command { argv: argv.clone(), ..Default::default() }),
        session: Some(session),
        read: vec!["x".to_owned(); 5000],
        ..v1::RunRequest::default()
    };
    let there = v1::SessionSpec { sandbox: Some(id.clone()), ..Default::default() };
    let named = v1::SessionSpec { name: Some(id.clone()), ..Default::default() };
    for session in [there, named] {
        let refused = ProcessesClient::new(server.channel()).run(request(session)).await;
        assert_eq!(code(&refused.unwrap_err()), "invalid-argument");
    }
    let query = query(&server, v1::QueryAuditRequest::default()).await;
    let runs = query.iter().filter(|record| record.action == "process.run");
    let sandboxes: Vec<_> = runs.map(|record| record.sandbox_id.as_deref()).collect();
    assert_eq!(sandboxes, [Some(id.as_str()), None], "a session of that name is another thing");
    server.stop().await;
}

#[tokio::test]
async fn following_shows_what_comes() {
    let server = Server::start().await;
    let mut system = SystemClient::new(server.channel());
    let follow = v1::QueryAuditRequest { follow: true, ..v1::QueryAuditRequest::default() };
    let mut answers = system.query_audit(follow).await.unwrap().into_inner();
    let mut sandboxes = SandboxesClient::new(server.channel());
    let destroy = v1::DestroySandboxRequest { sandbox: "nothing".to_owned() };
    sandboxes.destroy_sandbox(destroy).await.unwrap_err();
    let record = answers.message().await.unwrap().unwrap();
    assert_eq!(record.action, "sandbox.destroy");
    server.stop().await;
    // A follower is told that the server ends.
    let end = loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(code(&end), "server-stopping");
}

fn create(name: &str) -> v1::CreateSandboxRequest {
    v1::CreateSandboxRequest { name: Some(name.to_owned()), ..Default::default() }
}

#[tokio::test]
async fn a_name_that_looks_like_an_id_is_taken_for_nothing_else() {
    let server = Server::start().await;
    let id = server.create().await;
    let process = server.setup.engine.start(&id, fake::exec(&["hang"])).await.unwrap().process.id;
    let mut system = server.system();
    for name in [id.as_str(), process.as_str()] {
        let key = v1::CreateKeyRequest { name: name.to_owned(), ..Default::default() };
        system.create_key(key).await.unwrap();
        let key = v1::RevokeKeyRequest { key_id: name.to_owned() };
        system.revoke_key(key).await.unwrap_err();
    }
    server.sandboxes().create_sandbox(create(&id)).await.ok();
    // What is about a sandbox or process that nobody finds is about what was asked for.
    let missing = v1::DestroySandboxRequest { sandbox: "n000abcdefgh".to_owned() };
    server.sandboxes().destroy_sandbox(missing).await.unwrap_err();

    let records = query(&server, v1::QueryAuditRequest::default()).await;
    let (about, others): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| record.action.starts_with("sandbox."));
    let keys: Vec<_> = others.iter().map(|record| record.action.as_str()).collect();
    assert_eq!(keys, ["key.create", "key.revoke", "key.create", "key.revoke"]);
    for (record, name) in others.iter().zip([id.as_str(), &id, process.as_str(), process.as_str()])
    {
        assert_eq!((&record.sandbox_id, &record.process_id), (&None, &None), "{record:?}");
        assert_eq!(record.detail["target"], name);
    }
    assert_eq!(about[0].sandbox_id.as_deref(), Some(id.as_str()), "that is how it came to be");
    assert_ne!(about[1].sandbox_id.as_deref(), Some(id.as_str()), "{:?}", about[1]);
    assert_eq!(about[2].sandbox_id.as_deref(), Some("n000abcdefgh"));
    server.stop().await;
}

#[tokio::test]
async fn what_is_done_for_a_tenant_is_on_record_as_its() {
    let server = Server::start().await;
    let (mut system, mut sandboxes) = (server.system(), server.sandboxes());
    let red = || Some("red".to_owned());
    let tenant = v1::CreateTenantRequest { tenant: "red".to_owned(), ..Default::default() };
    system.create_tenant(tenant).await.unwrap();
    let key = v1::CreateKeyRequest { name: "k".to_owned(), tenant: red(), ..Default::default() };
    let key = system.create_key(key).await.unwrap().into_inner();
    let secret =
        v1::SetSecretRequest { name: "s".to_owned(), value: "hunter2".to_owned(), tenant: red() };
    SecretsClient::new(server.channel()).set_secret(secret).await.unwrap();
    let document = v1::PolicyDocument { text: "name: p".to_owned(), ..Default::default() };
    let policy =
        v1::PutPolicyRequest { name: "p".to_owned(), documents: vec![document], tenant: red() };
    PoliciesClient::new(server.channel()).put_policy(policy).await.unwrap();
    let request = v1::CreateSandboxRequest { tenant: red(), ..create("web") };
    let sandbox = sandboxes.create_sandbox(request).await.unwrap().into_inner().sandbox_id;
    let command = v1::Command { argv: vec!["true".to_owned()], ..Default::default() };
    let exec =
        v1::ExecRequest { sandbox: sandbox.clone(), command: Some(command), ..Default::default() };
    ProcessesClient::new(server.channel()).exec(exec).await.unwrap();
    sandboxes.destroy_sandbox(v1::DestroySandboxRequest { sandbox }).await.unwrap();
    let key_id = key.key.unwrap().key_id;
    system.revoke_key(v1::RevokeKeyRequest { key_id }).await.unwrap();
    // Whoever is no administrator acts in their own tenant, whatever they say.
    let theirs = v1::CreateKeyRequest {
        name: "k".to_owned(),
        tenant: Some("default".to_owned()),
        ..Default::default()
    };
    let other = v1::CreateKeyRequest { name: "o".to_owned(), tenant: red(), ..Default::default() };
    let other = system.create_key(other).await.unwrap().into_inner().secret;
    system.create_key(bearing(&other, theirs)).await.unwrap_err();
    let hook = v1::CreateWebhookRequest {
        url: "http://127.0.0.1:9/".to_owned(),
        secret: "0123456789abcdef".to_owned(),
        ..Default::default()
    };
    let hook = system.create_webhook(bearing(&other, hook)).await.unwrap().into_inner();
    system.remove_webhook(v1::RemoveWebhookRequest { webhook_id: hook.webhook_id }).await.unwrap();

    let records = query(&server, v1::QueryAuditRequest::default()).await;
    let shown: Vec<_> = records.iter().map(|r| (r.action.as_str(), r.tenant.as_str())).collect();
    let actions = [
        "tenant.create",
        "key.create",
        "secret.set",
        "policy.put",
        "sandbox.create",
        "process.exec",
        "sandbox.destroy",
        "key.revoke",
        "key.create",
        "key.create",
        "webhook.create",
        "webhook.remove",
    ];
    assert_eq!(shown, actions.map(|action| (action, "red")));
    server.stop().await;
}

#[tokio::test]
async fn creating_under_a_policy_is_on_record_by_who_asked() {
    let server = Server::start().await;
    let document = v1::PolicyDocument { text: "name: p".to_owned(), ..Default::default() };
    let request = v1::CreateSandboxRequest {
        policy: Some(v1::PolicySpec { documents: vec![document], ..Default::default() }),
        ensure: vec!["true".to_owned()],
        ..create("web")
    };
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("x-request-id", "r-17".parse().unwrap());
    server.sandboxes().create_sandbox(request).await.unwrap();
    let records = query(&server, v1::QueryAuditRequest::default()).await;
    let actions: Vec<_> = records.iter().map(|record| record.action.as_str()).collect();
    assert_eq!(actions, ["policy.create", "policy.exec", "sandbox.create"]);
    let uid = rustix::process::getuid().as_raw();
    for record in records {
        assert_eq!(record.actor, format!("uid:{uid}"), "{record:?}");
        assert_eq!(record.request_id, "r-17", "{record:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn finding_lines_of_files_is_reading_them() {
    let server = Server::start().await;
    let mut files = FilesClient::new(server.channel());
    for content in [None, Some("password".to_owned())] {
        let search = v1::SearchFilesRequest {
            sandbox: "nothing".to_owned(),
            path: "/workspace".to_owned(),
            content,
            ..Default::default()
        };
        files.search_files(search).await.unwrap_err();
    }
    let records = query(&server, v1::QueryAuditRequest::default()).await;
    assert_eq!(records.len(), 1, "looking at names is looking around: {records:?}");
    assert_eq!(
        (records[0].action.as_str(), records[0].detail["path"].as_str()),
        ("file.read", "/workspace")
    );
    server.stop().await;
}
