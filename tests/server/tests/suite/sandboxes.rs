//! Sandboxes over the wire: paused, extended, labelled, listed, watched, bounded.

use std::collections::{BTreeMap, BTreeSet};

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_server_tests::{Host, code, create, create_with, destroy, exec, refused, shell, start};

use crate::keys::tenant_key;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sandbox_stands_still_and_goes_on() {
    let Some(host) = Host::serving("pause") else { return };
    let client = host.client().await;
    let sandbox = create(&client).await;
    let line = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";
    let process = start(&client, &sandbox, shell(line)).await.process_id;
    let mut sandboxes = client.sandboxes.clone();
    let pause = || v1::PauseSandboxRequest { sandbox: sandbox.clone() };
    let paused = sandboxes.pause_sandbox(pause()).await.unwrap().into_inner();
    assert_eq!(paused.state(), v1::SandboxState::Paused);
    // Again is fine.
    sandboxes.pause_sandbox(pause()).await.unwrap();
    let length = async || {
        let log = belljar_server_tests::read_log(&client, &process, false).await.unwrap();
        log.stdout.len()
    };
    // What was under way arrives; after that nothing moves.
    let mut before = length().await;
    let still = belljar_server_tests::settled(async || {
        let now = length().await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        if length().await == now { Ok(now) } else { Err("it goes on") }
    });
    before = before.max(still.await.unwrap());
    let request = v1::ExecRequest {
        sandbox: sandbox.clone(),
        command: Some(shell("true")),
        ..v1::ExecRequest::default()
    };
    assert_eq!(refused(client.processes.clone().exec(request).await), Code::SandboxNotReady);
    // Also across servers.
    host.kill();
    host.serve(&[], &[]);
    let client = host.client().await;
    let request = v1::ResumeSandboxRequest { sandbox: sandbox.clone() };
    let resumed = client.sandboxes.clone().resume_sandbox(request).await.unwrap().into_inner();
    assert_eq!(resumed.state(), v1::SandboxState::Ready);
    let moves = belljar_server_tests::settled(async || {
        let log = belljar_server_tests::read_log(&client, &process, false).await.unwrap();
        (log.stdout.len() > before).then_some(()).ok_or(log.stdout.len())
    });
    moves.await.unwrap();
    assert_eq!(exec(&client, &sandbox, "true").await.exit_code, 0);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_and_can_be_extended() {
    let Some(host) = Host::serving("lease") else { return };
    let client = host.client().await;
    let brief = |seconds| v1::CreateSandboxRequest {
        lease_secs: Some(seconds),
        ..v1::CreateSandboxRequest::default()
    };
    let (kept, ends) = (
        create_with(&client, brief(3.0)).await.sandbox_id,
        create_with(&client, brief(3.0)).await.sandbox_id,
    );
    let request = v1::ExtendSandboxRequest {
        sandbox: kept.clone(),
        lease_secs: Some(600.0),
        idle_timeout_secs: None,
    };
    let extended = client.sandboxes.clone().extend_sandbox(request).await.unwrap().into_inner();
    assert!((extended.lease_secs - 600.0).abs() < 1.0 || extended.lease_secs > 600.0);
    let get = async |sandbox: &str| {
        let request = v1::GetSandboxRequest { sandbox: sandbox.to_owned() };
        client.sandboxes.clone().get_sandbox(request).await.unwrap().into_inner()
    };
    let state = async |sandbox: &str| get(sandbox).await.state();
    let ended = belljar_server_tests::settled(async || match state(&ends).await {
        v1::SandboxState::Destroyed => Ok(()),
        other => Err(other),
    });
    ended.await.unwrap();
    assert_eq!(get(&ends).await.failure.as_deref(), Some("its lease ended"));
    assert_eq!(state(&kept).await, v1::SandboxState::Ready);
    assert_eq!(exec(&client, &kept, "true").await.exit_code, 0);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_find_sandboxes_and_pages_miss_none() {
    let Some(host) = Host::serving("labels") else { return };
    let client = host.client().await;
    let mut made = Vec::new();
    for index in 0..7 {
        let colour = if index % 2 == 0 { "red" } else { "blue" };
        let labels = BTreeMap::from([("colour".to_owned(), colour.to_owned())]);
        let request = v1::CreateSandboxRequest {
            labels: labels.into_iter().collect(),
            ..v1::CreateSandboxRequest::default()
        };
        made.push(create_with(&client, request).await.sandbox_id);
    }
    let pages = async |labels: &[(&str, &str)], size: u32| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut request = v1::ListSandboxesRequest {
            labels: labels.collect(),
            page_size: Some(size),
            ..v1::ListSandboxesRequest::default()
        };
        let mut found = Vec::new();
        loop {
            let page = client.sandboxes.clone().list_sandboxes(request.clone()).await.unwrap();
            let page = page.into_inner();
            assert!(page.sandboxes.len() <= size as usize);
            found.extend(page.sandboxes.into_iter().map(|sandbox| sandbox.sandbox_id));
            match page.next_page_token {
                Some(token) => request.page_token = Some(token),
                None => return found,
            }
        }
    };
    assert_eq!(pages(&[], 2).await, made);
    assert_eq!(pages(&[], 100).await, made);
    let red: Vec<String> = made.iter().step_by(2).cloned().collect();
    assert_eq!(pages(&[("colour", "red")], 3).await, red);
    assert!(pages(&[("colour", "green")], 3).await.is_empty());
    assert!(pages(&[("colour", "red"), ("size", "x")], 3).await.is_empty());
    // A page after something went is still the rest of the same list.
    let request = v1::ListSandboxesRequest { page_size: Some(3), ..Default::default() };
    let first =
        client.sandboxes.clone().list_sandboxes(request.clone()).await.unwrap().into_inner();
    destroy(&client, &made[2]).await;
    let request = v1::ListSandboxesRequest {
        page_token: first.next_page_token,
        page_size: Some(100),
        ..request
    };
    let rest = client.sandboxes.clone().list_sandboxes(request).await.unwrap().into_inner();
    let rest: Vec<String> = rest.sandboxes.into_iter().map(|sandbox| sandbox.sandbox_id).collect();
    assert_eq!(rest, made[3..]);
    let wrong =
        v1::ListSandboxesRequest { page_token: Some("nonsense".to_owned()), ..Default::default() };
    let wrong = client.sandboxes.clone().list_sandboxes(wrong).await;
    assert_eq!(refused(wrong), Code::InvalidArgument);
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_gapless_across_servers() {
    let Some(host) = Host::serving("events") else { return };
    let client = host.client().await;
    let request = v1::WatchEventsRequest { since: Some(0), ..Default::default() };
    let mut live = client.sandboxes.clone().watch_events(request).await.unwrap().into_inner();
    let sandbox = create(&client).await;
    let process = start(&client, &sandbox, shell("exit 3")).await.process_id;
    belljar_server_tests::wait(&client, &process).await;
    // As it happens.
    let mut seen = Vec::new();
    while seen.iter().all(|event: &v1::Event| event.kind() != v1::EventKind::ProcessEnded) {
        let event = tokio::time::timeout(belljar_testkit::PROMPT, live.message()).await.unwrap();
        seen.push(event.unwrap().unwrap());
    }
    host.kill();
    host.serve(&[], &[]);
    let client = host.client().await;
    destroy(&client, &sandbox).await;
    let since = async |since: u64| {
        let request =
            v1::WatchEventsRequest { since: Some(since), once: true, ..Default::default() };
        let mut stream = client.sandboxes.clone().watch_events(request).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(event) = stream.message().await.unwrap() {
            events.push(event);
        }
        events
    };
    let all = since(0).await;
    assert_eq!(all[..seen.len()], seen);
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{all:?}");
    let kinds: Vec<v1::EventKind> = all.iter().map(v1::Event::kind).collect();
    let position = |kind| {
        kinds
            .iter()
            .position(|found| *found == kind)
            .unwrap_or_else(|| panic!("{kind:?} is missing: {kinds:?}"))
    };
    let order = [
        v1::EventKind::SandboxReady,
        v1::EventKind::ProcessStarted,
        v1::EventKind::ProcessEnded,
        v1::EventKind::SandboxDestroyed,
    ];
    assert!(order.map(position).is_sorted(), "{kinds:?}");
    let middle = all[all.len() / 2].seq;
    assert_eq!(since(middle).await, all[all.len() / 2 + 1..]);
    let ended = all.iter().find(|event| event.kind() == v1::EventKind::ProcessEnded).unwrap();
    assert_eq!(ended.detail.get("exit_code").map(String::as_str), Some("3"), "{ended:?}");
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_under_many_requests_at_once() {
    let Some(host) = Host::serving("quota") else { return };
    let admin = host.client().await;
    let key = tenant_key(&admin, "small").await;
    let quotas = v1::Quotas { sandboxes: Some(2), ..v1::Quotas::default() };
    let request = v1::SetQuotasRequest { tenant: "small".to_owned(), quotas: Some(quotas) };
    admin.system.clone().set_quotas(request).await.unwrap();
    let client = host.client_with(Some(&key)).await;
    let mut asked = Vec::new();
    for _ in 0..8 {
        let mut sandboxes = client.sandboxes.clone();
        asked.push(tokio::spawn(async move {
            sandboxes.create_sandbox(v1::CreateSandboxRequest::default()).await
        }));
    }
    let (mut made, mut refusals) = (BTreeSet::new(), 0);
    for answer in asked {
        match answer.await.unwrap() {
            Ok(sandbox) => {
                made.insert(sandbox.into_inner().sandbox_id);
            }
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::ResourceExhausted);
                assert_eq!(code(status), Code::QuotaExceeded);
                refusals += 1;
            }
        }
    }
    assert_eq!((made.len(), refusals), (2, 6));
    // What goes makes room.
    destroy(&client, made.first().unwrap()).await;
    create(&client).await;
    host.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_twice_with_one_key_makes_one_sandbox() {
    let Some(host) = Host::serving("create_once") else { return };
    let client = host.client().await;
    let ask = async |client: Client, label: &'static str| {
        let request = v1::CreateSandboxRequest {
            idempotency_key: Some("one".to_owned()),
            labels: [("l".to_owned(), label.to_owned())].into(),
            ..v1::CreateSandboxRequest::default()
        };
        client.sandboxes.clone().create_sandbox(request).await
    };
    let mut asked = Vec::new();
    for _ in 0..6 {
        asked.push(tokio::spawn(ask(client.clone(), "a")));
    }
    let mut ids = BTreeSet::new();
    for answer in asked {
        ids.insert(answer.await.unwrap().unwrap().into_inner().sandbox_id);
    }
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(refused(ask(client.clone(), "b").await), Code::IdempotencyConflict);
    host.finish().await;
}
