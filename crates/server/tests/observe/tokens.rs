use std::time::{Duration, SystemTime};

use belljar_api::v1;
use belljar_api::v1::callbacks_client::CallbacksClient;
use belljar_engine::{NewKey, Role, TenantId};
use belljar_server::{Options, OwnKeys};

use crate::support::{Server, bearing, code};

async fn issue(server: &Server, sandbox: &str, audience: &str) -> String {
    issue_for(server, sandbox, audience, 60.0).await
}

async fn issue_for(server: &Server, sandbox: &str, audience: &str, seconds: f64) -> String {
    let request = v1::IssueTokenRequest {
        sandbox: sandbox.to_owned(),
        audience: Some(audience.to_owned()),
        expires_in_secs: Some(seconds),
    };
    server.system().issue_token(request).await.unwrap().into_inner().token
}

fn get(sandbox: &str) -> v1::GetSandboxRequest {
    v1::GetSandboxRequest { sandbox: sandbox.to_owned() }
}

#[tokio::test]
async fn a_token_opens_one_sandbox() {
    let server = Server::start().await;
    let (mine, other) = (server.create().await, server.create().await);
    let token = issue(&server, &mine, "api").await;
    let mut sandboxes = server.sandboxes();
    let found = sandboxes.get_sandbox(bearing(&token, get(&mine))).await.unwrap().into_inner();
    assert_eq!(found.sandbox_id, mine);
    // The same over TCP, where nothing but the token speaks for the caller.
    let bearer = format!("Bearer {token}");
    let (status, _, _) = server.get("/metrics", &[("authorization", &bearer)]).await;
    assert_eq!(status, 403, "known, and not an administrator");

    let refused = sandboxes.get_sandbox(bearing(&token, get(&other))).await.unwrap_err();
    assert_eq!(code(&refused), "sandbox-not-found");
    let create = bearing(&token, v1::CreateSandboxRequest::default());
    assert_eq!(code(&sandboxes.create_sandbox(create).await.unwrap_err()), "permission-denied");
    let again = v1::IssueTokenRequest { sandbox: mine.clone(), ..v1::IssueTokenRequest::default() };
    let again = server.system().issue_token(bearing(&token, again)).await.unwrap_err();
    assert_eq!(code(&again), "permission-denied", "no token lives longer by making another");
    server.stop().await;
}

