//! The store's promises, on a real file.

use std::sync::atomic::AtomicBool;

use belljar_policy::{SandboxId, TenantId};

use super::*;
use crate::Scope;
use crate::keys::{NewKey, Role};
use crate::query::ProcessQuery;
use crate::store::*;
use crate::tenants::Quotas;

fn store() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("belljar.db")).unwrap();
    (directory, store)
}

fn record(store: &SqliteStore, name: Option<&str>) -> SandboxRecord {
    SandboxRecord {
        id: random::sandbox_id(store.node()).unwrap(),
        tenant: TenantId::default(),
        name: name.map(str::to_owned),
        backend: "fake".to_owned(),
        state: State::Creating,
        owner: None,
        worker: None,
        created_at: 1,
        used_at: 2,
        idle_ms: Some(1_800_000),
        hard_ms: None,
        hard_from: 1,
        failure: None,
        details: Details { template: "host".to_owned(), ..Details::default() },
    }
}

fn process(sandbox: &SandboxId) -> ProcessRecord {
    ProcessRecord {
        id: random::process_id(),
        sandbox: sandbox.clone(),
        tenant: TenantId::default(),
        status: ProcessStatus::Starting,
        attendant: "me".to_owned(),
        command: "true".to_owned(),
        pid: None,
        timeout_ms: Some(60_000),
        started_at: now_ms(),
        finished_at: None,
        exit: None,
        details: ProcessDetails::default(),
    }
}

#[tokio::test]
async fn records_come_back_as_they_went_in() {
    let (_directory, store) = store();
    let record = record(&store, Some("web"));
    store.reserve(&record, None, None).await.unwrap();
    assert_eq!(store.sandbox(&record.id).await.unwrap().unwrap(), record);
    assert_eq!(store.sandbox_named(&TenantId::default(), "web").await.unwrap().unwrap(), record);
    assert!(record.id.as_str().starts_with(store.node()));

    let process = process(&record.id);
    store.add_process(&process, None).await.unwrap();
    assert_eq!(store.process(&process.id).await.unwrap().unwrap(), process);
    let query = ProcessQuery::default();
    let listing = Listing { scope: &Scope::All, query: &query, after: None, limit: 10 };
    let found = store.processes(Some(&record.id), &listing).await.unwrap();
    assert_eq!(found, std::slice::from_ref(&process));
    assert_eq!(store.processes(None, &listing).await.unwrap(), [process]);
}

#[tokio::test]
async fn a_name_belongs_to_one_live_sandbox() {
    let (_directory, store) = store();
    let first = record(&store, Some("web"));
    let second = record(&store, Some("web"));
    store.reserve(&first, None, None).await.unwrap();
    assert_eq!(store.reserve(&second, None, None).await.unwrap_err().code(), Code::SandboxExists);
    assert_eq!(store.sandbox(&second.id).await.unwrap(), None);

    let destroying = Some(State::Destroying);
    assert!(store.claim(&first.id, None, "me", &[Step::Stopping], destroying, None).await.unwrap());
    store.reserve(&second, None, None).await.unwrap();
    assert_eq!(
        store.sandbox_named(&TenantId::default(), "web").await.unwrap().unwrap().id,
        second.id
    );
}

#[tokio::test]
async fn the_end_of_a_sandbox_ends_what_belongs_to_it() {
    let (_directory, store) = store();
    let record = record(&store, Some("web"));
    store.reserve(&record, None, None).await.unwrap();
    store.journal(&record.id, Step::Applying).await.unwrap();
    let steps = store.steps(&record.id).await.unwrap();
    assert_eq!(steps, ["reserved", "starting", "configuring", "applying"]);
    store.mark_ensured(&record.id, "abc").await.unwrap();
    assert!(store.is_ensured(&record.id, "abc").await.unwrap());
    let process = process(&record.id);
    store.add_process(&process, None).await.unwrap();

    store.end(&record.id, &End::Failed("no luck".to_owned())).await.unwrap();
    let ended = store.sandbox(&record.id).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.failure.as_deref()), (State::Failed, Some("no luck")));
    assert_eq!(store.sandbox_named(&TenantId::default(), "web").await.unwrap(), None);
    assert_eq!(store.steps(&record.id).await.unwrap(), Vec::<String>::new());
    assert!(!store.is_ensured(&record.id, "abc").await.unwrap());
    let lost = store.process(&process.id).await.unwrap().unwrap();
    assert_eq!(lost.status, ProcessStatus::Lost);
    assert_eq!(store.sandboxes(Which::Live).await.unwrap(), []);
}

