use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_api::v1;
use belljar_engine::{NewKey, Quotas, Role, TenantId};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{Server, bearing};

const SECRET: &str = "between you and me";

/// Takes deliveries. Answers with the statuses it is given, then with 204.
struct Receiver {
    url: String,
    deliveries: mpsc::UnboundedReceiver<(http::HeaderMap, Bytes)>,
}

impl Receiver {
    async fn new(statuses: &[u16]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let (sender, deliveries) = mpsc::unbounded_channel();
        let statuses = Arc::new(Mutex::new(VecDeque::from(statuses.to_vec())));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, statuses) = (sender.clone(), Arc::clone(&statuses));
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (sender, statuses) = (sender.clone(), Arc::clone(&statuses));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/hook"));
                        let _ = sender.send((head.headers, body));
                        let status = statuses.lock().unwrap().pop_front().unwrap_or(204);
                        http::Response::builder()
                            .status(status)
                            .header("location", "/elsewhere")
                            .body(Empty::<Bytes>::new())
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Self { url, deliveries }
    }

    async fn next(&mut self) -> (http::HeaderMap, serde_json::Value) {
        let next = tokio::time::timeout(Duration::from_secs(30), self.deliveries.recv());
        let (headers, body) = next.await.expect("a delivery comes").unwrap();
        let signed = format!(
            "{}.{}",
            headers["belljar-timestamp"].to_str().unwrap(),
            std::str::from_utf8(&body).unwrap()
        );
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
        let tag: String = ring::hmac::sign(&key, signed.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(headers["belljar-signature"], format!("v1={tag}"));
        (headers, serde_json::from_slice(&body).unwrap())
    }
}

fn hook(url: &str) -> v1::CreateWebhookRequest {
    v1::CreateWebhookRequest {
        url: url.to_owned(),
        secret: SECRET.to_owned(),
        kinds: vec![v1::EventKind::SandboxReady.into(), v1::EventKind::SandboxDestroyed.into()],
    }
}

#[tokio::test]
async fn events_are_told_in_order_and_signed() {
    let server = Server::start().await;
    let mut receiver = Receiver::new(&[]).await;
    server.system().create_webhook(hook(&receiver.url)).await.unwrap();
    let id = server.create().await;
    server
        .sandboxes()
        .destroy_sandbox(v1::DestroySandboxRequest { sandbox: id.clone() })
        .await
        .unwrap();
    let (headers, ready) = receiver.next().await;
    assert_eq!(headers["belljar-event"], "sandbox_ready");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!((&ready["sandbox_id"], &ready["kind"]), (&json!(id), &json!("sandbox_ready")));
    let (headers, destroyed) = receiver.next().await;
    assert_eq!(headers["belljar-event"], "sandbox_destroyed");
    assert_ne!(destroyed["seq"], ready["seq"]);
    let listed = server.system().list_webhooks(v1::ListWebhooksRequest {}).await.unwrap();
    let webhook = listed.into_inner().webhooks.remove(0);
    let text = format!("{webhook:?}");
    assert!(!text.contains(SECRET), "{text}");
    let remove = v1::RemoveWebhookRequest { webhook_id: webhook.webhook_id };
    server.system().remove_webhook(remove).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn what_fails_is_tried_again_before_anything_newer() {
    let server = Server::start().await;
    // A redirect is not followed: it is no success either.
    let mut receiver = Receiver::new(&[500, 302]).await;
    server.system().create_webhook(hook(&receiver.url)).await.unwrap();
    let (one, two) = (server.create().await, server.create().await);
    let mut told = Vec::new();
    let mut numbers = Vec::new();
    for _ in 0..4 {
        let (headers, body) = receiver.next().await;
        told.push(body["sandbox_id"].as_str().unwrap().to_owned());
        numbers.push(headers["belljar-delivery"].to_str().unwrap().to_owned());
    }
    assert_eq!(told, [one.clone(), one.clone(), one, two]);
    assert_eq!((numbers[0] == numbers[1], numbers[1] == numbers[2]), (true, true), "{numbers:?}");
    assert_ne!(numbers[2], numbers[3]);
    server.stop().await;
}

#[tokio::test]
async fn telling_goes_on_after_a_restart() {
    let server = Server::start().await;
    let mut receiver = Receiver::new(&[204, 503]).await;
    server.system().create_webhook(hook(&receiver.url)).await.unwrap();
    let one = server.create().await;
    assert_eq!(receiver.next().await.1["sandbox_id"], one);
    let two = server.create().await;
    assert_eq!(receiver.next().await.1["sandbox_id"], two, "refused this time");
    let setup = server.stop().await;
    // What happens while no server runs is told by the next one.
    let three = setup.create().await.as_str().to_owned();
    let server = Server::start_on(setup).await;
    assert_eq!(receiver.next().await.1["sandbox_id"], two);
    assert_eq!(receiver.next().await.1["sandbox_id"], three);
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_cannot_have_this_host_called() {
    let server = Server::start().await;
    let mut receiver = Receiver::new(&[]).await;
    let tenant = TenantId::parse("a").unwrap();
    let engine = &server.setup.engine;
    engine.tenants().create(tenant.clone(), Quotas::default()).await.unwrap();
    let name = "test".to_owned();
    let new = NewKey { name, tenant, role: Role::Tenant, scopes: Vec::new(), expires_at: None };
    let key = engine.keys().create(new).await.unwrap().1.expose().to_owned();
    server.system().create_webhook(bearing(&key, hook(&receiver.url))).await.unwrap();
    let create = bearing(&key, v1::CreateSandboxRequest::default());
    server.sandboxes().create_sandbox(create).await.unwrap();
    let refused = async {
        loop {
            let list = bearing(&key, v1::ListWebhooksRequest {});
            let listed = server.system().list_webhooks(list).await.unwrap().into_inner();
            if let Some(error) = listed.webhooks[0].last_error.clone() {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(30), refused).await.unwrap();
    assert!(refused.contains("not public"), "{refused}");
    assert!(receiver.deliveries.try_recv().is_err());
    server.stop().await;
}
