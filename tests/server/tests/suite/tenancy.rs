//! What is another's does not exist: every method of the API, asked by strangers and by the owner.

use std::collections::BTreeSet;

use belljar_api::v1;
use belljar_client::{Client, Status, Streaming};
use belljar_codes::Code;
use belljar_server_tests::{Host, code, create_with, refused, shell, start};
use bytes::Bytes;

use crate::keys::{key, tenant_key};

/// Methods that are about no sandbox or process in particular; who may use them is tested in `keys`.
const OTHERS: &[&str] = &[
    "CreateSandbox",
    "ListApprovals",
    "AnswerApproval",
    "ExplainSandbox",
    "ListProfiles",
    "PutPolicy",
    "GetPolicy",
    "ListPolicies",
    "RemovePolicy",
    "ListTemplates",
    "FetchTemplate",
    "GetServer",
    "StopServer",
    "GetCaller",
    "ProbeBackends",
    "FindLeaks",
    "CreateKey",
    "ListKeys",
    "RevokeKey",
    "CreateTenant",
    "GetTenant",
    "ListTenants",
    "SetQuotas",
    "RemoveTenant",
    "CreateWebhook",
    "ListWebhooks",
    "RemoveWebhook",
    "SetSecret",
    "ListSecrets",
    "RemoveSecret",
    "QueryAudit",
];

/// Methods about snapshots, which outlive their sandboxes.
const SNAPSHOTS: &[&str] = &["GetSnapshot", "ListSnapshots", "RestoreSnapshot", "RemoveSnapshot"];

/// Administrators only, whosever the sandbox is: it writes to the host.
const ADMIN: &[&str] = &["ApplyLayer"];

