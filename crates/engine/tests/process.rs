//! Processes: output, input, ends, limits, coming back.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_codes::Code;
use belljar_engine::{
    Channel, Offsets, ProcessEvent, ProcessId, ProcessStatus, Reason, SandboxId, SandboxQuery,
    Stdin,
};
use support::{Setup, exec};

#[tokio::test]
async fn events_come_in_order() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut process = setup.engine.exec(&id, exec(&["warn", "careful"])).await.unwrap();
    assert_eq!(process.next().await, Some(ProcessEvent::Started { pid: 7 }));
    let data = b"careful".to_vec();
    assert_eq!(process.next().await, Some(ProcessEvent::Output { channel: Channel::Stderr, data }));
    let Some(ProcessEvent::Exited(exit)) = process.next().await else { panic!("an end") };
    assert_eq!((exit.code(), exit.reason), (3, Reason::Exited));
    assert_eq!(process.next().await, None);
    let info = setup.engine.process(process.id()).await.unwrap();
    assert_eq!((info.status, info.exit), (ProcessStatus::Failed, Some(exit)));
    assert_eq!(info.command, "warn careful");
}

#[tokio::test]
async fn a_program_that_cannot_start_says_why() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let check = async |words: &[&str], workdir: Option<&str>, expected: Code| {
        let mut request = exec(words);
        request.workdir = workdir.map(Into::into);
        let error = setup.engine.exec(&id, request).await.unwrap_err();
        assert_eq!(error.code(), expected);
    };
    check(&["missing"], None, Code::ProgramNotFound).await;
    check(&["denied"], None, Code::ProgramDenied).await;
    check(&["not-executable"], None, Code::ProgramNotExecutable).await;
    check(&["true"], Some("/nowhere"), Code::WorkingDirectoryInvalid).await;
    check(&["true", &"x".repeat(10 << 20)], None, Code::ArgumentsTooLarge).await;
    check(&["true", "a\0b"], None, Code::InvalidArgument).await;
    check(&[], None, Code::InvalidArgument).await;
    assert!(setup.run(&id, &["true"]).await.exit.success(), "the sandbox is still of use");
    assert_eq!(setup.engine.leaks(false).await.unwrap().found, []);
}

#[tokio::test]
async fn output_beyond_the_cap_is_marked_and_logged() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let size = 5 << 20;
    let mut request = exec(&["flood", &size.to_string()]);
    request.memory_cap = 1 << 20;
    let process = setup.engine.exec(&id, request).await.unwrap();
    let process_id = process.id().clone();
    let completed = process.wait().await.unwrap();
    assert!(completed.stdout.truncated);
    assert_eq!(completed.stdout.dropped, 4 << 20);
    assert_eq!(completed.exit.limits_hit, [Code::OutputTruncated]);
    let text = String::from_utf8(completed.stdout.data).unwrap();
    let marker =
        "\n[belljar: output truncated, 4194304 bytes dropped; full output in the process log]\n";
    assert!(text.contains(marker));
    assert_eq!(text.len(), (1 << 20) + marker.len());

    let mut log = setup.engine.log(&process_id, Offsets { stdout: 100, stderr: 0 }).await.unwrap();
    let mut logged = 0;
    while let Some(record) = log.next_record().unwrap() {
        assert_eq!(record.offset, 100 + logged);
        logged += record.data.len() as u64;
    }
    assert_eq!(logged, size - 100);
    let unacknowledged = &setup.backend.agent(&id).most_unacknowledged;
    assert!(unacknowledged.load(Ordering::Relaxed) <= 256 << 10);
}

#[tokio::test]
async fn a_slow_reader_holds_the_process_and_loses_nothing() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let size = 8u64 << 20;
    let mut process = setup.engine.exec(&id, exec(&["flood", &size.to_string()])).await.unwrap();
    // Nobody reads: what is under way is bounded, so the process comes no further than running.
    let running = async {
        while setup.engine.process(process.id()).await.unwrap().status != ProcessStatus::Running {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), running).await.unwrap();
    let mut received = 0;
    while let Some(event) = process.next().await {
        if let ProcessEvent::Output { data, .. } = event {
            received += data.len() as u64;
        }
    }
    assert_eq!(received, size);
}

