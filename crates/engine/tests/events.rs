//! Events: all of them, in order, to those who may know.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_engine::{CreateRequest, Event, EventKind, Events, SandboxState, Scope, TenantId};
use belljar_policy::SandboxName;
use support::{Setup, exec};

use EventKind::{
    ProcessEnded, ProcessStarted, SandboxCreated, SandboxDestroyed, SandboxFailed, SandboxReady,
};

fn named(name: &str) -> CreateRequest {
    CreateRequest { name: Some(SandboxName::parse(name).unwrap()), ..CreateRequest::default() }
}

async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(Duration::from_secs(30), events.next()).await.unwrap().unwrap()
}

async fn take(events: &mut Events, count: usize) -> Vec<Event> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(next(events).await);
    }
    taken
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn a_life_is_told_from_beginning_to_end() {
    let setup = Setup::new().await;
    let mut events = setup.engine.events(None);
    let sandbox = setup.engine.create(named("web")).await.unwrap();
    setup.run(&sandbox.id, &["echo", "hi"]).await;
    setup.run(&sandbox.id, &["warn", "careful"]).await;
    setup.engine.exec(&sandbox.id, exec(&["missing"])).await.unwrap_err();
    setup.engine.destroy("web").await.unwrap();
    let told = take(&mut events, 8).await;
    let expected = [
        SandboxCreated,
        SandboxReady,
        ProcessStarted,
        ProcessEnded,
        ProcessStarted,
        ProcessEnded,
        // What never ran has an end and no start.
        ProcessEnded,
        SandboxDestroyed,
    ];
    assert_eq!(kinds(&told), expected);
    let numbers: Vec<u64> = told.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    assert!(told.iter().all(|event| event.sandbox == sandbox.id));
    assert!(told.iter().all(|event| event.detail["name"] == "web"));
    let ended = &told[3];
    assert_eq!((&*ended.detail["status"], &*ended.detail["exit_code"]), ("succeeded", "0"));
    let ended = &told[5];
    assert_eq!((&*ended.detail["status"], &*ended.detail["exit_code"]), ("failed", "3"));
    assert_eq!(setup.engine.last_event().await.unwrap(), 8);

    // Anybody who comes later can hear it all again, or from the middle on.
    let second = setup.second().await;
    assert_eq!(take(&mut second.events(Some(0)), 8).await, told);
    assert_eq!(next(&mut second.events(Some(6))).await, told[6]);
}

#[tokio::test]
async fn what_goes_wrong_is_told_with_its_reason() {
    let setup = Setup::new().await;
    let mut events = setup.engine.events(None);
    setup.backend.fail_start.store(true, Ordering::Relaxed);
    setup.engine.create(named("web")).await.unwrap_err();
    setup.backend.fail_start.store(false, Ordering::Relaxed);
    let told = take(&mut events, 2).await;
    assert_eq!(kinds(&told), [SandboxCreated, SandboxFailed]);
    assert!(told[1].detail["reason"].starts_with("the sandbox could not be started"));

    let id = setup.create().await;
    let process = setup.engine.exec(&id, exec(&["hang"])).await.unwrap();
    setup.backend.kill_agent(&id);
    process.wait().await.unwrap();
    let inspected = setup.engine.inspect(id.as_str()).await.unwrap();
    assert_eq!(inspected.state, SandboxState::Destroyed);
    let told = take(&mut events, 5).await;
    let mut found = kinds(&told);
    found.sort_unstable();
    assert_eq!(
        found,
        [SandboxCreated, SandboxReady, SandboxDestroyed, ProcessStarted, ProcessEnded]
    );
    let destroyed = told.iter().find(|event| event.kind == SandboxDestroyed).unwrap();
    assert_eq!(destroyed.detail["reason"], "its agent is gone");
}

#[tokio::test]
async fn a_scope_hears_its_own() {
    let setup = Setup::new().await;
    let (one, two) = (setup.tenant("one").await, setup.tenant("two").await);
    let (mut first, mut second) = (one.events(None), two.events(None));
    let mine = one.create(named("web")).await.unwrap();
    let other = two.create(named("web")).await.unwrap();
    assert!(take(&mut first, 2).await.iter().all(|event| event.sandbox == mine.id));
    assert!(take(&mut second, 2).await.iter().all(|event| event.sandbox == other.id));
    let third = one.create(named("third")).await.unwrap();
    one.destroy(mine.id.as_str()).await.unwrap();
    let only = Scope::Sandbox { tenant: TenantId::parse("one").unwrap(), id: third.id.clone() };
    let told = take(&mut setup.engine.scoped(only).events(Some(0)), 2).await;
    assert!(told.iter().all(|event| event.sandbox == third.id));
    let told = take(&mut first, 3).await;
    assert_eq!(kinds(&told), [SandboxCreated, SandboxReady, SandboxDestroyed]);
}

#[tokio::test]
async fn a_listener_is_woken_and_can_give_up() {
    let setup = Setup::new().await;
    let mut events = setup.engine.events(None);
    for _ in 0..3 {
        // Polled and dropped: nothing is lost by it.
        tokio::select! {
            biased;
            event = events.next() => panic!("{event:?}"),
            () = std::future::ready(()) => {}
        }
    }
    let waiting = tokio::spawn(async move { next(&mut events).await });
    let id = setup.create().await;
    assert_eq!(waiting.await.unwrap().sandbox, id);
}

#[tokio::test]
async fn changes_by_another_process_are_heard() {
    let setup = Setup::new().await;
    let second = setup.second().await;
    let mut events = setup.engine.events(None);
    let waiting = tokio::spawn(async move { next(&mut events).await });
    tokio::task::yield_now().await;
    let sandbox = second.create(named("web")).await.unwrap();
    assert_eq!(waiting.await.unwrap().sandbox, sandbox.id);
}
