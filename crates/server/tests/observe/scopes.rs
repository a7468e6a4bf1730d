//! What a key or token may do beside what its request is called.

use std::time::{Duration, SystemTime};

use belljar_api::v1;
use belljar_api::v1::policies_client::PoliciesClient;
use belljar_api::v1::processes_client::ProcessesClient;
use belljar_engine::{KeyScope, NewKey, Role, Secret, TenantId};

use crate::support::{Server, bearing, code};

async fn key(server: &Server, scopes: &[KeyScope]) -> String {
    let new = NewKey {
        name: "test".to_owned(),
        tenant: TenantId::default(),
        role: Role::Tenant,
        scopes: scopes.to_vec(),
        expires_at: None,
    };
    server.setup.engine.keys().create(new).await.unwrap().1.expose().to_owned()
}

fn file() -> v1::FileContent {
    v1::FileContent { path: "/tmp/x".to_owned(), content: "x".into() }
}

#[tokio::test]
async fn making_a_sandbox_runs_nothing_in_one_that_exists() {
    let server = Server::start().await;
    let name = || Some("there".to_owned());
    let create = v1::CreateSandboxRequest { name: name(), ..Default::default() };
    server.sandboxes().create_sandbox(create).await.unwrap();
    let get = v1::CreateSandboxRequest { name: name(), get_or_create: true, ..Default::default() };
    let runs = v1::CreateSandboxRequest { ensure: vec!["true".to_owned()], ..get.clone() };
    let puts = v1::CreateSandboxRequest { files: vec![file()], ..get.clone() };
    let write = key(&server, &[KeyScope::Write]).await;
    let outcome = async |secret: &str, request: &v1::CreateSandboxRequest| {
        let answer = server.sandboxes().create_sandbox(bearing(secret, request.clone())).await;
        answer.map(drop).map_err(|status| code(&status))
    };
    let denied = Err("permission-denied".to_owned());
    assert_eq!(outcome(&write, &get).await, Ok(()));
    assert_eq!(outcome(&write, &runs).await, denied);
    assert_eq!(outcome(&write, &puts).await, denied);
    let both = key(&server, &[KeyScope::Write, KeyScope::Exec]).await;
    assert_eq!(outcome(&both, &runs).await, Ok(()));
    let files = key(&server, &[KeyScope::Write, KeyScope::Files]).await;
    assert_eq!(outcome(&files, &puts).await, Ok(()));
    // To be told what it would be takes no more than to look around.
    let read = key(&server, &[KeyScope::Read]).await;
    for create in [runs, puts] {
        assert_eq!(outcome(&read, &create).await, denied);
        let create = v1::CreateSandboxRequest { name: None, get_or_create: false, ..create };
        let explain = v1::ExplainSandboxRequest { create: Some(create), ..Default::default() };
        server.sandboxes().explain_sandbox(bearing(&read, explain)).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn running_a_command_makes_no_sandbox_and_moves_no_files() {
    let server = Server::start().await;
    let sandbox = Some(server.create().await);
    let command = v1::Command { argv: vec!["true".to_owned()], ..Default::default() };
    let there = v1::RunRequest {
        command: Some(command),
        session: Some(v1::SessionSpec { sandbox, ..Default::default() }),
        collect: true,
        ..Default::default()
    };
    let anywhere = v1::RunRequest { session: None, ..there.clone() };
    let brings = v1::RunRequest { write: vec![file()], ..there.clone() };
    let takes = v1::RunRequest { read: vec!["/tmp/x".to_owned()], ..there.clone() };
    let outcome = async |secret: &str, request: &v1::RunRequest| {
        let mut processes = ProcessesClient::new(server.channel());
        match processes.run(bearing(secret, request.clone())).await {
            Ok(answers) => {
                let mut answers = answers.into_inner();
                while answers.message().await.unwrap().is_some() {}
                Ok(())
            }
            Err(status) => Err(code(&status)),
        }
    };
    let exec = key(&server, &[KeyScope::Exec]).await;
    let denied = Err("permission-denied".to_owned());
    assert_eq!(outcome(&exec, &there).await, Ok(()));
    assert_eq!(outcome(&exec, &anywhere).await, denied);
    assert_eq!(outcome(&exec, &brings).await, denied);
    assert_eq!(outcome(&exec, &takes).await, denied);
    let more = key(&server, &[KeyScope::Exec, KeyScope::Write, KeyScope::Files]).await;
    assert_eq!(outcome(&more, &anywhere).await, Ok(()));
    assert_eq!(outcome(&more, &brings).await, Ok(()));
    assert_eq!(outcome(&more, &takes).await, Ok(()));
    server.stop().await;
}

#[tokio::test]
async fn who_has_one_sandbox_sees_nothing_else_of_its_tenant() {
    let server = Server::start().await;
    let sandbox = server.create().await;
    let issue = v1::IssueTokenRequest { sandbox: sandbox.clone(), ..Default::default() };
    let token = server.system().issue_token(issue).await.unwrap().into_inner().token;
    let tenant = key(&server, &[]).await;
    let policies = async |secret: &str| {
        let mut policies = PoliciesClient::new(server.channel());
        let list =
            policies.list_policies(bearing(secret, v1::ListPoliciesRequest::default())).await;
        list.map(drop).map_err(|status| code(&status))
    };
    let usage = async |secret: &str| {
        let request = v1::GetTenantRequest { tenant: "default".to_owned() };
        let answer = server.system().get_tenant(bearing(secret, request)).await;
        answer.map(drop).map_err(|status| code(&status))
    };
    // What a policy of the tenant's would give tells that it is there, and what it says.
    let explain = async |secret: &str, of: v1::ExplainSandboxRequest| {
        let explained = server.sandboxes().explain_sandbox(bearing(secret, of)).await;
        explained.map(drop).map_err(|status| code(&status))
    };
    let new = v1::ExplainSandboxRequest {
        create: Some(v1::CreateSandboxRequest::default()),
        ..v1::ExplainSandboxRequest::default()
    };
    let own = v1::ExplainSandboxRequest { sandbox: Some(sandbox), ..Default::default() };
    let denied = Err("permission-denied".to_owned());
    assert_eq!((policies(&tenant).await, usage(&tenant).await), (Ok(()), Ok(())));
    assert_eq!((policies(&token).await, usage(&token).await), (denied.clone(), denied.clone()));
    assert_eq!((explain(&tenant, new.clone()).await, explain(&token, new).await), (Ok(()), denied));
    assert_eq!(explain(&token, own).await, Ok(()));
    let at = |server: v1::Server| (server.addresses, server.counts.unwrap().connections);
    let get = v1::GetServerRequest {};
    let seen = at(server.system().get_server(bearing(&tenant, get)).await.unwrap().into_inner());
    assert!(seen.0.iter().all(|address| !address.contains("server.sock")), "{seen:?}");
    assert_eq!(seen.1, 0);
    let all = at(server.system().get_server(get).await.unwrap().into_inner());
    assert!(all.0.iter().any(|address| address.contains("server.sock")) && all.1 > 0, "{all:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_key_makes_none_that_outlives_it() {
    let server = Server::start().await;
    let now = SystemTime::now();
    let maker = async |expires_at| {
        let new = NewKey {
            name: "maker".to_owned(),
            tenant: TenantId::default(),
            role: Role::Tenant,
            scopes: Vec::new(),
            expires_at,
        };
        server.setup.engine.keys().create(new).await.unwrap()
    };
    let make = async |secret: &Secret, expires_in_secs| {
        let request = v1::CreateKeyRequest { expires_in_secs, ..v1::CreateKeyRequest::default() };
        let made = server.system().create_key(bearing(secret.expose(), request)).await;
        let made = made.map_err(|status| code(&status))?.into_inner().key.unwrap();
        Ok::<_, String>(made.expires_at.map(|at| SystemTime::try_from(at).unwrap()))
    };
    let (own, hour) = maker(Some(now + Duration::from_secs(3600))).await;
    let denied = Err("permission-denied".to_owned());
    assert_eq!(make(&hour, Some(7200.0)).await, denied);
    assert_eq!(make(&hour, None).await, Ok(own.expires_at));
    let sooner = make(&hour, Some(60.0)).await.unwrap();
    assert!(sooner.is_some() && sooner < own.expires_at);
    let (_, lasting) = maker(None).await;
    assert_eq!(make(&lasting, None).await, Ok(None));
    assert!(make(&lasting, Some(7200.0)).await.unwrap() > own.expires_at);
    server.stop().await;
}
