//! Tenants come and go, and get no more than they may have.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::sync::atomic::Ordering;

use belljar_codes::Code;
use belljar_engine::{
    Counts, CreateRequest, DEFAULT_VOLUME_TARGET, Event, EventKind, ProcessQuery, ProcessStatus,
    Quotas, SandboxQuery, SandboxState, SessionRequest, Tenant, TenantId, TenantUsage,
    VolumeRequest,
};
use belljar_policy::{Asked, Limits, SandboxName};
use support::{Setup, exec};

fn id(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn named(name: &str) -> CreateRequest {
    CreateRequest { name: Some(SandboxName::parse(name).unwrap()), ..CreateRequest::default() }
}

#[tokio::test]
async fn tenants_come_and_go() {
    let setup = Setup::new().await;
    let tenants = setup.engine.tenants();
    let names = |tenants: Vec<Tenant>| {
        tenants.into_iter().map(|tenant| tenant.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(tenants.list().await.unwrap()), ["default"]);
    assert_eq!(tenants.get(&id("one")).await.unwrap_err().code(), Code::TenantNotFound);
    let quotas = Quotas { sandboxes: Some(3), requests_per_second: Some(9), ..Quotas::default() };
    let tenant = tenants.create(id("one"), quotas).await.unwrap();
    assert_eq!((tenant.quotas, &tenant), (quotas, &tenants.get(&id("one")).await.unwrap()));
    let error = tenants.create(id("one"), Quotas::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::TenantExists);
    assert!(error.remedy().unwrap().contains("belljar tenants set"));
    let changed = tenants.set(&id("one"), Quotas::default()).await.unwrap();
    assert_eq!(changed, Tenant { quotas: Quotas::default(), ..tenant });
    let error = tenants.set(&id("two"), Quotas::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::TenantNotFound);
    assert_eq!(names(tenants.list().await.unwrap()), ["default", "one"]);

    let one = setup.tenant("one").await;
    let sandbox = one.create(named("web")).await.unwrap();
    one.exec(&sandbox.id, exec(&["echo", "x"])).await.unwrap().wait().await.unwrap();
    assert_eq!(tenants.remove(&id("one")).await.unwrap_err().code(), Code::TenantInUse);
    assert_eq!(one.inspect("web").await.unwrap().state, SandboxState::Ready);
    one.destroy("web").await.unwrap();
    tenants.remove(&id("one")).await.unwrap();
    assert_eq!(tenants.remove(&id("one")).await.unwrap_err().code(), Code::TenantNotFound);
    assert_eq!(tenants.remove(&id("default")).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(one.create(named("web")).await.unwrap_err().code(), Code::TenantNotFound);
    assert_eq!(setup.backend.objects(), Vec::<String>::new());

    // A later one of the same name finds nothing of the earlier, and no log is left.
    let again = setup.tenant("one").await;
    let all = [SandboxState::Ready, SandboxState::Destroyed, SandboxState::Failed].to_vec();
    let query = SandboxQuery { states: all, ..SandboxQuery::default() };
    assert_eq!(again.list(&query).await.unwrap().items, []);
    assert_eq!(again.processes(&ProcessQuery::default()).await.unwrap().items, []);
    assert_eq!(std::fs::read_dir(setup.state().join("processes")).unwrap().count(), 0);
    assert_eq!(setup.engine.leaks(false).await.unwrap().found, []);
    let mut events = again.events(Some(0));
    let sandbox = again.create(named("new")).await.unwrap();
    let Event { kind, sandbox: about, detail, .. } = events.next().await.unwrap();
    if about != sandbox.id {
        assert!(detail.is_empty());
    } else {
        assert_eq!(kind, EventKind::SandboxCreated);
    }
}

#[tokio::test]
async fn a_tenant_administers_nothing_and_knows_itself() {
    let setup = Setup::new().await;
    let (one, _) = (setup.tenant("one").await, setup.tenant("two").await);
    let tenants = one.tenants();
    for error in [
        tenants.list().await.unwrap_err(),
        tenants.create(id("three"), Quotas::default()).await.unwrap_err(),
        tenants.set(&id("one"), Quotas::default()).await.unwrap_err(),
        tenants.remove(&id("two")).await.unwrap_err(),
        one.leaks(true).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::PermissionDenied);
    }
    assert_eq!(tenants.get(&id("two")).await.unwrap_err().code(), Code::TenantNotFound);
    assert_eq!(tenants.usage(&id("two")).await.unwrap_err().code(), Code::TenantNotFound);
    assert_eq!(tenants.get(&id("one")).await.unwrap().id, id("one"));
    assert_eq!(tenants.usage(&id("one")).await.unwrap(), TenantUsage::default());
}

#[tokio::test]
async fn each_quota_holds_and_gives_back() {
    let setup = Setup::new().await;
    let one = setup.tenant("one").await;
    let limits = Limits {
        memory_bytes: Asked::by_caller(100 << 20),
        cpu_millis: Asked::by_caller(500),
        ..Limits::default().with_disk(50 << 20)
    };
    let request = || CreateRequest { limits, ..CreateRequest::default() };
    for (quotas, word) in [
        (Quotas { sandboxes: Some(2), ..Quotas::default() }, "for sandboxes is 2,"),
        (Quotas { memory_bytes: Some(250 << 20), ..Quotas::default() }, "for memory is 250 MiB,"),
        (Quotas { milli_cpus: Some(1499), ..Quotas::default() }, "for CPUs is 1.499,"),
        (Quotas { disk_bytes: Some(100 << 20), ..Quotas::default() }, "for disk is 100 MiB,"),
    ] {
        setup.engine.tenants().set(&id("one"), quotas).await.unwrap();
        let first = one.create(request()).await.unwrap();
        let second = one.create(request()).await.unwrap();
        let error = one.create(request()).await.unwrap_err();
        assert_eq!(error.code(), Code::QuotaExceeded);
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(setup.backend.objects().len(), 2);
        // Others are not concerned.
        let other = setup.engine.create(request()).await.unwrap();
        setup.engine.destroy(other.id.as_str()).await.unwrap();
        one.destroy(first.id.as_str()).await.unwrap();
        let third = one.create(request()).await.unwrap();
        let used = setup.engine.tenants().usage(&id("one")).await.unwrap();
        let expected = TenantUsage {
            sandboxes: 2,
            memory_bytes: 200 << 20,
            milli_cpus: 1000,
            disk_bytes: 100 << 20,
            processes: 0,
        };
        assert_eq!(used, expected);
        one.destroy(second.id.as_str()).await.unwrap();
        one.destroy(third.id.as_str()).await.unwrap();
    }
}

#[tokio::test]
async fn a_failed_creation_takes_nothing_from_a_quota() {
    let setup = Setup::new().await;
    let one = setup.tenant("one").await;
    let quotas = Quotas { sandboxes: Some(1), ..Quotas::default() };
    setup.engine.tenants().set(&id("one"), quotas).await.unwrap();
    setup.backend.fail_start.store(true, Ordering::Relaxed);
    one.create(named("web")).await.unwrap_err();
    setup.backend.fail_start.store(false, Ordering::Relaxed);
    one.create(named("web")).await.unwrap();
    // A name that is taken is told as such, and a session that exists is found, whatever the quota.
    assert_eq!(one.create(named("web")).await.unwrap_err().code(), Code::SandboxExists);
    assert!(!one.session(SessionRequest::Named(named("web"))).await.unwrap().created);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_get_no_more_than_there_is() {
    let setup = Setup::new().await;
    let one = setup.tenant("one").await;
    let quotas = Quotas { sandboxes: Some(3), ..Quotas::default() };
    setup.engine.tenants().set(&id("one"), quotas).await.unwrap();
    let tasks: Vec<_> = (0..12)
        .map(|_| {
            let engine = one.clone();
            tokio::spawn(async move { engine.create(CreateRequest::default()).await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(error.code(), Code::QuotaExceeded),
        }
    }
    assert_eq!((made, setup.backend.objects().len()), (3, 3));
}

#[tokio::test]
async fn running_processes_are_counted() {
    let setup = Setup::new().await;
    let one = setup.tenant("one").await;
    let quotas = Quotas { processes: Some(1), ..Quotas::default() };
    setup.engine.tenants().set(&id("one"), quotas).await.unwrap();
    let sandbox = one.create(CreateRequest::default()).await.unwrap();
    let first = one.exec(&sandbox.id, exec(&["hang"])).await.unwrap();
    let error = one.exec(&sandbox.id, exec(&["true"])).await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    assert!(error.to_string().contains("for processes is 1,"), "{error}");
    let counts = one.counts().await.unwrap();
    let expected = Counts { sandboxes: [(SandboxState::Ready, 1)].into(), processes: 1 };
    assert_eq!(counts, expected);
    assert_eq!(setup.tenant("two").await.counts().await.unwrap(), Counts::default());
    assert_eq!(setup.engine.counts().await.unwrap(), expected);
    assert!(std::fs::read_dir(setup.state().join("processes")).unwrap().count() <= 1);
    first.signal(9).await.unwrap();
    first.wait().await.unwrap();
    one.exec(&sandbox.id, exec(&["true"])).await.unwrap().wait().await.unwrap();
}

#[tokio::test]
async fn logs_of_ended_processes_take_no_more_than_the_quota_for_disk() {
    let setup = Setup::new().await;
    let (output, length) = ("x".repeat(4000), 4000);
    let mut ran = Vec::new();
    for name in ["one", "two"] {
        let tenant = setup.tenant(name).await;
        let sandbox = tenant.create(CreateRequest::default()).await.unwrap().id;
        let mut processes = Vec::new();
        for _ in 0..3 {
            let started = tenant.start(sandbox.as_str(), exec(&["echo", &output])).await.unwrap();
            tenant.wait(&started.process.id, None).await.unwrap();
            processes.push(started.process.id);
        }
        ran.push((tenant, processes));
    }
    let quotas = Quotas { disk_bytes: Some(9000), ..Quotas::default() };
    setup.engine.tenants().set(&id("one"), quotas).await.unwrap();
    // Those that ended just now are spared, whatever they take.
    setup.engine.bound_logs().await.unwrap();
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    for (_, processes) in &ran {
        for process in processes {
            let info = setup.engine.process(process).await.unwrap();
            assert_eq!(info.kept_from, Default::default());
        }
    }
    let an_hour_before = "UPDATE processes SET finished_at = finished_at - 3600000";
    database.execute(an_hour_before, []).unwrap();
    let looked = database.execute("DELETE FROM meta WHERE key = 'turn.logs'", []).unwrap();
    assert_eq!(looked, 1);
    setup.engine.bound_logs().await.unwrap();
    for (tenant, processes) in ran {
        let mut kept = Vec::new();
        for process in &processes {
            let info = tenant.process(process).await.unwrap();
            assert_eq!((info.status, info.log.stdout), (ProcessStatus::Succeeded, length));
            kept.push(length - info.kept_from.stdout);
            // Who follows it is told of the end at once, whether or not the output is there.
            let follower = tenant.follow(process, Default::default()).await.unwrap();
            let (_, completed) = follower.collect(1 << 20).await.unwrap();
            let missing = length - kept.last().unwrap();
            assert_eq!(completed.stdout.data.starts_with(b"xx"), missing == 0);
            assert_eq!(completed.stdout.dropped, missing, "it is not quietly short");
        }
        let id = tenant.scope().tenant();
        let quota = setup.engine.tenants().get(&id).await.unwrap().quotas.disk_bytes;
        let expected = if quota.is_some() { [0, length, length] } else { [length; 3] };
        assert_eq!(kept, expected);
    }
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_volumes() {
    let setup = Setup::new().await;
    for number in 1..1000 {
        let volume = setup.state().join("volumes/default").join(format!("v{number}"));
        std::fs::create_dir_all(volume).unwrap();
    }
    let create = async |name: &str| {
        let name = SandboxName::parse(name).unwrap();
        let volume = VolumeRequest { name, target: DEFAULT_VOLUME_TARGET.into() };
        let request = CreateRequest { volume: Some(volume), ..CreateRequest::default() };
        setup.engine.create(request).await
    };
    create("last").await.unwrap();
    let error = create("another").await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    assert!(error.remedy().is_some());
    // Those that are there can be used.
    create("last").await.unwrap();
    create("v7").await.unwrap();
}
