//! The state directory's disk is full: said clearly, nothing breaks, and all goes on when there is room again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_api::v1;
use belljar_client::{Client, Failure};
use belljar_codes::Code;
use belljar_server_tests::{Host, create, exec, get, read_log, settled, shell, start, wait};

/// A small disk of its own in place of a directory, gone with this.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: PathBuf) -> Self {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m,mode=0700", "belljar-test"])
            .arg(&path)
            .status();
        assert!(mounted.unwrap().success(), "root mounts a small disk");
        Self(path)
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    fn fill(&self) {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(self.ballast()).unwrap();
        for size in [1 << 20, 4 << 10, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Fails unless a refusal says what is wrong and what to do.
#[track_caller]
fn is_clear(failure: &Failure) {
    let known = [Code::StateFailed, Code::HostExhausted, Code::DiskFull];
    assert!(known.contains(&failure.code), "{failure:?}");
    assert!(failure.remedy.as_ref().is_some_and(|remedy| !remedy.is_empty()), "{failure:?}");
}

async fn try_create(client: &Client) -> Result<String, Failure> {
    let request = v1::CreateSandboxRequest::default();
    let made = client.sandboxes.clone().create_sandbox(request).await?;
    Ok(made.into_inner().sandbox_id)
}

async fn try_start(client: &Client, sandbox: &str) -> Result<(), Failure> {
    let request = v1::StartProcessRequest {
        sandbox: sandbox.to_owned(),
        command: Some(shell("echo x")),
        idempotency_key: None,
    };
    client.processes.clone().start_process(request).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_survived() {
    let Some(host) = Host::empty("full_disk") else { return };
    let disk = Disk::mount(host.installation.state());
    host.serve(&[], &[]);
    let client = host.client().await;
    let sandbox = create(&client).await;
    exec(&client, &sandbox, "true").await;
    let line = "until [ -e /tmp/go ]; do sleep 0.05; done; seq 1 200000; exit 6";
    let writer = start(&client, &sandbox, shell(line)).await.process_id;

    disk.fill();
    // There may be room in what was allocated before; then it is used up.
    let failure = loop {
        match try_create(&client).await {
            Ok(_) => disk.fill(),
            Err(failure) => break failure,
        }
    };
    is_clear(&failure);
    for _ in 0..5 {
        is_clear(&try_create(&client).await.unwrap_err());
        if let Err(failure) = try_start(&client, &sandbox).await {
            is_clear(&failure);
        }
        disk.fill();
    }
    // What is there can be looked at, and runs on; output waits for room.
    let request = v1::GetSandboxRequest { sandbox: sandbox.clone() };
    let found = client.sandboxes.clone().get_sandbox(request).await.unwrap().into_inner();
    assert_eq!(found.state(), v1::SandboxState::Ready);
    let go = v1::WriteFileRequest {
        sandbox: sandbox.clone(),
        path: "/tmp/go".to_owned(),
        ..v1::WriteFileRequest::default()
    };
    let _ = client.files.clone().write_file(tokio_stream::iter([go])).await;
    assert!(get(&client, &writer).await.unwrap().finished_at.is_none());

    // The server dies, and the next one finds no room either.
    host.kill();
    match host.try_serve(&["--listen", "127.0.0.1:0"], &[], &[]) {
        Ok(()) => {
            let client = host.client().await;
            is_clear(&try_create(&client).await.unwrap_err());
            host.kill();
        }
        Err(words) => {
            let told = ["state-failed", "host-exhausted", "disk-full"];
            assert!(told.iter().any(|code| words.contains(code)), "{words}");
            assert!(words.contains("remedy"), "{words}");
        }
    }

    std::fs::remove_file(disk.ballast()).unwrap();
    host.serve(&[], &[]);
    let client = host.client().await;
    exec(&client, &sandbox, "touch /tmp/go").await;
    let ended = wait(&client, &writer).await;
    assert_eq!((ended.reason(), ended.exit_code), (v1::Reason::Exited, Some(6)), "{ended:?}");
    let log = read_log(&client, &writer, false).await.unwrap();
    let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    assert!(log.stdout == expected.as_bytes(), "{} bytes of {}", log.stdout.len(), expected.len());
    create(&client).await;
    let verified = host.installation.run(["audit", "verify"]);
    assert_eq!(verified.code(), 0, "{verified}");
    finish(host, disk).await;
}

async fn finish(host: Host, disk: Disk) {
    host.installation.destroy_all();
    let clean = settled(async || {
        let leaks = host.leaks().await;
        leaks.is_empty().then_some(()).ok_or(leaks)
    });
    clean.await.unwrap();
    assert_eq!(left_in(&disk.0.join("run/sandboxes")), 0);
    host.installation.stop_server();
    assert!(host.ends_within(belljar_testkit::PROMPT));
    drop(disk);
    host.installation.assert_nothing_left();
}

fn left_in(directory: &Path) -> usize {
    std::fs::read_dir(directory).into_iter().flatten().count()
}
