//! Pausing, resuming, and giving more time.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use belljar_codes::Code;
use belljar_engine::{
    AuditQuery, BackendChoice, CreateRequest, EventKind, Lease, Offsets, ProcessStatus,
    SandboxQuery, SandboxState, SessionRequest,
};
use belljar_protocol::v1;
use support::{FakeBackend, Setup, exec, open, open_attending, start_and_die};

#[tokio::test]
async fn a_paused_sandbox_refuses_work_and_goes_on_when_resumed() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let running = setup.engine.start(id.as_str(), exec(&["hang"])).await.unwrap().process;
    let since = setup.engine.last_event().await.unwrap();
    for _ in 0..2 {
        let sandbox = setup.engine.pause(id.as_str()).await.unwrap();
        assert_eq!(sandbox.state, SandboxState::Paused);
        assert!(setup.backend.paused.lock().unwrap().contains(&id));
    }
    for engine in [&setup.engine, &setup.second().await] {
        let refused = [
            engine.exec(&id, exec(&["true"])).await.unwrap_err(),
            engine.start(id.as_str(), exec(&["true"])).await.unwrap_err(),
            engine.read_file(&id, Path::new("/x"), 10).await.unwrap_err(),
            engine.control(&running.id).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.code(), Code::SandboxNotReady);
            assert_eq!(error.remedy(), Some("resume it first"));
        }
        assert_eq!(engine.inspect(id.as_str()).await.unwrap().state, SandboxState::Paused);
        engine.follow(&running.id, Offsets::default()).await.unwrap();
    }
    for _ in 0..2 {
        let sandbox = setup.engine.resume(id.as_str()).await.unwrap();
        assert_eq!(sandbox.state, SandboxState::Ready);
    }
    assert!(setup.backend.paused.lock().unwrap().is_empty());
    assert!(setup.run(&id, &["true"]).await.exit.success());
    setup.engine.control(&running.id).await.unwrap().signal(15).await.unwrap();
    let info = setup.engine.wait(&running.id, None).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Failed);

    let last = setup.engine.last_event().await.unwrap();
    let mut events = setup.engine.events(Some(since));
    let mut kinds = Vec::new();
    // Those of processes come in between, sooner or later.
    while kinds.len() as u64 + since < last {
        kinds.push(events.next().await.unwrap().kind);
    }
    kinds.retain(|kind| !matches!(kind, EventKind::ProcessStarted | EventKind::ProcessEnded));
    assert_eq!(kinds, [EventKind::SandboxPaused, EventKind::SandboxResumed], "each once");
}

#[tokio::test]
async fn a_paused_sandbox_can_be_destroyed_and_then_not_be_resumed() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    setup.engine.pause(id.as_str()).await.unwrap();
    setup.engine.destroy(id.as_str()).await.unwrap();
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
    for result in [setup.engine.resume(id.as_str()).await, setup.engine.pause(id.as_str()).await] {
        assert_eq!(result.unwrap_err().code(), Code::SandboxGone);
    }
    let missing = setup.engine.pause("nobody").await.unwrap_err();
    assert_eq!(missing.code(), Code::SandboxNotFound);
}

#[tokio::test]
async fn a_backend_that_cannot_pause_leaves_the_sandbox_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let backend = FakeBackend::named("local", &directory.path().join("objects"));
    let engine = open(&directory.path().join("state"), &backend).await;
    let request = CreateRequest {
        backend: BackendChoice::Named("local".to_owned()),
        waive_isolation: true,
        ..CreateRequest::default()
    };
    let id = engine.create(request).await.unwrap().id;
    assert_eq!(engine.pause(id.as_str()).await.unwrap_err().code(), Code::NotEnforceable);
    assert_eq!(engine.inspect(id.as_str()).await.unwrap().state, SandboxState::Ready);
    assert!(engine.exec(&id, exec(&["true"])).await.unwrap().wait().await.unwrap().exit.success());
}

