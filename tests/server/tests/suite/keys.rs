//! Who may do what: scopes, roles, keys that are revoked or expired, and doors that stay closed.

use std::net::TcpListener;

use belljar_api::v1;
use belljar_client::{Address, Client};
use belljar_codes::Code;
use belljar_server_tests::{Host, create, refused, settled, shell};
use tonic::Status;

/// The secret of a new key.
pub(crate) async fn key(admin: &Client, request: v1::CreateKeyRequest) -> String {
    let name = "test".to_owned();
    let request = v1::CreateKeyRequest { name, ..request };
    admin.system.clone().create_key(request).await.unwrap().into_inner().secret
}

/// The secret of a key for a tenant, which is made where there is none.
pub(crate) async fn tenant_key(admin: &Client, tenant: &str) -> String {
    let request = v1::CreateTenantRequest { tenant: tenant.to_owned(), quotas: None };
    let made = admin.system.clone().create_tenant(request).await;
    assert!(made.is_ok() || refused(made) == Code::TenantExists);
    let request =
        v1::CreateKeyRequest { tenant: Some(tenant.to_owned()), ..v1::CreateKeyRequest::default() };
    key(admin, request).await
}

async fn list(client: &Client) -> Result<(), Code> {
    let request = v1::ListSandboxesRequest::default();
    let answer = client.sandboxes.clone().list_sandboxes(request).await;
    answer.map(|_| ()).map_err(belljar_server_tests::code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_does_what_its_scopes_say() {
    let Some(host) = Host::serving("scopes") else { return };
    let admin = host.client().await;
    tenant_key(&admin, "t").await;
    let with = async |scopes: &[&str]| {
        let request = v1::CreateKeyRequest {
            tenant: Some("t".to_owned()),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            ..v1::CreateKeyRequest::default()
        };
        host.client_with(Some(&key(&admin, request).await)).await
    };
    let (all, read, write) = (with(&[]).await, with(&["read"]).await, with(&["write"]).await);
    let (runs, files) = (with(&["exec"]).await, with(&["files"]).await);
    let sandbox = create(&all).await;
    let outcome = async |client: &Client| {
        let request = v1::CreateSandboxRequest::default();
        let create = client.sandboxes.clone().create_sandbox(request).await;
        let request = v1::ExecRequest {
            sandbox: sandbox.clone(),
            command: Some(shell("true")),
            ..v1::ExecRequest::default()
        };
        let exec = client.processes.clone().exec(request).await;
        let request = v1::StatFileRequest {
            sandbox: sandbox.clone(),
            path: "/tmp".to_owned(),
            follow: false,
        };
        let stat = client.files.clone().stat_file(request).await;
        [
            list(client).await,
            create.map(|_| ()).map_err(belljar_server_tests::code),
            exec.map(|_| ()).map_err(belljar_server_tests::code),
            stat.map(|_| ()).map_err(belljar_server_tests::code),
        ]
    };
    let no = Err(Code::PermissionDenied);
    assert_eq!(outcome(&all).await, [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!(outcome(&read).await, [Ok(()), no, no, no]);
    assert_eq!(outcome(&write).await, [no, Ok(()), no, no]);
    assert_eq!(outcome(&runs).await, [no, no, Ok(()), no]);
    assert_eq!(outcome(&files).await, [no, no, no, Ok(())]);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_makes_itself_greater() {
    let Some(host) = Host::serving("greater") else { return };
    let admin = host.client().await;
    tenant_key(&admin, "other").await;
    let tenant = host.client_with(Some(&tenant_key(&admin, "t").await)).await;
    let sandbox = create(&tenant).await;
    let request = v1::CreateKeyRequest {
        tenant: Some("t".to_owned()),
        role: Some("sandbox".to_owned()),
        sandbox: Some(sandbox.clone()),
        ..v1::CreateKeyRequest::default()
    };
    let inside = host.client_with(Some(&key(&admin, request.clone()).await)).await;
    let make = async |client: &Client, request: v1::CreateKeyRequest| {
        let request = v1::CreateKeyRequest { name: "more".to_owned(), ..request };
        client.system.clone().create_key(request).await
    };
    let of_role = |role: &str| v1::CreateKeyRequest {
        role: Some(role.to_owned()),
        ..v1::CreateKeyRequest::default()
    };
    let of_other = v1::CreateKeyRequest {
        tenant: Some("other".to_owned()),
        ..v1::CreateKeyRequest::default()
    };
    for client in [&tenant, &inside] {
        assert_eq!(refused(make(client, of_role("admin")).await), Code::PermissionDenied);
        let other = refused(make(client, of_other.clone()).await);
        assert!(matches!(other, Code::PermissionDenied | Code::TenantNotFound), "{other:?}");
    }
    assert_eq!(refused(make(&inside, of_role("tenant")).await), Code::PermissionDenied);
    // The twin: a tenant makes keys for itself.
    let made = make(&tenant, v1::CreateKeyRequest::default()).await.unwrap().into_inner();
    assert_eq!(made.key.unwrap().tenant, "t");
    // A sandbox's key makes no sandboxes.
    let more = inside.sandboxes.clone().create_sandbox(v1::CreateSandboxRequest::default()).await;
    assert_eq!(refused(more), Code::PermissionDenied);
    // Nor does it have anything fetched for some; a tenant may.
    let fetch = async |client: &Client, template: &str, backend: Option<&str>| {
        let (template, backend) = (template.to_owned(), backend.map(str::to_owned));
        let request = v1::FetchTemplateRequest { template, backend };
        let mut steps = client.templates.clone().fetch_template(request).await?.into_inner();
        while steps.message().await?.is_some() {}
        Ok::<(), Status>(())
    };
    assert_eq!(refused(fetch(&inside, "host", None).await), Code::PermissionDenied);
    fetch(&tenant, "host", None).await.unwrap();
    // Images, whose names say where the host connects to, are the administrator's; this backend has none.
    let image =
        async |client: &Client| refused(fetch(client, "image:a.test/b", Some("native")).await);
    assert_eq!(image(&tenant).await, Code::PermissionDenied);
    assert_ne!(image(&admin).await, Code::PermissionDenied);
    // What is the administrator's, or another's.
    let mut system = tenant.system.clone();
    let denied = Code::PermissionDenied;
    assert_eq!(refused(system.stop_server(v1::StopServerRequest {}).await), denied);
    assert_eq!(refused(system.list_tenants(v1::ListTenantsRequest {}).await), denied);
    assert_eq!(refused(system.find_leaks(v1::FindLeaksRequest { fix: true }).await), denied);
    let quotas = v1::SetQuotasRequest { tenant: "t".to_owned(), quotas: None };
    assert_eq!(refused(system.set_quotas(quotas).await), denied);
    let other = v1::GetTenantRequest { tenant: "other".to_owned() };
    assert_eq!(refused(system.get_tenant(other).await), Code::TenantNotFound);
    let keys = system.list_keys(v1::ListKeysRequest::default()).await.unwrap().into_inner();
    assert!(keys.keys.iter().all(|key| key.tenant == "t" && key.role != "admin"), "{keys:?}");
    let others = admin.system.clone().list_keys(v1::ListKeysRequest::default()).await.unwrap();
    let others = others.into_inner().keys.into_iter().find(|key| key.tenant == "other").unwrap();
    let revoke = v1::RevokeKeyRequest { key_id: others.key_id };
    assert_eq!(refused(system.revoke_key(revoke).await), Code::KeyNotFound);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_ends_when_it_is_revoked_or_has_expired() {
    let Some(host) = Host::serving("revoked") else { return };
    let admin = host.client().await;
    let secret = tenant_key(&admin, "t").await;
    let holder = host.client_with(Some(&secret)).await;
    assert_eq!(list(&holder).await, Ok(()));
    let keys = admin.system.clone().list_keys(v1::ListKeysRequest::default()).await.unwrap();
    let key_id = keys.into_inner().keys[0].key_id.clone();
    admin.system.clone().revoke_key(v1::RevokeKeyRequest { key_id }).await.unwrap();
    assert_eq!(list(&holder).await, Err(Code::Unauthenticated));
    // Also over the socket, where no key would be needed.
    let over_socket = Client::connect(&Address::Unix(host.socket()), Some(&secret)).await.unwrap();
    assert_eq!(list(&over_socket).await, Err(Code::Unauthenticated));

    let request = v1::CreateKeyRequest {
        tenant: Some("t".to_owned()),
        expires_in_secs: Some(1.0),
        ..v1::CreateKeyRequest::default()
    };
    let brief = host.client_with(Some(&key(&admin, request).await)).await;
    assert_eq!(list(&brief).await, Ok(()));
    let expired = settled(async || match list(&brief).await {
        Err(Code::Unauthenticated) => Ok(()),
        other => Err(other),
    });
    expired.await.unwrap();
    // Altered, or nothing like a key.
    for wrong in [format!("{secret}x"), "bj_nonsense".to_owned(), "a.b.c".to_owned()] {
        let client = host.client_with(Some(&wrong)).await;
        let found = list(&client).await.unwrap_err();
        assert!(matches!(found, Code::Unauthenticated | Code::TokenInvalid), "{wrong}: {found:?}");
    }
    // With keys about, loopback alone is nobody.
    assert_eq!(list(&host.client_with(None).await).await, Err(Code::Unauthenticated));
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_only_this_machine_is_served() {
    let Some(host) = Host::empty("keyless") else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let everywhere = format!("0.0.0.0:{port}");
    let words = host.try_serve(&["--listen", &everywhere], &[], &[]).unwrap_err();
    assert!(
        words.contains("conflicting-options") && words.contains("belljar keys create"),
        "{words}"
    );
    // The twin: with a key it listens there, and asks for it.
    let file = host.installation.work().join("key");
    std::fs::write(&file, "a-key-of-my-own-choice-0123456789abcdef\n").unwrap();
    let flags = ["--api-key-file", file.to_str().unwrap()];
    host.try_serve(&["--listen", &everywhere], &flags, &[]).unwrap();
    let address = Address::Url(format!("http://127.0.0.1:{port}"));
    let keyless = Client::connect(&address, None).await.unwrap();
    assert_eq!(list(&keyless).await, Err(Code::Unauthenticated));
    let key = Some("a-key-of-my-own-choice-0123456789abcdef");
    assert_eq!(list(&Client::connect(&address, key).await.unwrap()).await, Ok(()));
    host.finish().await;
}

/// Asks for a sandbox over loopback without a key: once staying for the answer, or often, hanging up at once.
const ASK: &str = r#"
import socket, sys
address, how = sys.argv[1].rsplit(":", 1), sys.argv[2]
body = b'{"labels": {"by": "%s"}}' % how.encode()
head = b"POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
request = head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
for _ in range(1 if how == "stay" else 50):
    connection = socket.create_connection((address[0], int(address[1])))
    connection.sendall(request)
    if how == "stay":
        print(connection.recv(65536).split(b" ")[1].decode())
    connection.close()
"#;

/// The kernel shows a socket that was closed already as root's. Somebody else who asks and hangs up is not root.
#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_at_once_is_not_the_operator() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let Some(host) = Host::serving("hang-up") else { return };
    let ask = |uid: u32, how: &str| {
        let address = host.url().replace("http://", "");
        let mut command = std::process::Command::new("python3");
        let asked = command.args(["-c", ASK, &address, how]).uid(uid).current_dir("/").output();
        let asked = asked.unwrap();
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    };
    let admin = host.client().await;
    ask(NOBODY, "hang-up");
    assert_eq!(ask(NOBODY, "stay"), "401");
    // The twin: the operator, who stays.
    assert_eq!(ask(0, "stay"), "200");
    // Until every request has been seen to: only this client is connected.
    let alone = settled(async || {
        let server = admin.system.clone().get_server(v1::GetServerRequest {}).await.unwrap();
        let counts = server.into_inner().counts.unwrap();
        if counts.connections == 1 { Ok(()) } else { Err(counts.connections) }
    });
    alone.await.unwrap();
    let request = v1::ListSandboxesRequest::default();
    let made = admin.sandboxes.clone().list_sandboxes(request).await.unwrap().into_inner();
    let by: Vec<_> = made.sandboxes.iter().map(|sandbox| &sandbox.labels["by"]).collect();
    assert_eq!(by, ["stay"]);
    host.finish().await;
}
