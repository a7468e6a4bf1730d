//! Creating, using, finding and destroying sandboxes.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use belljar_backend::IsolationClass;
use belljar_codes::Code;
use belljar_engine::{
    BackendChoice, CreateRequest, Engine, EngineOptions, Program, Reason, SandboxQuery,
    SandboxState, SessionRequest, WorkspaceRequest,
};
use belljar_policy::{Environment, NetworkMode, NetworkPolicy, SandboxName, WorkspaceMode};
use support::{FakeBackend, Setup, exec, tree};

fn named(name: &str) -> CreateRequest {
    CreateRequest { name: Some(SandboxName::parse(name).unwrap()), ..CreateRequest::default() }
}

#[tokio::test]
async fn an_engine_that_closes_leaves_the_agent_nothing_to_remember() {
    let setup = Setup::new().await;
    let sandbox = setup.engine.create(CreateRequest::default()).await.unwrap();
    setup.run(&sandbox.id, &["echo", "hello"]).await;
    let agent = setup.backend.agent(&sandbox.id);
    setup.engine.close().await;
    let forgotten = async {
        while agent.known_processes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), forgotten).await.expect("forgotten by the agent");
}

#[tokio::test]
async fn a_sandbox_lives_and_leaves_nothing() {
    let setup = Setup::new().await;
    let before = tree(&setup.state());
    let sandbox = setup.engine.create(named("web")).await.unwrap();
    assert_eq!(sandbox.state, SandboxState::Ready);
    assert_eq!(sandbox.isolation.network_enforcement, "nothing is real");
    assert_eq!(sandbox.isolation.writable_paths, ["/workspace", "/tmp", "/output", "/home/user"]);
    assert!(sandbox.expires_at.unwrap() > SystemTime::now() + Duration::from_secs(1700));
    let completed = setup.run(&sandbox.id, &["echo", "hello"]).await;
    assert_eq!((completed.exit.code(), &completed.stdout.data[..]), (0, &b"hello"[..]));
    // The agent is told what it may forget with the next thing that it is told.
    setup.run(&sandbox.id, &["echo", "again"]).await;
    let agent = setup.backend.agent(&sandbox.id);
    let forgotten = async {
        while agent.known_processes() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), forgotten).await.expect("forgotten by the agent");

    for reference in ["web", sandbox.id.as_str()] {
        assert_eq!(setup.engine.inspect(reference).await.unwrap().id, sandbox.id);
    }
    assert_eq!(setup.engine.list(&SandboxQuery::default()).await.unwrap().items.len(), 1);
    setup.engine.destroy("web").await.unwrap();
    assert_eq!(setup.engine.destroy("web").await.unwrap_err().code(), Code::SandboxNotFound);
    setup.engine.destroy(sandbox.id.as_str()).await.unwrap();
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
    assert_eq!(setup.engine.list(&SandboxQuery::default()).await.unwrap().items, []);
    let ended = setup.engine.inspect(sandbox.id.as_str()).await.unwrap();
    assert_eq!(ended.state, SandboxState::Destroyed);
    let error = setup.engine.exec(&sandbox.id, exec(&["true"])).await.unwrap_err();
    assert_eq!(error.code(), Code::SandboxGone);

    let report = setup.engine.leaks(false).await.unwrap();
    assert_eq!(report.found, []);
    // The log stays for a while, what probes found as long as the host is the same, and this engine is present.
    let stays = |path: &String| {
        ["processes/", "sessions/", "probes.json"].iter().any(|kept| path.starts_with(kept))
    };
    let after: Vec<_> = tree(&setup.state()).into_iter().filter(|path| !stays(path)).collect();
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_failed_start_leaves_a_reason_and_nothing_else() {
    let setup = Setup::new().await;
    setup.backend.fail_start.store(true, Ordering::Relaxed);
    let error = setup.engine.create(named("web")).await.unwrap_err();
    assert_eq!((error.code(), error.remedy()), (Code::StartFailed, Some("do not")));
    assert_eq!(setup.engine.list(&SandboxQuery::default()).await.unwrap().items, []);
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
    setup.backend.fail_start.store(false, Ordering::Relaxed);
    setup.engine.create(named("web")).await.unwrap();
    let error = setup.engine.create(named("web")).await.unwrap_err();
    assert_eq!(error.code(), Code::SandboxExists);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_before_anything_is_made() {
    let setup = Setup::new().await;
    let missing = WorkspaceRequest { path: "/no/such".into(), mode: WorkspaceMode::Bind };
    let check = async |request: CreateRequest, expected: Code| {
        let error = setup.engine.create(request.clone()).await.unwrap_err();
        assert_eq!(error.code(), expected);
        let error = setup.engine.explain(&request).await.unwrap_err();
        assert_eq!(error.code(), expected);
    };
    let full = NetworkPolicy::new(NetworkMode::Full, vec![]).unwrap();
    check(
        CreateRequest { workspace: Some(missing), ..CreateRequest::default() },
        Code::MountSourceUnusable,
    )
    .await;
    check(CreateRequest { network: full, ..CreateRequest::default() }, Code::NotEnforceable).await;
    check(
        CreateRequest {
            backend: BackendChoice::Named("none".to_owned()),
            ..CreateRequest::default()
        },
        Code::BackendUnavailable,
    )
    .await;
    check(
        CreateRequest {
            labels: [("a\nb".to_owned(), String::new())].into(),
            ..CreateRequest::default()
        },
        Code::InvalidArgument,
    )
    .await;
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
}

#[tokio::test]
async fn backends_are_chosen_carefully() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name| FakeBackend::named(name, &directory.path().join(name));
    let (local, first, second) = (make("local"), make("first"), make("second"));
    let open = async |state: &str, backends: &[&Arc<FakeBackend>]| {
        let backends = backends.iter().map(|backend| Arc::clone(backend) as _).collect();
        Engine::open(EngineOptions::new(directory.path().join(state), backends)).await.unwrap()
    };
    let choose = async |engine: &Engine, request: CreateRequest| {
        engine.explain(&request).await.map(|e| e.chosen_backend).map_err(|e| e.code())
    };
    let local_by_name = |waive_isolation| CreateRequest {
        backend: BackendChoice::Named("local".to_owned()),
        waive_isolation,
        ..CreateRequest::default()
    };

    let engine = open("a", &[&local]).await;
    assert_eq!(choose(&engine, CreateRequest::default()).await, Err(Code::NoBackend));
    assert_eq!(choose(&engine, local_by_name(false)).await, Err(Code::IsolationNotWaived));
    assert_eq!(choose(&engine, local_by_name(true)).await, Ok("local".to_owned()));
    let floor = Some(IsolationClass::Namespace);
    let floored = CreateRequest { isolation_floor: floor, ..local_by_name(true) };
    assert_eq!(choose(&engine, floored).await, Err(Code::NotEnforceable));

    let engine = open("b", &[&local, &first, &second]).await;
    first.works.store(false, Ordering::Relaxed);
    assert_eq!(choose(&engine, CreateRequest::default()).await, Ok("second".to_owned()));
    assert_eq!(choose(&engine, CreateRequest::default()).await, Ok("second".to_owned()));
    assert_eq!(first.probes.load(Ordering::Relaxed), 1, "tried once");
    assert_eq!(local.probes.load(Ordering::Relaxed), 0, "never tried");
    let high =
        CreateRequest { isolation_floor: Some(IsolationClass::Vm), ..CreateRequest::default() };
    assert_eq!(choose(&engine, high).await, Err(Code::NoBackend));
}