#[tokio::test]
async fn nobody_listening_kills_nothing() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = setup.engine.exec(&id, exec(&["flood", "8388608"])).await.unwrap();
    let process_id = process.id().clone();
    drop(process);
    let ended = async {
        loop {
            let info = setup.engine.process(&process_id).await.unwrap();
            if info.status == ProcessStatus::Succeeded {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    let mut log = setup.engine.log(&process_id, Offsets::default()).await.unwrap();
    let mut logged = 0;
    while let Some(record) = log.next_record().unwrap() {
        logged += record.data.len();
    }
    assert_eq!(logged, 8 << 20);
}

#[tokio::test]
async fn input_flows_while_output_is_read() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut request = exec(&["cat"]);
    request.stdin = Stdin::Piped;
    request.memory_cap = 16 << 20;
    let process = setup.engine.exec(&id, request).await.unwrap();
    let control = process.control();
    let content: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    let writer = tokio::spawn({
        let content = content.clone();
        async move {
            for piece in content.chunks(100_000) {
                control.write_stdin(piece).await.unwrap();
            }
            control.close_stdin().await.unwrap();
            control.close_stdin().await.unwrap();
            control.write_stdin(b"late").await.unwrap_err().code()
        }
    });
    let completed = process.wait().await.unwrap();
    assert_eq!(completed.stdout.data, content);
    assert!(completed.exit.success());
    assert_eq!(writer.await.unwrap(), Code::InvalidArgument);
}

#[tokio::test]
async fn whoever_writes_to_a_process_without_input_is_told() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process = setup.engine.exec(&id, exec(&["hang"])).await.unwrap();
    let control = process.control();
    let refused = control.write_stdin(b"abc").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.to_string().contains("without standard input"), "{refused}");
    assert!(refused.remedy().unwrap().contains("--stdin"));
    // There is nothing to close, which is fine.
    control.close_stdin().await.unwrap();
    control.signal(9).await.unwrap();
    process.wait().await.unwrap();
}

#[tokio::test]
async fn whoever_writes_to_a_process_that_ended_is_told() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut request = exec(&["hang"]);
    request.stdin = Stdin::Piped;
    let process = setup.engine.exec(&id, request).await.unwrap();
    let control = process.control();
    // More than the window, to a process that never reads.
    let writer = tokio::spawn({
        let control = control.clone();
        async move {
            control.write_stdin(&vec![0; 256 << 10]).await?;
            control.write_stdin(&[0]).await
        }
    });
    control.signal(15).await.unwrap();
    let completed = process.wait().await.unwrap();
    assert_eq!(completed.exit.reason, Reason::Signalled);
    assert_eq!(completed.exit.code(), 143);
    assert_eq!(writer.await.unwrap().unwrap_err().code(), Code::ProcessEnded);
    assert_eq!(control.signal(15).await.unwrap_err().code(), Code::ProcessEnded);
}

#[tokio::test]
async fn ends_have_reasons() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    assert_eq!(setup.run(&id, &["exit", "42"]).await.exit.code(), 42);
    let oom = setup.run(&id, &["oom"]).await.exit;
    assert_eq!((oom.reason, oom.code(), &oom.limits_hit[..]), (Reason::Oom, 137, &[Code::Oom][..]));
    let forks = setup.run(&id, &["forks"]).await.exit;
    assert_eq!((forks.reason, &forks.limits_hit[..]), (Reason::Exited, &[Code::PidsExhausted][..]));
    assert_eq!(setup.run(&id, &["exit", "1"]).await.exit.limits_hit, [], "the past is past");

    let process = setup.engine.exec(&id, exec(&["hang"])).await.unwrap();
    process.cancel(Duration::from_secs(1)).await.unwrap();
    let process_id = process.id().clone();
    assert_eq!(process.wait().await.unwrap().exit.reason, Reason::Cancelled);
    let info = setup.engine.process(&process_id).await.unwrap();
    assert_eq!(info.status, ProcessStatus::Cancelled);

    let mut request = exec(&["hang"]);
    request.timeout = Some(Duration::from_millis(30));
    let exit = setup.engine.exec(&id, request).await.unwrap().wait().await.unwrap().exit;
    assert_eq!((exit.code(), exit.timed_out), (124, true));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_lets_a_timeout_pass_loses_its_sandbox() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut request = exec(&["stuck"]);
    request.timeout = Some(Duration::from_secs(1));
    let exit = setup.engine.exec(&id, request).await.unwrap().wait().await.unwrap().exit;
    assert_eq!((exit.code(), exit.timed_out, exit.reason), (124, true, Reason::TimedOut));
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
}

