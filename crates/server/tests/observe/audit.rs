use belljar_api::v1;
use belljar_api::v1::sandboxes_client::SandboxesClient;
use belljar_api::v1::system_client::SystemClient;
use belljar_engine::AuditLog;

use crate::support::{Server, code};

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
