//! Processes by their ids: started for nobody, followed by many, waited for, acted on.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::time::Duration;

use belljar_codes::Code;
use belljar_engine::{
    Channel, Engine, Followed, Follower, Offsets, ProcessId, ProcessInfo, ProcessStatus, Reason,
    Stdin,
};
use support::{Setup, exec};

/// Reads to the end; returns the bytes of standard output, checked for being contiguous.
async fn read_to_end(mut follower: Follower, from: u64) -> (Vec<u8>, ProcessInfo) {
    let mut bytes = Vec::new();
    loop {
        match follower.next().await.unwrap().unwrap() {
            Followed::Output(record) => {
                assert_eq!(record.channel, Channel::Stdout);
                assert_eq!(record.offset, from + bytes.len() as u64);
                bytes.extend_from_slice(&record.data);
            }
            Followed::Ended(info) => {
                assert_eq!(follower.next().await.unwrap(), None);
                return (bytes, info);
            }
        }
    }
}

async fn follow(engine: &Engine, id: &ProcessId) -> Follower {
    engine.follow(id, Offsets::default()).await.unwrap()
}

async fn start_cat(setup: &Setup) -> ProcessInfo {
    let sandbox = setup.create().await;
    let mut request = exec(&["cat"]);
    request.stdin = Stdin::Piped;
    let started = setup.engine.start(sandbox.as_str(), request).await.unwrap();
    assert!(started.created);
    assert_eq!((started.process.status, started.process.pid), (ProcessStatus::Running, Some(7)));
    started.process
}

#[tokio::test]
async fn the_first_byte_comes_while_the_process_waits_for_the_reader() {
    let setup = Setup::new().await;
    let process = start_cat(&setup).await;
    let mut follower = follow(&setup.engine, &process.id).await;
    let control = setup.engine.control(&process.id).await.unwrap();
    for round in 0..100u8 {
        control.write_stdin(&[round]).await.unwrap();
        let Some(Followed::Output(record)) = follower.next().await.unwrap() else { panic!() };
        assert_eq!((record.offset, &record.data[..]), (round.into(), &[round][..]));
        assert_eq!(setup.engine.process(&process.id).await.unwrap().log.stdout, record.offset + 1);
    }
    control.close_stdin().await.unwrap();
    let (rest, info) = read_to_end(follower, 100).await;
    assert_eq!((rest.len(), info.status), (0, ProcessStatus::Succeeded));
    assert_eq!(setup.engine.process(&process.id).await.unwrap(), info);
    assert_eq!(info.log, Offsets { stdout: 100, stderr: 0 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_followers_at_any_speed_read_the_same() {
    let setup = Setup::new().await;
    let sandbox = setup.create().await;
    let size = 5usize << 20;
    let request = exec(&["flood", &size.to_string()]);
    let process = setup.engine.start(sandbox.as_str(), request).await.unwrap().process;
    let mut followers = tokio::task::JoinSet::new();
    for index in 0..50u64 {
        let engine = setup.engine.clone();
        let id = process.id.clone();
        followers.spawn(async move {
            let from = index * 10_000;
            let offsets = Offsets { stdout: from, stderr: 0 };
            let follower = engine.follow(&id, offsets).await.unwrap();
            if index % 7 == 0 {
                // One that comes back when it is all over.
                engine.wait(&id, None).await.unwrap();
            }
            let (bytes, info) = read_to_end(follower, from).await;
            assert_eq!(bytes.len() as u64 + from, 5 << 20);
            assert_eq!(info.status, ProcessStatus::Succeeded);
        });
    }
    while let Some(result) = followers.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_follower_that_gives_up_waiting_loses_nothing() {
    let setup = Setup::new().await;
    let process = start_cat(&setup).await;
    let mut follower = follow(&setup.engine, &process.id).await;
    let control = setup.engine.control(&process.id).await.unwrap();
    let mut read = Vec::new();
    for round in 0..200u8 {
        control.write_stdin(&[round]).await.unwrap();
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            followed = follower.next() => {
                let Some(Followed::Output(record)) = followed.unwrap() else { panic!() };
                read.extend_from_slice(&record.data);
            }
        }
    }
    control.close_stdin().await.unwrap();
    let (rest, _) = read_to_end(follower, read.len() as u64).await;
    read.extend_from_slice(&rest);
    assert_eq!(read, (0..200).collect::<Vec<u8>>());
}

#[tokio::test]
async fn another_engine_follows_waits_and_acts_too() {
    let setup = Setup::new().await;
    let process = start_cat(&setup).await;
    let second = setup.second().await;
    let control = setup.engine.control(&process.id).await.unwrap();
    control.write_stdin(b"seen from afar").await.unwrap();
    let mut follower = follow(&second, &process.id).await;
    let Some(Followed::Output(record)) = follower.next().await.unwrap() else { panic!() };
    assert_eq!(&record.data[..], b"seen from afar");

    let afar = second.control(&process.id).await.unwrap();
    assert_eq!(afar.write_stdin(b"x").await.unwrap_err().code(), Code::ConflictingOptions);
    let timeout = Some(Duration::from_millis(1));
    let info = second.wait(&process.id, timeout).await.unwrap();
    assert_eq!(info.finished_at, None);
    afar.cancel(Duration::ZERO).await.unwrap();
    let info = second.wait(&process.id, None).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Cancelled);
    let (rest, ended) = read_to_end(follower, 14).await;
    assert_eq!((rest.len(), ended), (0, info));
    for engine in [&setup.engine, &second] {
        let error = engine.control(&process.id).await.unwrap_err();
        assert_eq!(error.code(), Code::ProcessEnded);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let setup = Setup::new().await;
    let id = ProcessId::new(7, &[7; 16]);
    let code = setup.engine.follow(&id, Offsets::default()).await.unwrap_err().code();
    assert_eq!(code, Code::ProcessNotFound);
    assert_eq!(setup.engine.wait(&id, None).await.unwrap_err().code(), Code::ProcessNotFound);
    assert_eq!(setup.engine.control(&id).await.unwrap_err().code(), Code::ProcessNotFound);
    let code = setup.engine.start("nobody", exec(&["true"])).await.unwrap_err().code();
    assert_eq!(code, Code::SandboxNotFound);
}

#[tokio::test]
async fn the_end_of_a_sandbox_ends_its_processes_for_everybody() {
    let setup = Setup::new().await;
    let process = start_cat(&setup).await;
    let follower = follow(&setup.engine, &process.id).await;
    setup.engine.destroy(process.sandbox.as_str()).await.unwrap();
    let (_, info) = read_to_end(follower, 0).await;
    assert_eq!(info.status, ProcessStatus::Lost);
    let info = setup.engine.wait(&process.id, None).await.unwrap();
    assert_eq!(info.exit.map(|exit| exit.reason).unwrap_or(Reason::Lost), Reason::Lost);
}