type Answers = Vec<(&'static str, Result<(), Status>)>;

async fn drain<T>(answer: Result<tonic::Response<Streaming<T>>, Status>) -> Result<(), Status> {
    let mut stream = answer?.into_inner();
    while stream.message().await?.is_some() {}
    Ok(())
}

async fn first<T>(answer: Result<tonic::Response<Streaming<T>>, Status>) -> Result<(), Status> {
    answer?.into_inner().message().await.map(|_| ())
}

/// Asks for everything that can be asked about a sandbox and a process, its end last.
#[allow(clippy::too_many_lines, reason = "a table")]
async fn ask_all(client: &Client, sandbox: &str, process: &str) -> Answers {
    let mut sandboxes = client.sandboxes.clone();
    let mut processes = client.processes.clone();
    let mut files = client.files.clone();
    let mut system = client.system.clone();
    let mut answers = Answers::new();
    macro_rules! ask {
        ($method:literal, $client:ident.$call:ident($request:ident { $($field:ident: $value:expr),* $(,)? })) => {
            #[allow(clippy::needless_update, reason = "some have these fields only")]
            let request = v1::$request { $($field: $value,)* ..Default::default() };
            answers.push(($method, $client.$call(request).await.map(|_| ())));
        };
        ($method:literal, $answer:expr) => {
            answers.push(($method, $answer.await.map(|_| ())));
        };
    }
    let command = || Some(shell("true"));
    let (s, p) = (|| sandbox.to_owned(), || process.to_owned());
    let path = || "/tmp/x".to_owned();
    ask!("GetSandbox", sandboxes.get_sandbox(GetSandboxRequest { sandbox: s() }));
    ask!(
        "ExtendSandbox",
        sandboxes
            .extend_sandbox(ExtendSandboxRequest { sandbox: s(), idle_timeout_secs: Some(600.0) })
    );
    ask!("PauseSandbox", sandboxes.pause_sandbox(PauseSandboxRequest { sandbox: s() }));
    ask!("ResumeSandbox", sandboxes.resume_sandbox(ResumeSandboxRequest { sandbox: s() }));
    ask!("DiffLayer", sandboxes.diff_layer(DiffLayerRequest { sandbox: s() }));
    ask!("ApplyLayer", sandboxes.apply_layer(ApplyLayerRequest { sandbox: s() }));
    ask!("DiscardLayer", sandboxes.discard_layer(DiscardLayerRequest { sandbox: s() }));
    let request = v1::WatchEventsRequest {
        since: Some(0),
        sandbox: Some(s()),
        once: true,
        ..Default::default()
    };
    ask!("WatchEvents", drain(sandboxes.watch_events(request).await));

    let session = Some(v1::SessionSpec { sandbox: Some(s()), ..Default::default() });
    let request = v1::RunRequest { session, command: command(), ..Default::default() };
    ask!("Run", drain(processes.run(request).await));
    ask!("Exec", processes.exec(ExecRequest { sandbox: s(), command: command() }));
    let request = v1::ExecStreamRequest { sandbox: s(), command: command(), ..Default::default() };
    ask!("ExecStream", drain(processes.exec_stream(request).await));
    ask!(
        "StartProcess",
        processes.start_process(StartProcessRequest { sandbox: s(), command: command() })
    );
    ask!("GetProcess", processes.get_process(GetProcessRequest { process_id: p() }));
    ask!("ListProcesses", processes.list_processes(ListProcessesRequest { sandbox: Some(s()) }));
    let request = v1::FollowLogRequest { process_id: p(), ..Default::default() };
    ask!("FollowLog", drain(processes.follow_log(request).await));
    ask!(
        "WaitProcess",
        processes.wait_process(WaitProcessRequest { process_id: p(), timeout_secs: Some(0.01) })
    );
    ask!(
        "ResizeTerminal",
        processes.resize_terminal(ResizeTerminalRequest {
            process_id: p(),
            size: Some(v1::Terminal { rows: 10, columns: 20 }),
        })
    );
    let request =
        v1::WriteInputRequest { process_id: p(), data: Bytes::from_static(b"x\n"), close: false };
    ask!("WriteInput", processes.write_input(tokio_stream::iter([request])));
    ask!(
        "SignalProcess",
        processes.signal_process(SignalProcessRequest { process_id: p(), signal: 18 })
    );
    ask!(
        "CancelProcess",
        processes.cancel_process(CancelProcessRequest { process_id: p(), grace_secs: Some(0.1) })
    );

    let request = v1::WriteFileRequest {
        sandbox: s(),
        path: path(),
        data: Bytes::from_static(b"x"),
        ..Default::default()
    };
    ask!("WriteFile", files.write_file(tokio_stream::iter([request])));
    ask!("StatFile", files.stat_file(StatFileRequest { sandbox: s(), path: path() }));
    ask!("ListFiles", files.list_files(ListFilesRequest { sandbox: s(), path: "/tmp".to_owned() }));
    let request = v1::ReadFileRequest { sandbox: s(), path: path(), ..Default::default() };
    ask!("ReadFile", drain(files.read_file(request).await));
    ask!(
        "MakeDirectory",
        files.make_directory(MakeDirectoryRequest { sandbox: s(), path: "/tmp/d".to_owned() })
    );
    ask!(
        "CopyFile",
        files.copy_file(CopyFileRequest { sandbox: s(), from: path(), to: "/tmp/y".to_owned() })
    );
    ask!(
        "MoveFile",
        files.move_file(MoveFileRequest { sandbox: s(), from: path(), to: "/tmp/z".to_owned() })
    );
    ask!(
        "ChangeMode",
        files.change_mode(ChangeModeRequest {
            sandbox: s(),
            path: "/tmp/z".to_owned(),
            permissions: Some(0o600)
        })
    );
    ask!(
        "RemoveFile",
        files.remove_file(RemoveFileRequest { sandbox: s(), path: "/tmp/z".to_owned() })
    );
    let request =
        v1::WatchFilesRequest { sandbox: s(), path: "/tmp".to_owned(), ..Default::default() };
    ask!("WatchFiles", first(files.watch_files(request).await));
    let request = v1::SearchFilesRequest {
        sandbox: s(),
        path: "/tmp".to_owned(),
        name: Some("*".to_owned()),
        ..Default::default()
    };
    ask!("SearchFiles", drain(files.search_files(request).await));
    let request =
        v1::ReadArchiveRequest { sandbox: s(), path: "/tmp".to_owned(), ..Default::default() };
    ask!("ReadArchive", drain(files.read_archive(request).await));
    // Two empty blocks are an archive of nothing.
    let request = v1::WriteArchiveRequest {
        sandbox: s(),
        path: "/tmp".to_owned(),
        data: vec![0; 1024].into(),
        ..Default::default()
    };
    ask!("WriteArchive", files.write_archive(tokio_stream::iter([request])));
    let hello = v1::CallbackHello { sandbox_id: s(), ..Default::default() };
    let hello = v1::ClientCallback { hello: Some(hello), ..Default::default() };
    let mut callbacks = client.callbacks.clone();
    ask!("Serve", first(callbacks.serve(tokio_stream::iter([hello])).await));
    let mut policies = client.policies.clone();
    ask!("LearnPolicy", policies.learn_policy(LearnPolicyRequest { sandbox: s() }));
    let mut ports = client.ports.clone();
    ask!("ExposePort", ports.expose_port(ExposePortRequest { sandbox: s(), port: 8000 }));
    ask!("ListPorts", ports.list_ports(ListPortsRequest { sandbox: s() }));
    ask!("HidePort", ports.hide_port(HidePortRequest { sandbox: s(), port: 8000 }));
    let request = v1::ForwardPortRequest { sandbox: s(), port: 8000, ..Default::default() };
    ask!("ForwardPort", first(ports.forward_port(tokio_stream::iter([request])).await));
    let mut networks = client.networks.clone();
    ask!("GetNetwork", networks.get_network(GetNetworkRequest { sandbox: s() }));
    let deny = vec!["example.com".to_owned()];
    ask!(
        "ChangeNetwork",
        networks.change_network(ChangeNetworkRequest { sandbox: s(), deny: deny })
    );
    let request = v1::ReadNetworkLogRequest { sandbox: s(), ..Default::default() };
    ask!("ReadNetworkLog", drain(networks.read_network_log(request).await));
    let mut snapshots = client.snapshots.clone();
    ask!("CreateSnapshot", snapshots.create_snapshot(CreateSnapshotRequest { sandbox: s() }));
    ask!("IssueToken", system.issue_token(IssueTokenRequest { sandbox: s() }));
    ask!("DestroySandbox", sandboxes.destroy_sandbox(DestroySandboxRequest { sandbox: s() }));
    answers
}

#[track_caller]
fn nothing_is_there(answers: Answers) {
    for (method, answer) in answers {
        let status = answer.expect_err(method);
        let grpc = status.code();
        let found = code(status);
        if ADMIN.contains(&method) {
            assert_eq!(found, Code::PermissionDenied, "{method}");
            continue;
        }
        assert!(
            matches!(found, Code::SandboxNotFound | Code::ProcessNotFound),
            "{method}: {found:?}"
        );
        assert_eq!(grpc, tonic::Code::NotFound, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_names_every_method() {
    let text = [
        include_str!("../../../../api/proto/belljar/v1/sandboxes.proto"),
        include_str!("../../../../api/proto/belljar/v1/processes.proto"),
        include_str!("../../../../api/proto/belljar/v1/files.proto"),
        include_str!("../../../../api/proto/belljar/v1/templates.proto"),
        include_str!("../../../../api/proto/belljar/v1/policies.proto"),
        include_str!("../../../../api/proto/belljar/v1/callbacks.proto"),
        include_str!("../../../../api/proto/belljar/v1/networks.proto"),
        include_str!("../../../../api/proto/belljar/v1/ports.proto"),
        include_str!("../../../../api/proto/belljar/v1/secrets.proto"),
        include_str!("../../../../api/proto/belljar/v1/snapshots.proto"),
        include_str!("../../../../api/proto/belljar/v1/system.proto"),
    ]
    .concat();
    let methods = text.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    let methods: BTreeSet<&str> = methods.filter_map(|rest| rest.split('(').next()).collect();
    // In two parts, so that this line is not taken for one of the table.
    let own = include_str!("tenancy.rs").split(concat!("ask", "!(")).skip(1);
    let asked = own.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    let mut named: BTreeSet<&str> =
        asked.chain([OTHERS, SNAPSHOTS].into_iter().flatten().copied()).collect();
    // Listed below, where what it shows is looked at.
    named.insert("ListSandboxes");
    assert_eq!(methods, named);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_finds_nothing_and_the_owner_everything() {
    let Some(host) = Host::serving("tenancy") else { return };
    let admin = host.client().await;
    let owner = host.client_with(Some(&tenant_key(&admin, "owner").await)).await;
    let stranger = host.client_with(Some(&tenant_key(&admin, "stranger").await)).await;
    let recorded = v1::CreateSandboxRequest {
        policy: Some(v1::PolicySpec { record: true, ..Default::default() }),
        ..Default::default()
    };
    let named = v1::CreateSandboxRequest { name: Some("mine".to_owned()), ..recorded.clone() };
    let sandbox = create_with(&owner, named.clone()).await.sandbox_id;
    let command = v1::Command {
        terminal: Some(v1::Terminal { rows: 24, columns: 80 }),
        stdin: true,
        ..shell("cat")
    };
    let process = start(&owner, &sandbox, command).await.process_id;
    let beside = create_with(&owner, recorded).await.sandbox_id;
    let request = v1::CreateKeyRequest {
        role: Some("sandbox".to_owned()),
        sandbox: Some(beside.clone()),
        tenant: Some("owner".to_owned()),
        ..Default::default()
    };
    let beside_key = host.client_with(Some(&key(&admin, request).await)).await;

    // By id, by name, and what does not exist at all: the same answer.
    nothing_is_there(ask_all(&stranger, &sandbox, &process).await);
    nothing_is_there(ask_all(&stranger, "mine", &process).await);
    nothing_is_there(ask_all(&stranger, "nonesuch", "p0000000000000000000").await);
    // A key for one sandbox opens no other, of the same tenant or not.
    nothing_is_there(ask_all(&beside_key, &sandbox, &process).await);
    nothing_is_there(ask_all(&beside_key, "mine", &process).await);
    // Names are each tenant's own.
    let theirs = create_with(&stranger, named).await.sandbox_id;
    assert_ne!(theirs, sandbox);

    // Lists and events show one's own only.
    let seen = async |client: &Client| {
        let request = v1::ListSandboxesRequest::default();
        let listed = client.sandboxes.clone().list_sandboxes(request).await.unwrap().into_inner();
        let sandboxes: BTreeSet<String> =
            listed.sandboxes.into_iter().map(|sandbox| sandbox.sandbox_id).collect();
        let request = v1::ListProcessesRequest::default();
        let listed = client.processes.clone().list_processes(request).await.unwrap().into_inner();
        for process in &listed.processes {
            assert!(sandboxes.contains(&process.sandbox_id), "{process:?}");
        }
        let request = v1::WatchEventsRequest { since: Some(0), once: true, ..Default::default() };
        let mut events = client.sandboxes.clone().watch_events(request).await.unwrap().into_inner();
        while let Some(event) = events.message().await.unwrap() {
            assert!(sandboxes.contains(&event.sandbox_id), "{event:?}");
        }
        sandboxes
    };
    assert_eq!(seen(&stranger).await, BTreeSet::from([theirs.clone()]));
    assert_eq!(seen(&owner).await, BTreeSet::from([sandbox.clone(), beside.clone()]));
    assert_eq!(seen(&beside_key).await, BTreeSet::from([beside.clone()]));
    let request =
        v1::ListSandboxesRequest { tenant: Some("owner".to_owned()), ..Default::default() };
    assert_eq!(
        refused(stranger.sandboxes.clone().list_sandboxes(request).await),
        Code::TenantNotFound
    );

    // The twin: all of this is the owner's to do.
    for (method, answer) in ask_all(&owner, &sandbox, &process).await {
        let found = answer.map_err(code);
        let expected = match method {
            "ApplyLayer" => Err(Code::PermissionDenied),
            // It has no workspace.
            "DiffLayer" | "DiscardLayer" => Err(Code::LayerNotFound),
            // Nothing listens there.
            "ForwardPort" => Err(Code::PortUnreachable),
            // It was made without a network.
            "ChangeNetwork" => Err(Code::InvalidArgument),
            _ => Ok(()),
        };
        assert_eq!(found, expected, "{method}");
    }
    // And the key for one sandbox opens that one.
    let process = start(
        &beside_key,
        &beside,
        v1::Command {
            terminal: Some(v1::Terminal { rows: 24, columns: 80 }),
            stdin: true,
            ..shell("cat")
        },
    )
    .await
    .process_id;
    for (method, answer) in ask_all(&beside_key, &beside, &process).await {
        let found = answer.map_err(code);
        match method {
            "ApplyLayer" => assert_eq!(found, Err(Code::PermissionDenied)),
            "DiffLayer" | "DiscardLayer" => assert_eq!(found, Err(Code::LayerNotFound)),
            "ForwardPort" => assert_eq!(found, Err(Code::PortUnreachable)),
            "ChangeNetwork" => assert_eq!(found, Err(Code::InvalidArgument)),
            _ => assert_eq!(found, Ok(()), "{method}"),
        }
    }
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_their_tenants_own() {
    let Some(host) = Host::serving("tenancy") else { return };
    let admin = host.client().await;
    let owner = host.client_with(Some(&tenant_key(&admin, "owner").await)).await;
    let stranger = host.client_with(Some(&tenant_key(&admin, "stranger").await)).await;
    let sandbox = create_with(&owner, v1::CreateSandboxRequest::default()).await.sandbox_id;
    let mine = Some("mine".to_owned());
    let request = v1::CreateSnapshotRequest { sandbox, name: mine, ..Default::default() };
    let taken = owner.snapshots.clone().create_snapshot(request).await.unwrap().into_inner();

    // By id, by name, and what does not exist at all: the same answer.
    for snapshot_id in [taken.snapshot_id.as_str(), "mine", "nonesuch"].map(str::to_owned) {
        for (method, answer) in ask_snapshot(&stranger, snapshot_id).await {
            let status = answer.expect_err(method);
            assert_eq!(status.code(), tonic::Code::NotFound, "{method}");
            assert_eq!(code(status), Code::SnapshotNotFound, "{method}");
        }
    }
    let listed = async |client: &Client, tenant: Option<&str>| {
        let tenant = tenant.map(str::to_owned);
        let request = v1::ListSnapshotsRequest { tenant, ..Default::default() };
        let answer = client.snapshots.clone().list_snapshots(request).await;
        answer.map(|list| list.into_inner().snapshots.len()).map_err(code)
    };
    assert_eq!(listed(&stranger, None).await, Ok(0));
    assert_eq!(listed(&stranger, Some("owner")).await, Err(Code::TenantNotFound));

    // The twin: all of this is the owner's to do.
    assert_eq!(listed(&owner, None).await, Ok(1));
    for (method, answer) in ask_snapshot(&owner, taken.snapshot_id).await {
        assert_eq!(answer.map_err(code), Ok(()), "{method}");
    }
    assert_eq!(listed(&owner, None).await, Ok(0));
    host.finish().await;
}

/// Asks for everything that can be asked about a snapshot, its end last.
async fn ask_snapshot(client: &Client, snapshot_id: String) -> Answers {
    let mut snapshots = client.snapshots.clone();
    let get = v1::GetSnapshotRequest { snapshot_id: snapshot_id.clone() };
    let restore =
        v1::RestoreSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
    let remove = v1::RemoveSnapshotRequest { snapshot_id };
    vec![
        ("GetSnapshot", snapshots.get_snapshot(get).await.map(|_| ())),
        ("RestoreSnapshot", snapshots.restore_snapshot(restore).await.map(|_| ())),
        ("RemoveSnapshot", snapshots.remove_snapshot(remove).await.map(|_| ())),
    ]
}