#[tokio::test]
async fn a_process_is_added_only_where_it_could_run() {
    let (_directory, store) = store();
    let record = record(&store, None);
    let add = async || {
        let process = process(&record.id);
        let added = store.add_process(&process, None).await;
        let known = store.process(&process.id).await.unwrap().is_some();
        assert_eq!(added.is_ok(), known);
        added.map(drop).map_err(|error| error.code())
    };
    assert_eq!(add().await, Err(Code::SandboxGone));
    store.reserve(&record, None, None).await.unwrap();
    assert_eq!(add().await, Ok(()));
    store.ready(&record.id, &record.details).await.unwrap();
    assert_eq!(add().await, Ok(()));
    store.paused(&record.id).await.unwrap();
    assert_eq!(add().await, Err(Code::SandboxNotReady));
    store.end(&record.id, &End::Destroyed(None)).await.unwrap();
    assert_eq!(add().await, Err(Code::SandboxGone));
}

#[tokio::test]
async fn an_end_is_recorded_once() {
    let (_directory, store) = store();
    let record = record(&store, None);
    store.reserve(&record, None, None).await.unwrap();
    let process = process(&record.id);
    store.add_process(&process, None).await.unwrap();
    store.process_started(&process.id, 7).await.unwrap();
    store.process_ended(&process.id, ProcessStatus::Succeeded, None).await.unwrap();
    store.process_ended(&process.id, ProcessStatus::Lost, None).await.unwrap();
    let found = store.process(&process.id).await.unwrap().unwrap();
    assert_eq!((found.status, found.pid), (ProcessStatus::Succeeded, Some(7)));
    assert_eq!(store.unfinished_processes().await.unwrap(), []);
}

#[tokio::test]
async fn which_finds_its_kind() {
    let (_directory, store) = store();
    let mut creating = record(&store, None);
    creating.owner = Some("me".to_owned());
    let ready = record(&store, None);
    store.reserve(&creating, None, None).await.unwrap();
    store.reserve(&ready, None, None).await.unwrap();
    store.ready(&ready.id, &ready.details).await.unwrap();
    let ids = |which| {
        let store = &store;
        async move {
            let mut ids: Vec<_> =
                store.sandboxes(which).await.unwrap().into_iter().map(|r| r.id).collect();
            ids.sort();
            ids
        }
    };
    let mut both = vec![creating.id.clone(), ready.id.clone()];
    both.sort();
    assert_eq!(ids(Which::Live).await, both);
    assert_eq!(ids(Which::Unfinished).await, [creating.id.clone()]);
    assert_eq!(ids(Which::Ephemeral).await, [creating.id]);
}

#[tokio::test]
async fn old_records_are_forgotten() {
    let (_directory, store) = store();
    let ended = record(&store, None);
    let live = record(&store, None);
    let process = process(&ended.id);
    store.reserve(&ended, None, None).await.unwrap();
    store.reserve(&live, None, None).await.unwrap();
    store.add_process(&process, None).await.unwrap();
    let opening = async |id: &str, sandbox: &SandboxId| {
        let key = NewKey { role: Role::Sandbox(sandbox.clone()), ..admin_key() };
        store.add_key(id, &key, &[0; 32], false).await.unwrap();
    };
    opening("ended", &ended.id).await;
    opening("live", &live.id).await;
    let keys =
        async || -> Vec<_> { store.keys().await.unwrap().into_iter().map(|key| key.id).collect() };
    store.end(&ended.id, &End::Destroyed(None)).await.unwrap();
    assert_eq!(store.prune(0).await.unwrap(), []);
    assert_eq!(keys().await, ["ended", "live"]);
    assert_eq!(store.prune(now_ms() + 1).await.unwrap(), [process.id]);
    assert_eq!(keys().await, ["live"], "what it opened is forgotten");
    assert_eq!(store.sandbox(&ended.id).await.unwrap(), None);
    assert!(store.sandbox(&live.id).await.unwrap().is_some());
}