#[tokio::test]
async fn the_lease_of_a_paused_sandbox_runs_on() {
    let setup = Setup::new().await;
    let request = |idle_ms| CreateRequest {
        idle_timeout: Some(Duration::from_millis(idle_ms)),
        ..CreateRequest::default()
    };
    let short = setup.engine.create(request(1)).await.unwrap().id;
    let long = setup.engine.create(request(3_600_000)).await.unwrap().id;
    let busy = setup.engine.create(request(1)).await.unwrap().id;
    setup.engine.start(short.as_str(), exec(&["hang"])).await.unwrap();
    setup.engine.start(busy.as_str(), exec(&["hang"])).await.unwrap();
    for id in [&short, &long] {
        setup.engine.pause(id.as_str()).await.unwrap();
    }
    let ended = async {
        while setup.engine.list(&SandboxQuery::default()).await.unwrap().items.len() > 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    let state = async |id: &str| setup.engine.inspect(id).await.unwrap().state;
    assert_eq!(state(short.as_str()).await, SandboxState::Destroyed);
    assert_eq!(state(long.as_str()).await, SandboxState::Paused);
    assert_eq!(state(busy.as_str()).await, SandboxState::Ready, "a process keeps it in use");
    assert_eq!(ends_on_record(&setup).await, [(short.to_string(), IDLE.to_owned())]);
}

const IDLE: &str = "it was idle for too long";

/// Sandboxes that the system ended, and why.
async fn ends_on_record(setup: &Setup) -> Vec<(String, String)> {
    let mut reader = setup.engine.audit().query(AuditQuery::default()).await;
    let mut found = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        let entry = record.entry;
        assert_eq!((entry.actor.as_str(), entry.outcome.as_str()), ("system", "ok"));
        assert_eq!((entry.action.as_str(), entry.tenant.as_str()), ("sandbox.destroy", "default"));
        found.push((entry.sandbox.unwrap(), entry.detail["reason"].clone()));
    }
    found
}

#[tokio::test]
async fn an_end_that_nobody_asked_for_is_on_record_with_its_reason() {
    let setup = Setup::new().await;
    let lease =
        CreateRequest { hard_limit: Some(Duration::from_secs(1)), ..CreateRequest::default() };
    let leased = setup.engine.create(lease).await.unwrap().id;
    let idle = Some(Duration::from_secs(1));
    let idle = CreateRequest { idle_timeout: idle, ..CreateRequest::default() };
    let idle = setup.engine.create(idle).await.unwrap().id;
    let (killed, asked) = (setup.create().await, setup.create().await);
    let mut expected = Vec::new();
    for (id, reason) in
        [(&leased, "its lease ended"), (&idle, IDLE), (&killed, "its agent is gone")]
    {
        setup.backend.kill_agent(id);
        let ended = setup.engine.inspect(id.as_str()).await.unwrap();
        assert_eq!(ended.failure.as_deref(), Some(reason));
        expected.push((id.to_string(), reason.to_owned()));
    }
    // Whoever asks for an end is on record by whom they asked.
    setup.engine.destroy(asked.as_str()).await.unwrap();
    assert_eq!(ends_on_record(&setup).await, expected);
}

#[tokio::test]
async fn an_end_that_was_interrupted_is_on_record_with_its_reason() {
    let setup = Setup::new().await;
    let idle = Some(Duration::from_secs(1));
    let idle = CreateRequest { idle_timeout: idle, ..CreateRequest::default() };
    let idle = setup.engine.create(idle).await.unwrap().id;
    setup.backend.kill_agent(&idle);
    setup.backend.fail_stop.store(true, Ordering::Relaxed);
    setup.engine.inspect(idle.as_str()).await.unwrap_err();
    assert_eq!(ends_on_record(&setup).await, []);
    // Somebody asked for this one, and is on record by whom they asked; that it went later is known all the same.
    let asked = setup.create().await;
    setup.backend.fail_stop.store(true, Ordering::Relaxed);
    setup.engine.destroy(asked.as_str()).await.unwrap_err();

    let next = setup.second().await;
    let ended = next.inspect(idle.as_str()).await.unwrap();
    assert_eq!((ended.state, ended.failure.as_deref()), (SandboxState::Destroyed, Some(IDLE)));
    let asked_for = next.inspect(asked.as_str()).await.unwrap();
    assert_eq!((asked_for.state, asked_for.failure), (SandboxState::Destroyed, None));
    next.audit().flush().await;
    let mut found = ends_on_record(&setup).await;
    found.sort_by_key(|(id, _)| *id != idle.as_str());
    let resumed = "destroying it had been interrupted".to_owned();
    assert_eq!(found, [(idle.to_string(), IDLE.to_owned()), (asked.to_string(), resumed)]);
}

