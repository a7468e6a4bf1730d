//! What one caller sees of what another made: nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use belljar_codes::Code;
use belljar_engine::{
    CreateRequest, Offsets, Page, ProcessQuery, Sandbox, SandboxQuery, SandboxState, Scope,
    SessionRequest, TenantId,
};
use belljar_policy::SandboxName;
use support::{Setup, exec};

fn named(name: &str) -> CreateRequest {
    CreateRequest { name: Some(SandboxName::parse(name).unwrap()), ..CreateRequest::default() }
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn names(page: &Page<Sandbox>) -> Vec<&str> {
    page.items.iter().map(|sandbox| sandbox.name.as_deref().unwrap_or("-")).collect()
}

#[tokio::test]
async fn names_are_unique_per_tenant_and_looked_up_there() {
    let setup = Setup::new().await;
    let (one, two) = (setup.tenant("one").await, setup.tenant("two").await);
    let first = one.create(named("web")).await.unwrap();
    let second = two.create(named("web")).await.unwrap();
    assert_eq!(first.tenant.as_str(), "one");
    assert_eq!(one.create(named("web")).await.unwrap_err().code(), Code::SandboxExists);
    assert_eq!(one.inspect("web").await.unwrap().id, first.id);
    assert_eq!(two.inspect("web").await.unwrap().id, second.id);
    assert_eq!(setup.engine.inspect("web").await.unwrap_err().code(), Code::SandboxNotFound);
    assert_eq!(setup.engine.inspect(first.id.as_str()).await.unwrap().id, first.id);
    let session = two.session(SessionRequest::Named(named("web"))).await.unwrap();
    assert_eq!((session.created, &session.sandbox.id), (false, &second.id));
    two.destroy("web").await.unwrap();
    assert_eq!(one.inspect("web").await.unwrap().state, SandboxState::Ready);
}

#[tokio::test]
async fn another_tenants_things_do_not_exist() {
    let setup = Setup::new().await;
    let (one, two) = (setup.tenant("one").await, setup.tenant("two").await);
    let sandbox = one.create(named("web")).await.unwrap();
    let id = &sandbox.id;
    let process = one.exec(id, exec(&["echo", "secret"])).await.unwrap();
    let process_id = process.id().clone();
    process.wait().await.unwrap();
    let fresh = setup.second().await;
    let stranger = Scope::Sandbox { tenant: TenantId::parse("two").unwrap(), id: id.clone() };

    // With a connection at hand, in another process, and with the right id under the wrong tenant.
    for other in [two.clone(), fresh.scoped(two.scope().clone()), setup.engine.scoped(stranger)] {
        let path = Path::new("/output/a");
        let missing = [
            other.inspect(id.as_str()).await.unwrap_err(),
            other.inspect("web").await.unwrap_err(),
            other.destroy(id.as_str()).await.unwrap_err(),
            other.exec(id, exec(&["true"])).await.unwrap_err(),
            other.files(id).await.err().unwrap(),
            other.read_file(id, path, 1).await.unwrap_err(),
            other.write_file(id, path, b"x").await.unwrap_err(),
            other.artifacts(id, SystemTime::UNIX_EPOCH).await.unwrap_err(),
            other.diff(id.as_str()).await.unwrap_err(),
            other.apply(id.as_str()).await.unwrap_err(),
            other.discard(id.as_str()).await.unwrap_err(),
            other.session(SessionRequest::Existing(id.to_string())).await.unwrap_err(),
            other
                .processes(&ProcessQuery { sandbox: Some(id.to_string()), ..Default::default() })
                .await
                .unwrap_err(),
        ];
        for error in missing {
            assert_eq!(error.code(), Code::SandboxNotFound, "{error}");
        }
        for error in [
            other.process(&process_id).await.unwrap_err(),
            other.log(&process_id, Offsets::default()).await.err().unwrap(),
            other.attach(&process_id).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), Code::ProcessNotFound, "{error}");
        }
        assert_eq!(other.list(&SandboxQuery::default()).await.unwrap().items, []);
        assert_eq!(other.processes(&ProcessQuery::default()).await.unwrap().items, []);
    }

    for mine in [one, setup.engine.scoped(Scope::All)] {
        assert_eq!(mine.inspect(id.as_str()).await.unwrap().id, *id);
        assert_eq!(mine.process(&process_id).await.unwrap().id, process_id);
        assert_eq!(mine.list(&SandboxQuery::default()).await.unwrap().items.len(), 1);
        assert_eq!(mine.processes(&ProcessQuery::default()).await.unwrap().items.len(), 1);
        mine.write_file(id, Path::new("/output/a"), b"x").await.unwrap();
    }
}

#[tokio::test]
async fn a_caller_with_one_sandbox_has_that_one() {
    let setup = Setup::new().await;
    let one = setup.tenant("one").await;
    let (mine, other) =
        (one.create(named("mine")).await.unwrap(), one.create(named("other")).await.unwrap());
    let scope = Scope::Sandbox { tenant: TenantId::parse("one").unwrap(), id: mine.id.clone() };
    let caller = setup.engine.scoped(scope);
    assert_eq!(caller.inspect("mine").await.unwrap().id, mine.id);
    assert_eq!(caller.inspect("other").await.unwrap_err().code(), Code::SandboxNotFound);
    let error = caller.exec(&other.id, exec(&["true"])).await.unwrap_err();
    assert_eq!(error.code(), Code::SandboxNotFound);
    let process = caller.exec(&mine.id, exec(&["echo", "x"])).await.unwrap();
    assert_eq!(process.wait().await.unwrap().stdout.data, b"x");
    assert_eq!(names(&caller.list(&SandboxQuery::default()).await.unwrap()), ["mine"]);
    for error in [
        caller.create(named("third")).await.unwrap_err(),
        caller.session(SessionRequest::Named(named("mine"))).await.unwrap_err(),
        caller.session(SessionRequest::Ephemeral(CreateRequest::default())).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::PermissionDenied);
    }
    let session = caller.session(SessionRequest::Existing("mine".to_owned())).await.unwrap();
    assert_eq!(session.sandbox.id, mine.id);
}