fn admin_key() -> NewKey {
    NewKey {
        name: String::new(),
        tenant: TenantId::default(),
        role: Role::Admin,
        scopes: Vec::new(),
        expires_at: None,
    }
}

#[tokio::test]
async fn that_there_were_keys_is_not_forgotten() {
    let (_directory, store) = store();
    let known = async || (store.any_key_opens().await.unwrap(), store.had_keys().await.unwrap());
    assert_eq!(known().await, (false, false));
    store.add_key("k", &admin_key(), &[0; 32], false).await.unwrap();
    assert_eq!(known().await, (true, true));
    store.revoke_key("k").await.unwrap();
    store.prune(now_ms() + 1).await.unwrap();
    assert!(store.keys().await.unwrap().is_empty());
    assert_eq!(known().await, (false, true));
}

#[tokio::test]
async fn turns_are_shared_between_processes() {
    let (directory, first) = store();
    let second = SqliteStore::open(&directory.path().join("belljar.db")).unwrap();
    assert_eq!(first.node(), second.node());
    assert!(first.claim_turn("sweep", 60_000).await.unwrap());
    assert!(!second.claim_turn("sweep", 60_000).await.unwrap());
    assert!(second.claim_turn("sweep", 0).await.unwrap());
}

#[tokio::test]
async fn a_database_that_is_none_is_an_error_with_a_code() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("belljar.db");
    std::fs::write(&path, "this is not a database, not even nearly one".repeat(100)).unwrap();
    let error = SqliteStore::open(&path).err().unwrap();
    assert_eq!(error.code(), Code::StateFailed);
}

#[tokio::test]
async fn the_last_event_is_never_forgotten() {
    let (_directory, store) = store();
    let record = record(&store, None);
    store.reserve(&record, None, None).await.unwrap();
    store.ready(&record.id, &record.details).await.unwrap();
    store.end(&record.id, &End::Destroyed(None)).await.unwrap();
    assert_eq!(store.last_event().unwrap(), 3);
    store.prune(now_ms() + 1).await.unwrap();
    let kept = store.events(&Scope::All, 0, 10).await.unwrap();
    assert_eq!(kept.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [3]);
    assert_eq!(store.last_event().unwrap(), 3);
}

#[tokio::test]
async fn events_say_how_far_they_reach() {
    let (_directory, store) = store();
    let record = record(&store, None);
    store.reserve(&record, None, None).await.unwrap();
    store.ready(&record.id, &record.details).await.unwrap();
    let first = store.events(&Scope::All, 0, 1).await.unwrap();
    assert_eq!((first.events.len(), first.up_to), (1, 1));
    let rest = store.events(&Scope::All, first.up_to, 10).await.unwrap();
    assert_eq!((rest.events.len(), rest.up_to), (1, 2));
    let other = Scope::Tenant(TenantId::parse("other").unwrap());
    let none = store.events(&other, 0, 10).await.unwrap();
    assert_eq!((none.events.len(), none.up_to), (0, 2));
}

#[tokio::test]
async fn an_end_is_told_once() {
    let (_directory, store) = store();
    let record = record(&store, None);
    store.reserve(&record, None, None).await.unwrap();
    store.end(&record.id, &End::Destroyed(None)).await.unwrap();
    store.end(&record.id, &End::Failed("again".to_owned())).await.unwrap();
    assert_eq!(store.last_event().unwrap(), 2);
    assert_eq!(store.sandbox(&record.id).await.unwrap().unwrap().state, State::Destroyed);
}