#[tokio::test]
async fn tokens_for_something_else_are_refused() {
    let server = Server::start().await;
    let sandbox = server.create().await;
    let mut sandboxes = server.sandboxes();
    for audience in ["egress", "preview"] {
        let token = issue(&server, &sandbox, audience).await;
        let refused = sandboxes.get_sandbox(bearing(&token, get(&sandbox))).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated);
        assert_eq!(code(&refused), "token-invalid");
    }
    let (status, headers, body) =
        server.get("/metrics", &[("authorization", "Bearer a.b.c")]).await;
    assert_eq!(status, 401);
    assert!(headers.contains_key("www-authenticate"));
    assert!(body.contains("token-invalid"), "{body}");
    for request in [
        v1::IssueTokenRequest { expires_in_secs: Some(90_000.0), ..Default::default() },
        v1::IssueTokenRequest { audience: Some("root".to_owned()), ..Default::default() },
    ] {
        let request = v1::IssueTokenRequest { sandbox: sandbox.clone(), ..request };
        let refused = server.system().issue_token(request).await.unwrap_err();
        assert_eq!(code(&refused), "invalid-argument");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_a_token_began_hears_nothing_new_once_it_has_expired() {
    let server = Server::start().await;
    let sandbox = server.create().await;
    let talk = async |seconds: f64, hellos: usize| {
        let token = issue_for(&server, &sandbox, "api", seconds).await;
        let hello = v1::CallbackHello { sandbox_id: sandbox.clone(), ..Default::default() };
        let hello = v1::ClientCallback { hello: Some(hello), ..Default::default() };
        let (say, said) = tokio::sync::mpsc::channel(1);
        let said = tokio_stream::wrappers::ReceiverStream::new(said);
        let mut client = CallbacksClient::new(server.channel());
        let mut heard = client.serve(bearing(&token, said)).await.unwrap().into_inner();
        for _ in 0..hellos {
            say.send(hello.clone()).await.unwrap();
            heard.message().await?;
        }
        Ok::<_, tonic::Status>(())
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), talk(5.0, usize::MAX)).await.unwrap();
    assert_eq!(code(&ended.unwrap_err()), "token-invalid");
    // The twin: one that has not.
    talk(60.0, 100).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn tokens_hold_over_a_restart() {
    let server = Server::start().await;
    let sandbox = server.create().await;
    let token = issue(&server, &sandbox, "api").await;
    let server = Server::start_on(server.stop().await).await;
    let found = server.sandboxes().get_sandbox(bearing(&token, get(&sandbox))).await;
    assert_eq!(found.unwrap().into_inner().sandbox_id, sandbox);
    server.stop().await;
}

#[tokio::test]
async fn a_token_is_nothing_once_its_sandbox_has_ended() {
    let server = Server::start().await;
    let sandbox = server.create().await;
    let token = issue(&server, &sandbox, "api").await;
    let look = async || server.sandboxes().get_sandbox(bearing(&token, get(&sandbox))).await;
    look().await.unwrap();
    let destroy = v1::DestroySandboxRequest { sandbox: sandbox.clone() };
    server.sandboxes().destroy_sandbox(destroy).await.unwrap();
    assert_eq!(code(&look().await.unwrap_err()), "token-invalid");
    server.stop().await;
}

#[tokio::test]
async fn what_a_key_made_ends_with_it() {
    let server = Server::start().await;
    let sandbox = server.create().await;
    let hour = Duration::from_secs(3600);
    let new = NewKey {
        name: "maker".to_owned(),
        tenant: TenantId::default(),
        role: Role::Tenant,
        scopes: Vec::new(),
        expires_at: Some(SystemTime::now() + hour),
    };
    let (key, secret) = server.setup.engine.keys().create(new).await.unwrap();
    let day = v1::IssueTokenRequest {
        sandbox: sandbox.clone(),
        audience: None,
        expires_in_secs: Some(86_400.0),
    };
    let made = server.system().issue_token(bearing(secret.expose(), day)).await.unwrap();
    let made = made.into_inner();
    let until = SystemTime::try_from(made.expires_at.unwrap()).unwrap();
    assert!(until <= key.expires_at.unwrap(), "not longer than the key itself");
    let look = async || server.sandboxes().get_sandbox(bearing(&made.token, get(&sandbox))).await;
    look().await.unwrap();
    server.setup.engine.keys().revoke(&key.id).await.unwrap();
    assert_eq!(code(&look().await.unwrap_err()), "token-invalid");
    server.stop().await;
}

#[tokio::test]
async fn what_a_key_of_the_operators_own_made_ends_when_it_is_taken_out() {
    const ONE: &str = "0123456789abcdef";
    const OTHER: &str = "fedcba9876543210";
    let with = async |setup, text: &str| {
        let mut own_keys = OwnKeys::default();
        own_keys.add(text, "the test").unwrap();
        Server::start_with(setup, Options { own_keys, ..Options::default() }).await
    };
    let server = with(crate::fake::Setup::new().await, &format!("{ONE}\n{OTHER}")).await;
    let sandbox = server.create().await;
    let make = async |key: &str| {
        let request =
            v1::IssueTokenRequest { sandbox: sandbox.clone(), ..v1::IssueTokenRequest::default() };
        server.system().issue_token(bearing(key, request)).await.unwrap().into_inner().token
    };
    let (by_one, by_other) = (make(ONE).await, make(OTHER).await);
    let look = async |server: &Server, token: &str| {
        let found = server.sandboxes().get_sandbox(bearing(token, get(&sandbox))).await;
        found.map(|found| found.into_inner().sandbox_id).map_err(|status| code(&status))
    };
    assert_eq!(look(&server, &by_one).await, Ok(sandbox.clone()));
    // It is the key that counts, not where in the file it is.
    let server = with(server.stop().await, &format!("{OTHER}\n{ONE}")).await;
    assert_eq!(look(&server, &by_one).await, Ok(sandbox.clone()));
    let server = with(server.stop().await, OTHER).await;
    assert_eq!(look(&server, &by_one).await, Err("token-invalid".to_owned()));
    assert_eq!(look(&server, &by_other).await, Ok(sandbox.clone()));
    server.stop().await;
}