#[tokio::test]
async fn what_ran_something_was_not_idle() {
    let setup = Setup::new().await;
    let hour = Duration::from_secs(3600);
    let mut expected = Vec::new();
    for (hard, reason) in [(hour, "its agent is gone"), (Duration::from_secs(1), "its lease ended")]
    {
        let request = CreateRequest {
            idle_timeout: Some(Duration::from_millis(1)),
            hard_limit: Some(hard),
            ..CreateRequest::default()
        };
        let id = setup.engine.create(request).await.unwrap().id;
        // Nobody attends to it, so that its end is not on record before that of the sandbox.
        start_and_die(&setup, &id, &["hang"]).await;
        setup.backend.kill_agent(&id);
        let ended = setup.engine.inspect(id.as_str()).await.unwrap();
        assert_eq!(ended.failure.as_deref(), Some(reason));
        expected.push((id.to_string(), reason.to_owned()));
    }
    assert_eq!(ends_on_record(&setup).await, expected);
}

#[tokio::test]
async fn a_sandbox_that_ends_with_its_session_is_on_record() {
    let setup = Setup::new().await;
    let ephemeral = || SessionRequest::Ephemeral(CreateRequest::default());
    let ended = setup.engine.session(ephemeral()).await.unwrap();
    let mut expected = vec![ended.sandbox.id.to_string()];
    ended.end().await.unwrap();
    let dropped = setup.engine.session(ephemeral()).await.unwrap();
    expected.push(dropped.sandbox.id.to_string());
    drop(dropped);
    setup.engine.clone().close().await;
    let reason = || "its session has ended".to_owned();
    let expected: Vec<_> = expected.into_iter().map(|id| (id, reason())).collect();
    assert_eq!(ends_on_record(&setup).await, expected);
}

#[tokio::test]
async fn more_time_is_stored_and_told_to_the_agent() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let told = || setup.backend.agent(&id).lease.lock().unwrap().unwrap();
    let hour = Duration::from_secs(3600);
    let lease = Lease { idle: None, hard: Some(hour) };
    let sandbox = setup.engine.extend(id.as_str(), lease).await.unwrap();
    assert_eq!(told(), v1::Lease { idle_ms: 1_800_000, hard_ms: 3_600_000 });
    assert!(sandbox.expires_at.unwrap() > SystemTime::now() + hour / 3);

    let lease = Lease { idle: Some(Duration::ZERO), hard: None };
    let sandbox = setup.engine.extend(id.as_str(), lease).await.unwrap();
    assert_eq!(told().idle_ms, 0);
    assert!((3_500_000..=3_600_000).contains(&told().hard_ms), "what is left of it: {:?}", told());
    let expires_at = sandbox.expires_at.unwrap();
    assert!(expires_at > SystemTime::now() + hour * 9 / 10);
    assert!(expires_at <= SystemTime::now() + hour);

    let lease = Lease { idle: None, hard: Some(Duration::ZERO) };
    let sandbox = setup.engine.extend(id.as_str(), lease).await.unwrap();
    assert_eq!((told(), sandbox.expires_at), (v1::Lease { idle_ms: 0, hard_ms: 0 }, None));

    setup.engine.pause(id.as_str()).await.unwrap();
    let lease = Lease { idle: Some(hour), hard: None };
    let sandbox = setup.engine.extend(id.as_str(), lease).await.unwrap();
    assert_eq!(sandbox.state, SandboxState::Paused);
    assert!(sandbox.expires_at.is_some());
    setup.engine.destroy(id.as_str()).await.unwrap();
    let error = setup.engine.extend(id.as_str(), lease).await.unwrap_err();
    assert_eq!(error.code(), Code::SandboxGone);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_passes_in_a_pause_does_not_cost_the_sandbox() {
    let setup = Setup::new().await;
    let engine = open_attending(&setup.state(), &setup.backend).await;
    let id = engine.create(CreateRequest::default()).await.unwrap().id;
    let mut request = exec(&["stuck"]);
    request.timeout = Some(Duration::from_secs(1));
    let process = engine.start(id.as_str(), request).await.unwrap().process;
    engine.pause(id.as_str()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.process(&process.id).await.unwrap().finished_at, None);
    engine.resume(id.as_str()).await.unwrap();
    let info = engine.wait(&process.id, None).await.unwrap();
    assert!(info.exit.unwrap().timed_out, "and after it the timeout counts again");
}