#[tokio::test]
async fn auto_takes_the_strongest_that_works_fast() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name| FakeBackend::named(name, &directory.path().join(name));
    let (plain, walled) = (make("plain"), make("walled"));
    *walled.class.lock().unwrap() = IsolationClass::Kernel;
    *walled.runtime.lock().unwrap() = Some("thick");
    let open = async |state: &str| {
        let backends: Vec<Arc<dyn belljar_backend::Backend>> =
            vec![plain.clone() as _, walled.clone() as _];
        Engine::open(EngineOptions::new(directory.path().join(state), backends)).await.unwrap()
    };
    let engine = open("a").await;
    let chosen = engine.explain(&CreateRequest::default()).await.unwrap();
    assert_eq!((chosen.chosen_backend.as_str(), chosen.class), ("walled", IsolationClass::Kernel));
    assert!(chosen.reason.contains("`thick` is the strongest"), "{}", chosen.reason);
    let sandbox = engine.create(CreateRequest::default()).await.unwrap();
    assert_eq!(sandbox.isolation.reason, chosen.reason, "it is on record");
    assert_eq!(sandbox.isolation.runtime.unwrap().name, "thick");
    let wrong = CreateRequest { runtime: Some("thin".into()), ..CreateRequest::default() };
    assert_eq!(engine.explain(&wrong).await.unwrap_err().code(), Code::NoBackend);

    // Another engine on the same state knows what was found, until it is told to look again.
    let tried = walled.probes.load(Ordering::Relaxed);
    let other = open("a").await;
    other.explain(&CreateRequest::default()).await.unwrap();
    assert_eq!(walled.probes.load(Ordering::Relaxed), tried);
    other.probe(Some("walled"), true).await;
    assert_eq!(walled.probes.load(Ordering::Relaxed), tried + 1);

    walled.fast.store(false, Ordering::Relaxed);
    let engine = open("b").await;
    let chosen = engine.explain(&CreateRequest::default()).await.unwrap();
    assert_eq!(chosen.chosen_backend, "plain");
    assert!(chosen.reason.contains("`walled` works, but slowly"), "{}", chosen.reason);
    for asked in [
        CreateRequest { isolation_floor: Some(IsolationClass::Kernel), ..CreateRequest::default() },
        CreateRequest { runtime: Some("thick".into()), ..CreateRequest::default() },
    ] {
        assert_eq!(engine.explain(&asked).await.unwrap().chosen_backend, "walled");
    }
}