/// Commits so many pages, more or less.
fn commit(store: &SqliteStore, pages: u32) {
    // Each time something else: the same once more would be no change.
    let value = random::token().repeat(205 * pages as usize);
    store.write(|change| set_meta(change, "filler", &value)).unwrap();
}

fn logged(store: &SqliteStore) -> u32 {
    store.logged.load(Ordering::Relaxed)
}

#[test]
fn a_long_log_begins_anew_although_others_commit() {
    let (_directory, store) = store();
    commit(&store, FOLD_PAGES + 1);
    assert!(logged(&store) > FOLD_PAGES);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                commit(&store, 1);
            }
        });
        runtime.block_on(store.write_log());
        let maintained = runtime.block_on(store.maintain());
        over.store(true, Ordering::Relaxed);
        maintained.unwrap();
    });
    commit(&store, 1);
    assert!(logged(&store) < FOLD_PAGES, "{}", logged(&store));
}

#[test]
fn a_log_that_nobody_folds_ends_somewhere() {
    let (_directory, store) = store();
    for _ in 0..6 {
        commit(&store, FOLD_PAGES);
    }
    assert!(logged(&store) <= FOLD_AT_ONCE_PAGES + FOLD_PAGES, "{}", logged(&store));
}

#[test]
fn what_another_program_has_left_in_the_log_is_seen() {
    let (directory, store) = store();
    commit(&store, FOLD_PAGES + 1);
    drop(store);
    let store = SqliteStore::open(&directory.path().join("belljar.db")).unwrap();
    assert!(logged(&store) > FOLD_PAGES);
}

#[test]
fn ended_processes_are_shown_beside_everybody_elses_work() {
    let (_directory, store) = store();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let exit = |log_end| ExitRecord {
        code: Some(0),
        signal: None,
        reason: "exited".to_owned(),
        limits_hit: Vec::new(),
        duration_us: 1,
        user_us: 1,
        system_us: 1,
        peak_rss_bytes: 1,
        read_bytes: 0,
        written_bytes: 0,
        log_end,
    };
    let sandbox = record(&store, None);
    let tenant = |name: &str| TenantId::parse(name).unwrap();
    let mut expected = Vec::new();
    runtime.block_on(async {
        for name in ["one", "two", "three"] {
            store.add_tenant(&tenant(name), &Quotas::default()).await.unwrap();
        }
        store.reserve(&sandbox, None, None).await.unwrap();
        for (at, name, finished, exit) in [
            (5, "one", true, Some(exit(Some((7, 0))))),
            (9, "two", true, Some(exit(Some((0, 7))))),
            (7, "one", true, Some(exit(None))),
            (8, "one", true, None),
            // Without output, running, and of somebody else.
            (6, "one", true, Some(exit(Some((0, 0))))),
            (4, "one", false, None),
            (3, "three", true, Some(exit(Some((7, 7))))),
        ] {
            let record = ProcessRecord {
                tenant: tenant(name),
                finished_at: finished.then_some(at),
                exit: exit.clone(),
                ..process(&sandbox.id)
            };
            let Claimed::New = store.add_process(&record, None).await.unwrap() else { panic!() };
            if finished && name != "three" && exit.is_none_or(|exit| exit.log_end != Some((0, 0))) {
                expected.push(Ended { process: record.id, tenant: record.tenant, at });
            }
        }
    });
    expected.sort_by_key(|ended| std::cmp::Reverse(ended.at));
    let (tell, told) = std::sync::mpsc::channel();
    let see = Box::new(move |ended| tell.send(ended).unwrap());
    // Whoever holds the connection keeps nobody from it.
    let held = store.lock();
    runtime.block_on(store.each_ended(vec![tenant("one"), tenant("two")], see)).unwrap();
    drop(held);
    assert_eq!(told.iter().collect::<Vec<_>>(), expected);
}
