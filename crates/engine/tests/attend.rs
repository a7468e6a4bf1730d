//! An engine that lives long looks after what others left.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::time::Duration;

use belljar_engine::{Engine, Followed, Offsets, ProcessId, ProcessStatus};
use support::{Setup, exec, open_attending, start_and_die};

async fn logged(engine: &Engine, id: &ProcessId) -> u64 {
    let mut log = engine.log(id, Offsets::default()).await.unwrap();
    let mut bytes = 0;
    while let Some(record) = log.next_record().unwrap() {
        assert_eq!(record.offset, bytes);
        bytes += record.data.len() as u64;
    }
    bytes
}

/// Looks at the record only, so that looking does not attend.
async fn until_ended(engine: &Engine, id: &ProcessId) -> ProcessStatus {
    let ended = async {
        loop {
            let info = engine.process(id).await.unwrap();
            if info.finished_at.is_some() {
                return info.status;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_takes_over_what_nobody_attends_to() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    // More than the agent keeps: it stands still until somebody takes its output.
    let flood = start_and_die(&setup, &id, &["flood", "3000000"]).await;
    let hang = start_and_die(&setup, &id, &["hang"]).await;
    assert_eq!(setup.engine.process(&flood).await.unwrap().finished_at, None);

    let engine = open_attending(&setup.state(), &setup.backend).await;
    assert_eq!(until_ended(&engine, &flood).await, ProcessStatus::Succeeded);
    assert_eq!(logged(&engine, &flood).await, 3_000_000);
    assert_eq!(engine.process(&hang).await.unwrap().finished_at, None, "it runs");
    setup.backend.agent(&id).kill_processes();
    assert_eq!(until_ended(&engine, &hang).await, ProcessStatus::Failed);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_nobody_saw_is_found_at_opening() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = start_and_die(&setup, &id, &["hang"]).await;
    setup.backend.agent(&id).kill_processes();
    let engine = open_attending(&setup.state(), &setup.backend).await;
    assert_eq!(until_ended(&engine, &process).await, ProcessStatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_later_is_found_within_a_turn() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let engine = open_attending(&setup.state(), &setup.backend).await;
    let process = start_and_die(&setup, &id, &["hang"]).await;
    setup.backend.agent(&id).kill_processes();
    assert_eq!(until_ended(&engine, &process).await, ProcessStatus::Failed);

    let process = start_and_die(&setup, &id, &["hang"]).await;
    setup.backend.kill_agent(&id);
    assert_eq!(until_ended(&engine, &process).await, ProcessStatus::Lost);
}

#[tokio::test]
async fn whoever_follows_a_process_that_nobody_attends_to_attends() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = start_and_die(&setup, &id, &["flood", "3000000"]).await;
    let mut follower = setup.engine.follow(&process, Offsets::default()).await.unwrap();
    let mut bytes = 0;
    while let Some(Followed::Output(record)) = follower.next().await.unwrap() {
        assert_eq!(record.offset, bytes);
        bytes += record.data.len() as u64;
    }
    assert_eq!(bytes, 3_000_000);

    let process = start_and_die(&setup, &id, &["cat"]).await;
    let control = setup.engine.control(&process).await.unwrap();
    control.write_stdin(b"hello").await.unwrap();
    control.close_stdin().await.unwrap();
    let info = setup.engine.wait(&process, None).await.unwrap();
    assert_eq!((info.status, info.log.stdout), (ProcessStatus::Succeeded, 5));
}

#[tokio::test]
async fn input_goes_on_where_an_earlier_attendant_left_it() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = start_and_die(&setup, &id, &["cat"]).await;
    let piece = vec![b'x'; 1 << 20];
    // The first goes by way of another engine, which is gone before the second is written.
    let (state, backend, given, data) =
        (setup.state(), setup.backend.clone(), process.clone(), piece.clone());
    let first = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = support::open(&state, &backend).await;
            engine.control(&given).await.unwrap().write_stdin(&data).await.unwrap();
        });
    });
    first.await.unwrap();
    let control = setup.engine.control(&process).await.unwrap();
    control.write_stdin(&piece).await.unwrap();
    control.close_stdin().await.unwrap();
    let info = setup.engine.wait(&process, None).await.unwrap();
    // The agent would have complained about more than its window.
    assert_eq!(info.status, ProcessStatus::Succeeded);
    assert!(info.log.stdout >= 1 << 20);
}

#[tokio::test]
async fn a_process_that_was_recorded_and_never_sent_is_lost() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = start_and_die(&setup, &id, &["hang"]).await;
    setup.backend.agent(&id).forget_processes();
    let engine = open_attending(&setup.state(), &setup.backend).await;
    assert_eq!(until_ended(&engine, &process).await, ProcessStatus::Lost);
    assert!(setup.run(&id, &["true"]).await.exit.success());
    let started = engine.start(id.as_str(), exec(&["true"])).await.unwrap();
    let info = engine.wait(&started.process.id, None).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Succeeded);
}
