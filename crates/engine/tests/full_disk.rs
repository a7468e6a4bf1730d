//! A disk that is full where logs are written.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says why")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use belljar_engine::{Followed, Offsets, ProcessStatus};
use support::{Setup, exec};

/// A file system in memory over a directory, gone with this value.
struct Small(PathBuf);

impl Small {
    fn mount(directory: &Path, size: &str) -> Option<Self> {
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "belljar-test"])
            .arg(directory)
            .output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(directory.to_owned()))
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_process_waits_for_room_in_its_log_and_nothing_is_lost() {
    let setup = Setup::new().await;
    let Some(disk) = Small::mount(&setup.state().join("processes"), "1m") else {
        println!("SKIPPED: mounting a small file system needs root");
        return;
    };
    let id = setup.create().await;
    let size = 4u64 << 20;
    let request = exec(&["flood", &size.to_string()]);
    let process = setup.engine.start(id.as_str(), request).await.unwrap().process;
    let mut follower = setup.engine.follow(&process.id, Offsets::default()).await.unwrap();
    let mut bytes = 0;
    // It fills the disk and then waits: what is under way is the agent's window, and the process lives.
    while let Ok(followed) = tokio::time::timeout(Duration::from_secs(1), follower.next()).await {
        let Some(Followed::Output(record)) = followed.unwrap() else { panic!("it has ended") };
        assert_eq!(record.offset, bytes);
        bytes += record.data.len() as u64;
    }
    assert!(bytes < 1 << 20, "{bytes} bytes do not fit");
    let info = setup.engine.process(&process.id).await.unwrap();
    assert_eq!((info.status, info.log.stdout), (ProcessStatus::Running, bytes));
    // Others are as well off as before.
    assert!(setup.run(&id, &["true"]).await.exit.success());
    // Somebody who listens is handed what cannot be logged.
    let listened = setup.run(&id, &["flood", "300000"]).await;
    assert_eq!(listened.stdout.data.len(), 300_000);

    disk.resize("16m");
    let info = loop {
        match follower.next().await.unwrap().unwrap() {
            Followed::Output(record) => {
                assert_eq!(record.offset, bytes, "nothing is missing");
                bytes += record.data.len() as u64;
            }
            Followed::Ended(info) => break info,
        }
    };
    assert_eq!((bytes, info.status), (size, ProcessStatus::Succeeded));
    setup.engine.close().await;
}