#[tokio::test]
async fn the_environment_is_stripped_and_reported() {
    let setup = Setup::new().await;
    let request = CreateRequest {
        environment: Environment::parse(["LD_PRELOAD=/evil.so", "A=1"]).unwrap(),
        ..CreateRequest::default()
    };
    let sandbox = setup.engine.create(request).await.unwrap();
    assert_eq!(sandbox.stripped_environment, ["LD_PRELOAD"]);
    let configured = setup.backend.agent(&sandbox.id).configuration();
    assert_eq!(configured.environment["A"], "1");
    assert!(!configured.environment.contains_key("LD_PRELOAD"));
    assert_eq!(configured.environment["HOME"], "/home/user");
    assert_eq!(configured.working_directory, b"/workspace");

    let mut request = exec(&["env", "B"]);
    request.environment = Environment::parse(["LD_LIBRARY_PATH=/evil", "B=2"]).unwrap();
    let process = setup.engine.exec(&sandbox.id, request).await.unwrap();
    assert_eq!(process.stripped_environment(), ["LD_LIBRARY_PATH"]);
    assert_eq!(process.wait().await.unwrap().stdout.data, b"2");
}

#[tokio::test]
async fn another_engine_sees_and_uses_the_same_sandboxes() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let second = setup.second().await;
    let completed = second.exec(&id, exec(&["echo", "hi"])).await.unwrap().wait().await.unwrap();
    assert_eq!(completed.stdout.data, b"hi");
    second.destroy(id.as_str()).await.unwrap();
    let error = setup.engine.exec(&id, exec(&["true"])).await.unwrap_err();
    assert_eq!(error.code(), Code::SandboxGone);
    setup.engine.clone().close().await;
    assert_eq!(setup.engine.list(&SandboxQuery::default()).await.unwrap().items, []);
}

#[tokio::test]
async fn a_dead_agent_ends_its_sandbox() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = setup.engine.exec(&id, exec(&["hang"])).await.unwrap();
    setup.backend.kill_agent(&id);
    assert_eq!(process.wait().await.unwrap().exit.reason, Reason::Lost);
    let seen = setup.engine.inspect(id.as_str()).await.unwrap();
    assert_eq!(seen.state, SandboxState::Destroyed);
    assert_eq!(seen.failure.as_deref(), Some("its agent is gone"));
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
}

