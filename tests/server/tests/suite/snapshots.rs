//! Snapshots whose server dies, and who is told of them.

use belljar_api::v1;
use belljar_client::Client;
use belljar_server_tests::{Host, create, exec};
use belljar_testkit::PROMPT;

async fn restore(client: &Client, name: &str) -> Result<v1::Sandbox, belljar_client::Status> {
    let create = v1::CreateSandboxRequest {
        name: Some(name.to_owned()),
        ..v1::CreateSandboxRequest::default()
    };
    let request =
        v1::RestoreSnapshotRequest { snapshot_id: "kept".to_owned(), create: Some(create) };
    client.snapshots.clone().restore_snapshot(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_dies_midway_leaves_no_half_filled_sandbox() {
    let Some(host) = Host::serving("restore") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    assert_eq!(exec(&client, &sandbox, "echo kept > /workspace/file").await.exit_code, 0);
    let request = v1::CreateSnapshotRequest {
        sandbox: sandbox.clone(),
        name: Some("kept".to_owned()),
        ..v1::CreateSnapshotRequest::default()
    };
    let taken = client.snapshots.clone().create_snapshot(request).await.unwrap().into_inner();
    host.terminate();
    assert!(host.ends_within(PROMPT));

    // The first of several parts is in the sandbox, the others are not.
    host.serve(&[], &[("BELLJAR_FAULT", "restore.filling")]);
    assert!(restore(&host.client().await, "half").await.is_err());
    assert!(host.ends_within(PROMPT), "it did not die");

    host.serve(&[], &[]);
    let client = host.client().await;
    let request = v1::ListSandboxesRequest::default();
    let listed = client.sandboxes.clone().list_sandboxes(request).await.unwrap().into_inner();
    let live: Vec<_> = listed.sandboxes.iter().map(|found| found.sandbox_id.as_str()).collect();
    assert_eq!(live, [sandbox.as_str()]);
    // The name is free again, and what is whole works.
    let whole = restore(&client, "half").await.unwrap();
    assert!(!whole.ephemeral, "{whole:?}");
    let read = exec(&client, &whole.sandbox_id, "cat /workspace/file").await;
    assert_eq!(&read.stdout[..], b"kept\n");
    let request = v1::RemoveSnapshotRequest { snapshot_id: "kept".to_owned() };
    client.snapshots.clone().remove_snapshot(request).await.unwrap();

    let request = v1::WatchEventsRequest {
        since: Some(0),
        kinds: vec![
            v1::EventKind::SnapshotCreated.into(),
            v1::EventKind::SnapshotRestored.into(),
            v1::EventKind::SnapshotRemoved.into(),
        ],
        ..v1::WatchEventsRequest::default()
    };
    let mut told = client.sandboxes.clone().watch_events(request).await.unwrap().into_inner();
    for (kind, of) in [
        (v1::EventKind::SnapshotCreated, &sandbox),
        (v1::EventKind::SnapshotRestored, &whole.sandbox_id),
        (v1::EventKind::SnapshotRemoved, &sandbox),
    ] {
        let event = tokio::time::timeout(PROMPT, told.message()).await.unwrap().unwrap().unwrap();
        assert_eq!((event.kind(), &event.sandbox_id), (kind, of), "{event:?}");
        assert_eq!(event.detail["snapshot"], taken.snapshot_id);
        assert_eq!(event.detail["snapshot_name"], "kept");
    }
    drop(told);
    host.finish().await;
}