#[tokio::test]
async fn automatic_sessions_are_not_shared_between_tenants() {
    let setup = Setup::new().await;
    let automatic = || SessionRequest::Automatic(CreateRequest::default());
    let first = setup.tenant("one").await.session(automatic()).await.unwrap();
    let second = setup.tenant("two").await.session(automatic()).await.unwrap();
    assert!(second.created && !second.overflow);
    assert_eq!(first.name, second.name);
    assert_ne!(first.sandbox.id, second.sandbox.id);
    let third = setup.tenant("two").await.session(automatic()).await.unwrap();
    assert!(third.overflow);
}

#[tokio::test]
async fn pages_neither_repeat_nor_lose_anything() {
    let setup = Setup::new().await;
    let mut all = Vec::new();
    for index in 0..7 {
        all.push(setup.engine.create(named(&format!("s{index}"))).await.unwrap());
    }
    let sandbox = all[0].id.clone();
    for _ in 0..5 {
        setup.run(&sandbox, &["true"]).await;
    }
    let mut query = SandboxQuery { limit: Some(3), ..SandboxQuery::default() };
    let mut seen = Vec::new();
    let mut pages = 0;
    loop {
        let page = setup.engine.list(&query).await.unwrap();
        pages += 1;
        seen.extend(page.items.into_iter().map(|sandbox| sandbox.id));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
        // What comes and goes between two pages does not move the others.
        setup.engine.destroy(all[pages - 1].id.as_str()).await.unwrap();
    }
    let mut expected: Vec<_> =
        all.iter().map(|sandbox| (sandbox.created_at, &sandbox.id)).collect();
    expected.sort();
    assert_eq!(pages, 3);
    assert_eq!(
        seen.iter().collect::<Vec<_>>(),
        expected.iter().map(|(_, id)| *id).collect::<Vec<_>>()
    );

    let whole = setup.engine.processes(&ProcessQuery::default()).await.unwrap();
    assert_eq!((whole.items.len(), whole.next), (5, None));
    let mut query =
        ProcessQuery { sandbox: Some(sandbox.to_string()), limit: Some(2), ..Default::default() };
    let mut seen = Vec::new();
    loop {
        let page = setup.engine.processes(&query).await.unwrap();
        seen.extend(page.items);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(seen, whole.items);
    query.after = Some("nonsense".to_owned());
    let error = setup.engine.processes(&query).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn filters_choose() {
    let setup = Setup::new().await;
    let create = async |name: &str, labels: &[(&str, &str)], metadata: &[(&str, &str)]| {
        let request =
            CreateRequest { labels: pairs(labels), metadata: pairs(metadata), ..named(name) };
        setup.engine.create(request).await.unwrap()
    };
    let first = create("web-1", &[("team", "a"), ("it's", "100%\"")], &[("note", "x\ny")]).await;
    create("web-2", &[("team", "b")], &[("note", "z")]).await;
    create("job", &[("team", "a")], &[]).await;
    assert_eq!(first.metadata, pairs(&[("note", "x\ny")]));
    let check = async |query: SandboxQuery, expected: &[&str]| {
        let page = setup.engine.list(&query).await.unwrap();
        assert_eq!(names(&page), expected, "{query:?}");
    };
    let labelled = |labels| SandboxQuery { labels: pairs(labels), ..SandboxQuery::default() };
    check(SandboxQuery::default(), &["web-1", "web-2", "job"]).await;
    check(labelled(&[("team", "a")]), &["web-1", "job"]).await;
    check(labelled(&[("team", "a"), ("it's", "100%\"")]), &["web-1"]).await;
    check(labelled(&[("team", "a"), ("it's", "100%")]), &[]).await;
    check(labelled(&[("Team", "a")]), &[]).await;
    let query = SandboxQuery { metadata: pairs(&[("note", "x\ny")]), ..SandboxQuery::default() };
    check(query, &["web-1"]).await;
    let prefix = |prefix: &str| SandboxQuery {
        name_prefix: Some(prefix.to_owned()),
        ..SandboxQuery::default()
    };
    check(prefix("web-"), &["web-1", "web-2"]).await;
    check(prefix("%"), &[]).await;
    check(prefix(""), &["web-1", "web-2", "job"]).await;
    setup.engine.destroy("web-2").await.unwrap();
    let states = |states: &[SandboxState]| SandboxQuery {
        states: states.to_vec(),
        ..SandboxQuery::default()
    };
    check(states(&[SandboxState::Destroyed]), &["web-2"]).await;
    check(states(&[SandboxState::Destroyed, SandboxState::Ready]), &["web-1", "web-2", "job"])
        .await;
    check(states(&[SandboxState::Paused]), &[]).await;
}

#[tokio::test]
async fn metadata_is_bounded() {
    let setup = Setup::new().await;
    let check = async |key: &str, value: &str, good: bool| {
        let request = CreateRequest { metadata: pairs(&[(key, value)]), ..Default::default() };
        assert_eq!(setup.engine.explain(&request).await.is_ok(), good, "{key:?}");
    };
    check("a", &"x".repeat(4096), true).await;
    check("a", &"x".repeat(4097), false).await;
    check("", "x", false).await;
    check("a\n", "x", false).await;
}