#[tokio::test]
async fn an_agent_that_cannot_be_configured_leaves_nothing() {
    let setup = Setup::new().await;
    // Larger than a frame: the caller's own fault, and told so.
    let mut environment = Environment::new();
    for index in 0..4 {
        environment.set(&format!("V{index}"), &"x".repeat(100_000)).unwrap();
    }
    let request = CreateRequest { environment, ..CreateRequest::default() };
    let error = setup.engine.create(request).await.unwrap_err();
    assert_eq!(error.code(), Code::ArgumentsTooLarge);
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
    assert_eq!(setup.engine.list(&SandboxQuery::default()).await.unwrap().items, []);
}

#[tokio::test]
async fn many_callers_at_once() {
    let setup = Setup::new().await;
    let one = |engine: Engine| async move {
        let session =
            engine.session(SessionRequest::Ephemeral(CreateRequest::default())).await.unwrap();
        let process = engine.exec(&session.sandbox.id, exec(&["echo", "x"])).await.unwrap();
        let completed = process.wait().await.unwrap();
        session.end().await.unwrap();
        completed.stdout.data
    };
    let tasks: Vec<_> = (0..50).map(|_| tokio::spawn(one(setup.engine.clone()))).collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), b"x");
    }
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
    assert_eq!(setup.engine.leaks(false).await.unwrap().found, []);
}

#[tokio::test]
async fn leaks_are_found_and_removed() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let orphan = "zzzzabcdefghij";
    std::fs::create_dir(setup.directory.path().join("objects").join(orphan)).unwrap();
    std::fs::create_dir(setup.state().join("processes/pabcdefghij")).unwrap();
    std::fs::write(setup.state().join("trash/x"), "").unwrap();

    let report = setup.engine.leaks(false).await.unwrap();
    let mut kinds: Vec<_> = report.found.iter().map(|orphan| orphan.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["directory", "log", "trash"]);
    assert!(report.removed.is_empty());
    let fixed = setup.engine.leaks(true).await.unwrap();
    assert_eq!(fixed.removed, fixed.found);
    assert_eq!(setup.engine.leaks(false).await.unwrap().found, []);
    assert_eq!(setup.backend.objects(), [id.as_str()]);
    let completed = setup.run(&id, &["true"]).await;
    assert!(completed.exit.success());
}

#[tokio::test]
async fn files_go_in_and_out() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let path = std::path::Path::new("/output/a");
    let content: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let begun = SystemTime::now();
    setup.engine.write_file(&id, path, &content).await.unwrap();
    let size = content.len() as u64;
    assert_eq!(setup.engine.read_file(&id, path, size).await.unwrap(), content);
    let error = setup.engine.read_file(&id, path, size - 1).await.unwrap_err();
    assert_eq!(error.code(), Code::FileFailed);
    let missing = std::path::Path::new("/missing");
    let error = setup.engine.read_file(&id, missing, 10).await.unwrap_err();
    assert_eq!(error.code(), Code::FileNotFound);
    let full = std::path::Path::new("/full");
    let error = setup.engine.write_file(&id, full, &content).await.unwrap_err();
    assert_eq!(error.code(), Code::DiskFull);
    let empty = setup.engine.read_file(&id, std::path::Path::new(""), 10).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
    let artifacts = setup.engine.artifacts(&id, begun).await.unwrap();
    assert_eq!(artifacts.len(), 1);
    assert_eq!((artifacts[0].path.as_path(), artifacts[0].bytes), (path, size));
}

#[tokio::test]
async fn shell_lines_are_commands_too() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let request = belljar_engine::ExecRequest::new(Program::Shell("echo line".into()));
    let completed = setup.engine.exec(&id, request).await.unwrap().wait().await.unwrap();
    assert_eq!(completed.stdout.data, b"line");
}
