use belljar_api::v1;
use belljar_engine::{NewKey, Quotas, Role, TenantId};

use crate::support::{Server, bearing, code};

async fn key(server: &Server, tenant: &str, rate: Option<u64>) -> String {
    let tenant = TenantId::parse(tenant).unwrap();
    let quotas = Quotas { requests_per_second: rate, ..Quotas::default() };
    server.setup.engine.tenants().create(tenant.clone(), quotas).await.unwrap();
    let name = "test".to_owned();
    let new = NewKey { name, tenant, role: Role::Tenant, scopes: Vec::new(), expires_at: None };
    let (_, secret) = server.setup.engine.keys().create(new).await.unwrap();
    secret.expose().to_owned()
}

#[tokio::test]
async fn a_tenant_that_asks_too_often_is_told_when_to_come_back() {
    let server = Server::start().await;
    let slow = key(&server, "slow", Some(1)).await;
    let fast = key(&server, "fast", None).await;
    let mut sandboxes = server.sandboxes();
    let list = v1::ListSandboxesRequest::default;
    let mut limited = None;
    for _ in 0..50 {
        sandboxes.list_sandboxes(bearing(&fast, list())).await.unwrap();
        if let Err(status) = sandboxes.list_sandboxes(bearing(&slow, list())).await {
            limited = Some(status);
            break;
        }
    }
    let limited = limited.expect("fifty requests take less than fifty seconds");
    assert_eq!(limited.code(), tonic::Code::ResourceExhausted);
    assert_eq!(code(&limited), "rate-limited");
    let bearer = format!("Bearer {slow}");
    let answers = async {
        loop {
            let (status, headers, _) = server.get("/metrics", &[("authorization", &bearer)]).await;
            if status == 429 {
                return headers;
            }
        }
    };
    let headers = tokio::time::timeout(std::time::Duration::from_secs(20), answers).await.unwrap();
    assert_eq!(headers["retry-after"], "1");
    // The operator is not limited.
    for _ in 0..50 {
        sandboxes.list_sandboxes(list()).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn an_address_that_sends_wrong_keys_is_throttled_and_on_record() {
    let server = Server::start().await;
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(server.get("/metrics", &[("authorization", "Bearer wrong")]).await.0);
        if statuses.last() == Some(&429) {
            break;
        }
    }
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses.last(), Some(&429));
    // Who has a right key, or needs none, is not kept out by others of the same address.
    assert_eq!(server.get("/metrics", &[]).await.0, 200);
    let bearer = format!("Bearer {}", key(&server, "right", None).await);
    assert_eq!(server.get("/v1/caller", &[("authorization", &bearer)]).await.0, 200);
    let query = v1::QueryAuditRequest {
        action: Some("identify".to_owned()),
        ..v1::QueryAuditRequest::default()
    };
    let mut records = server.system().query_audit(query).await.unwrap().into_inner();
    let record = records.message().await.unwrap().unwrap();
    assert_eq!(
        (record.actor.as_str(), record.outcome.as_str()),
        ("address:127.0.0.1", "unauthenticated")
    );
    server.stop().await;
}