#[tokio::test]
async fn children_in_the_background_do_not_hold_the_end_back() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let completed = setup.run(&id, &["background"]).await;
    assert!(completed.exit.success());
}

#[tokio::test]
async fn a_broken_connection_is_made_anew_and_nothing_is_lost() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut request = exec(&["cut", "200000"]);
    request.memory_cap = 1 << 20;
    let completed = setup.engine.exec(&id, request).await.unwrap().wait().await.unwrap();
    let expected = [vec![b'a'; 200_000], vec![b'b'; 200_000]].concat();
    assert_eq!(completed.stdout.data.len(), expected.len());
    assert!(completed.stdout.data == expected);
    assert!(completed.exit.success());
}

#[tokio::test]
async fn another_attendant_goes_on_where_the_log_ends() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut request = exec(&["cat"]);
    request.stdin = Stdin::Piped;
    let mut process = setup.engine.exec(&id, request).await.unwrap();
    process.write_stdin(b"first").await.unwrap();
    process.next().await;
    let data = b"first".to_vec();
    assert_eq!(process.next().await, Some(ProcessEvent::Output { channel: Channel::Stdout, data }));
    let second = setup.second().await;
    let error = second.attach(process.id()).await.unwrap_err();
    assert_eq!(error.code(), Code::ConflictingOptions, "one attendant at a time");
    process.close_stdin().await.unwrap();
    let process_id = process.id().clone();
    process.wait().await.unwrap();
    let error = second.attach(&process_id).await.unwrap_err();
    assert_eq!(error.code(), Code::ProcessEnded);
}

/// Starts a command with an engine that is gone when this returns, as if its process had been killed.
fn start_and_die(setup: &Setup, id: &SandboxId, words: &'static [&'static str]) -> ProcessId {
    let (state, backend, id) = (setup.state(), setup.backend.clone(), id.clone());
    let doomed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = support::open(&state, &backend).await;
            let mut request = exec(words);
            request.stdin = Stdin::Piped;
            let mut process = engine.exec(&id, request).await.unwrap();
            process.write_stdin(b"first ").await.unwrap();
            process.next().await;
            if words[0] == "cat" {
                process.next().await;
            }
            process.id().clone()
        })
    });
    doomed.join().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_outlives_its_engine() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process_id = start_and_die(&setup, &id, &["cat"]);
    let process = setup.engine.attach(&process_id).await.unwrap();
    process.write_stdin(b"second").await.unwrap();
    process.close_stdin().await.unwrap();
    let completed = process.wait().await.unwrap();
    assert!(completed.exit.success());
    assert_eq!(completed.stdout.data, b"second");
    let mut log = setup.engine.log(&process_id, Offsets::default()).await.unwrap();
    let mut logged = Vec::new();
    while let Some(record) = log.next_record().unwrap() {
        logged.extend_from_slice(&record.data);
    }
    assert_eq!(logged, b"first second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_nobody_saw_is_recorded_later() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let process_id = start_and_die(&setup, &id, &["hang"]);
    setup.engine.list(&SandboxQuery::default()).await.unwrap();
    let info = setup.engine.process(&process_id).await.unwrap();
    assert_eq!(info.finished_at, None, "one that runs is left alone");
    setup.backend.agent(&id).kill_processes();
    let recorded = async {
        loop {
            setup.engine.list(&SandboxQuery::default()).await.unwrap();
            let info = setup.engine.process(&process_id).await.unwrap();
            if let Some(exit) = info.exit {
                return exit;
            }
        }
    };
    let exit = tokio::time::timeout(Duration::from_secs(30), recorded).await.unwrap();
    assert_eq!(exit.reason, Reason::Signalled);
}

#[tokio::test]
async fn without_a_log_nothing_is_kept() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let mut request = exec(&["flood", "3000000"]);
    request.keep_output = false;
    request.memory_cap = 1000;
    let process = setup.engine.exec(&id, request).await.unwrap();
    let completed = process.wait().await.unwrap();
    assert!(completed.stdout.truncated);
    assert!(!String::from_utf8_lossy(&completed.stdout.data).contains("process log"));
    let logs = std::fs::read_dir(setup.state().join("processes")).unwrap().count();
    assert_eq!(logs, 0);
}
