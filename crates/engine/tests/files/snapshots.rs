//! Files that are kept, and come back in another sandbox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use belljar_codes::Code;
use belljar_engine::{
    BackendChoice, CreateRequest, NewSnapshot, Quotas, Scope, Snapshot, SnapshotQuery, Snapshots,
    TenantId,
};
use belljar_policy::{NetworkMode, NetworkPolicy, SandboxName};

use crate::{Setup, tree};

fn plain() -> CreateRequest {
    CreateRequest {
        backend: BackendChoice::Named("local".to_owned()),
        waive_isolation: true,
        network: NetworkPolicy { mode: NetworkMode::Full, ..NetworkPolicy::default() },
        ..CreateRequest::default()
    }
}

fn of(setup: &Setup, name: &str) -> NewSnapshot {
    let paths = vec![setup.path("kept")];
    NewSnapshot { name: Some(SandboxName::parse(name).unwrap()), paths, ..NewSnapshot::default() }
}

/// A directory with one of everything.
fn fill(setup: &Setup) {
    setup.write("kept/text", "hello");
    setup.write("kept/bin/run", "#!/bin/sh\n");
    setup.write("kept/closed/f", "x");
    setup.write("kept/Case", "upper");
    fs::create_dir(setup.path("kept/empty")).unwrap();
    fs::set_permissions(setup.path("kept/bin/run"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(setup.path("kept/closed"), PermissionsExt::from_mode(0o500)).unwrap();
    for (name, target) in [
        ("bin/python", "/usr/bin/python3"),
        ("up", "../../outside"),
        ("case", "text"),
        ("d", "bin"),
    ] {
        symlink(target, setup.path(&format!("kept/{name}"))).unwrap();
    }
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, setup.path("kept/pipe"), fifo, mode, 0).unwrap();
}

fn stored(setup: &Setup) -> Vec<String> {
    tree(&setup.directory.path().join("state/snapshots/default"))
}

async fn list(snapshots: &Snapshots) -> Vec<Snapshot> {
    snapshots.list(&SnapshotQuery::default()).await.unwrap().items
}

fn blob(setup: &Setup) -> PathBuf {
    let blobs = setup.directory.path().join("state/snapshots/default/blobs");
    fs::read_dir(blobs).unwrap().next().unwrap().unwrap().path()
}

#[tokio::test]
async fn files_modes_and_links_come_back() {
    let setup = Setup::new().await;
    fill(&setup);
    let mut before = setup.tree("kept");
    let snapshots = setup.engine.snapshots();
    let kept = snapshots.create(setup.id.as_str(), of(&setup, "one")).await.unwrap();
    assert_eq!((kept.skipped, kept.paths.as_slice()), (1, &[setup.path("kept")][..]));
    assert!(kept.bytes > 0 && kept.digest.starts_with("sha256:"), "{kept:?}");
    assert_eq!(kept.recorded.network.mode, NetworkMode::Full);
    fs::set_permissions(setup.path("kept/closed"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::remove_dir_all(setup.path("kept")).unwrap();

    let sandbox = snapshots.restore("one", plain()).await.unwrap();
    before.retain(|entry| entry != "pipe");
    assert_eq!(setup.tree("kept"), before);
    let mode = |name: &str| setup.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("kept/bin/run"), mode("kept/closed")), (0o755, 0o500));
    assert_eq!(fs::read_to_string(setup.path("kept/text")).unwrap(), "hello");
    assert!(!setup.path("outside").exists());
    setup.engine.destroy(sandbox.id.as_str()).await.unwrap();
    setup.end().await;
}

#[tokio::test]
async fn what_two_snapshots_share_stays_until_the_last_goes() {
    let setup = Setup::new().await;
    setup.write("kept/a", "a");
    let snapshots = setup.engine.snapshots();
    let create = async |name| snapshots.create(setup.id.as_str(), of(&setup, name)).await;
    let one = create("one").await.unwrap();
    let two = create("two").await.unwrap();
    assert_eq!(one.digest, two.digest);
    assert_eq!(create("two").await.unwrap_err().code(), Code::SnapshotExists);
    assert_eq!(stored(&setup).len(), 4, "{:?}", stored(&setup));

    let query = SnapshotQuery { limit: Some(1), ..SnapshotQuery::default() };
    let first = snapshots.list(&query).await.unwrap();
    let rest = snapshots.list(&SnapshotQuery { after: first.next, ..query }).await.unwrap();
    let ids = [&first.items[0].id, &rest.items[0].id];
    assert!(ids.contains(&&one.id) && ids.contains(&&two.id) && rest.next.is_none(), "{ids:?}");
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let query = SnapshotQuery { labels, ..SnapshotQuery::default() };
    assert!(snapshots.list(&query).await.unwrap().items.is_empty());

    // What a crash between the archive and its manifest leaves goes with the next change.
    fs::write(blob(&setup).with_file_name("f".repeat(64)), "orphan").unwrap();
    assert_eq!(snapshots.remove("one").await.unwrap(), one.id);
    assert_eq!(stored(&setup).len(), 3, "{:?}", stored(&setup));
    snapshots.remove(&two.id).await.unwrap();
    assert_eq!(stored(&setup), ["blobs/"]);
    assert_eq!(snapshots.remove(&two.id).await.unwrap_err().code(), Code::SnapshotNotFound);
    setup.end().await;
}

#[tokio::test]
async fn what_was_changed_behind_our_back_is_not_restored() {
    let setup = Setup::new().await;
    setup.write("kept/a", "a");
    let snapshots = setup.engine.snapshots();
    snapshots.create(setup.id.as_str(), of(&setup, "one")).await.unwrap();
    let path = blob(&setup);
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    for content in [Some(bad.as_slice()), Some(&good[..good.len() - 1]), None] {
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let error = snapshots.restore("one", plain()).await.unwrap_err();
        assert_eq!(error.code(), Code::SnapshotDamaged, "{error}");
    }
    let all = setup.engine.list(&Default::default()).await.unwrap();
    assert_eq!(all.items.len(), 1, "no sandbox was made for it");
    // The same files, taken again, mend it.
    snapshots.create(setup.id.as_str(), of(&setup, "two")).await.unwrap();
    let sandbox = snapshots.restore("one", plain()).await.unwrap();
    setup.engine.destroy(sandbox.id.as_str()).await.unwrap();
    setup.end().await;
}

#[tokio::test]
async fn a_snapshot_is_no_larger_than_the_disk() {
    let setup = Setup::new().await;
    setup.write("kept/a", "a");
    let snapshots = setup.engine.snapshots();
    let disk = setup.engine.inspect(setup.id.as_str()).await.unwrap().limits.disk_bytes.value;
    let sparse = fs::File::create(setup.path("kept/sparse")).unwrap();
    sparse.set_len(disk * 1000).unwrap();
    let error = snapshots.create(setup.id.as_str(), of(&setup, "one")).await.unwrap_err();
    assert_eq!(error.code(), Code::SnapshotTooLarge, "{error}");
    assert_eq!(stored(&setup), ["blobs/"]);
    sparse.set_len(1 << 20).unwrap();
    let kept = snapshots.create(setup.id.as_str(), of(&setup, "one")).await.unwrap();
    assert_eq!(kept.content_bytes, (1 << 20) + 1);
    setup.end().await;
}

#[tokio::test]
async fn another_tenants_snapshots_do_not_exist() {
    let setup = Setup::new().await;
    setup.write("kept/a", "a");
    let tenant = |name| TenantId::parse(name).unwrap();
    let mut engines = Vec::new();
    for name in ["mine", "other"] {
        setup.engine.tenants().create(tenant(name), Quotas::default()).await.unwrap();
        engines.push(setup.engine.scoped(Scope::Tenant(tenant(name))));
    }
    let sandbox = engines[0].create(plain()).await.unwrap();
    let mine = engines[0].snapshots();
    let kept = mine.create(sandbox.id.as_str(), of(&setup, "one")).await.unwrap();
    assert_eq!((kept.tenant.as_str(), list(&mine).await.len()), ("mine", 1));
    let one = Scope::Sandbox { tenant: tenant("mine"), id: sandbox.id.clone() };
    let inside = setup.engine.scoped(one).snapshots();
    assert_eq!(inside.get("one").await.unwrap().id, kept.id);
    assert_eq!(inside.remove("one").await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(inside.restore("one", plain()).await.unwrap_err().code(), Code::PermissionDenied);

    let another = Scope::Sandbox { tenant: tenant("mine"), id: setup.id.clone() };
    for other in [engines[1].snapshots(), setup.engine.scoped(another).snapshots()] {
        assert!(list(&other).await.is_empty());
        for reference in ["one", &kept.id, "../mine/one", ""] {
            let error = other.get(reference).await.unwrap_err();
            assert_eq!(error.code(), Code::SnapshotNotFound);
            assert_eq!(other.remove(reference).await.unwrap_err().code(), Code::SnapshotNotFound);
        }
    }
    let others = engines[1].snapshots();
    let error = others.restore(&kept.id, plain()).await.unwrap_err();
    assert_eq!(error.code(), Code::SnapshotNotFound);
    let error = others.create(sandbox.id.as_str(), NewSnapshot::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::SandboxNotFound);

    // The operator sees it, and what is restored stays the tenant's.
    let all = setup.engine.snapshots();
    assert_eq!(list(&all).await.len(), 1);
    let restored = all.restore(&kept.id, plain()).await.unwrap();
    assert_eq!(restored.tenant, tenant("mine"));
    for id in [&restored.id, &sandbox.id] {
        setup.engine.destroy(id.as_str()).await.unwrap();
    }
    setup.engine.tenants().remove(&tenant("mine")).await.unwrap();
    assert!(!setup.directory.path().join("state/snapshots/mine").exists());
    setup.end().await;
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let setup = Setup::new().await;
    setup.write("kept/a", "a");
    let snapshots = setup.engine.snapshots();
    let check = async |paths: &[PathBuf], code| {
        let new = NewSnapshot { paths: paths.to_vec(), ..NewSnapshot::default() };
        let result = snapshots.create(setup.id.as_str(), new).await;
        assert_eq!(result.unwrap_err().code(), code, "{paths:?}");
    };
    check(&["/".into()], Code::InvalidArgument).await;
    check(&["kept".into()], Code::InvalidArgument).await;
    check(&[setup.path("kept"), setup.path("kept/b")], Code::InvalidArgument).await;
    check(&[setup.path("kept/a")], Code::FileKindWrong).await;
    check(&[setup.path("none")], Code::FileNotFound).await;
    snapshots.create(setup.id.as_str(), of(&setup, "one")).await.unwrap();
    let keyed = CreateRequest { idempotency_key: Some("k".to_owned()), ..plain() };
    let network = NetworkPolicy { mode: NetworkMode::Allowlist, allow: Vec::new() };
    let allowlisted = CreateRequest { network, ..plain() };
    for request in [keyed, allowlisted] {
        let error = snapshots.restore("one", request).await.unwrap_err();
        assert_eq!(error.code(), Code::ConflictingOptions, "{error}");
    }
    setup.end().await;
}
