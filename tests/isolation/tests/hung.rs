//! A process in uninterruptible sleep: not even SIGKILL ends it, and the sandbox must go all the same.
//!
//! The hang is a FUSE file system whose server takes a request and never answers. Only root can mount one where a
//! sandbox of another user may look, so this runs as root only.

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use belljar_testkit::{
    Installation, Mode, PROMPT, Refusal, Sandbox, Turn, run_in, skip, wait_until,
};

const TEST: &str = "hung::a_hung_process_does_not_keep_its_sandbox";
const START: &str = "hung::a_hung_start_holds_up_nobody_else";

#[test]
fn a_hung_process_does_not_keep_its_sandbox() {
    if !Path::new("/dev/fuse").exists() {
        return skip(TEST, "there is no /dev/fuse");
    }
    run_in(Mode::Root, TEST, Turn::shared, body);
}

/// The twin: outside a sandbox the same process really outlives SIGKILL, until its file system is gone.
#[test]
fn the_hang_is_real() {
    let test = "hung::the_hang_is_real";
    if let Some(reason) = Mode::Root.unavailable() {
        return skip(test, &reason);
    }
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "there is no /dev/fuse");
    }
    let belljar = Installation::new(Mode::Root);
    let hung = Hung::mount(&belljar.make_directory("hung"));
    let mut command = Command::new("cat");
    let mut child =
        command.arg(hung.path.join("stuck")).stderr(Stdio::null()).spawn().expect("cat");
    hung.wait_for_victim();
    child.kill().expect("our own child");
    let ended = wait_until(Duration::from_millis(500), || child.try_wait().expect("our own child"));
    assert_eq!(ended, None, "it was killed, so nothing hung");
    drop(hung);
    let ended = wait_until(PROMPT, || child.try_wait().expect("our own child"));
    assert!(ended.is_some(), "it still hangs");
}

fn body(belljar: &Installation) {
    let hung = Hung::mount(&belljar.make_directory("hung"));
    let mount = format!("{}:/hung:ro", hung.path.display());
    let created = belljar.try_create(&["--mount", &mount]);
    let Some(sandbox) = or_skip(TEST, created) else { return };
    sandbox.exec(["true"]).expect_success();

    let command = sandbox.start_with(&["--timeout", "1"], ["cat", "/hung/stuck"]);
    hung.wait_for_victim();
    let finished = command.finish();
    assert_eq!(finished.code(), 124, "{finished}");
    assert!(finished.time < Duration::from_secs(30), "the timeout took {:?}", finished.time);

    let destroyed = sandbox.destroy().expect_success();
    assert!(destroyed.time < Duration::from_secs(30), "destroying took {:?}", destroyed.time);
    // What the kernel could not end yet goes as soon as it can; the next command sees to that.
    drop(hung);
    belljar.run(["list"]).expect_success();
}

/// A program that hangs on its way into being one holds up nobody else.
#[test]
fn a_hung_start_holds_up_nobody_else() {
    if !Path::new("/dev/fuse").exists() {
        return skip(START, "there is no /dev/fuse");
    }
    run_in(Mode::Root, START, Turn::shared, start);
}

fn start(belljar: &Installation) {
    let hung = Hung::mount(&belljar.make_directory("hung"));
    // Nothing but the workspace is unusual about this sandbox.
    let workspace = format!("{}:ro", hung.path.display());
    let created = belljar.try_create_plain(&["--workspace", &workspace]);
    let Some(sandbox) = or_skip(START, created) else { return };
    for _ in 0..3 {
        sandbox.exec(["true"]).expect_success();
    }
    let starting = sandbox.start_with(&["--timeout", "5"], ["/workspace/stuck"]);
    hung.wait_for_victim();
    let beside = sandbox.exec_with(&["--workdir", "/tmp"], ["true"]).expect_success();
    assert!(beside.time < Duration::from_secs(4), "it waited {:?}", beside.time);
    let finished = starting.finish();
    assert_ne!(finished.code(), 0, "{finished}");
    assert!(finished.time < Duration::from_secs(30), "the timeout took {:?}", finished.time);
    sandbox.destroy().expect_success();
    drop(hung);
    belljar.run(["list"]).expect_success();
}

/// Kernels before 6.12 cannot map the ids of a FUSE mount.
fn or_skip<'i>(test: &str, created: Result<Sandbox<'i>, Refusal>) -> Option<Sandbox<'i>> {
    match created {
        Ok(sandbox) => Some(sandbox),
        Err(refusal) => {
            refusal.expect_code("mount-source-unusable");
            skip(test, "this kernel cannot show a FUSE mount to a sandbox");
            None
        }
    }
}

/// A mounted file system with one file, `stuck`, that can be found and never be read.
struct Hung {
    path: PathBuf,
    victim: Receiver<()>,
}

const FUSE_LOOKUP: u32 = 1;
const FUSE_FORGET: u32 = 2;
const FUSE_GETATTR: u32 = 3;
const FUSE_OPEN: u32 = 14;
const FUSE_STATFS: u32 = 17;
const FUSE_RELEASE: u32 = 18;
const FUSE_INIT: u32 = 26;
const FUSE_OPENDIR: u32 = 27;
const FUSE_RELEASEDIR: u32 = 29;
const FUSE_READ: u32 = 15;
const FUSE_INTERRUPT: u32 = 36;
const FUSE_BATCH_FORGET: u32 = 42;

const ROOT_NODE: u64 = 1;
const STUCK_NODE: u64 = 2;

impl Hung {
    fn mount(path: &Path) -> Self {
        let device =
            OpenOptions::new().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let data = format!(
            "fd={},rootmode=40555,user_id=0,group_id=0,allow_other,default_permissions",
            device.as_raw_fd()
        );
        let data = std::ffi::CString::new(data).expect("no NUL in it");
        let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("hung", path, "fuse", flags, data.as_c_str()).expect("root may mount");
        let (tell, victim) = channel();
        thread::spawn(move || serve(device, || tell.send(()).unwrap_or_default()));
        Self { path: path.to_path_buf(), victim }
    }

    /// Waits until a process waits for an answer that will not come.
    fn wait_for_victim(&self) {
        self.victim.recv_timeout(Duration::from_secs(60)).expect("the command reads the file");
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // Force aborts the connection: every waiting request is answered with an error.
        let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.path, flags);
    }
}

/// Answers everything but reads of the file.
fn serve(mut device: File, mut stuck: impl FnMut()) {
    let mut request = vec![0_u8; 256 * 1024];
    while let Ok(length) = device.read(&mut request) {
        let word =
            |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let (operation, unique) = (word(4), &request[8..16].to_vec());
        let node = u64::from(word(16));
        let answer = match operation {
            FUSE_INIT => Some(Ok(init(word(40), word(44)))),
            FUSE_GETATTR => Some(Ok(attributes_answer(node))),
            FUSE_LOOKUP if &request[40..length] == b"stuck\0" => Some(Ok(entry())),
            FUSE_LOOKUP => Some(Err(2)),
            FUSE_OPEN | FUSE_OPENDIR => Some(Ok(vec![0; 16])),
            FUSE_STATFS => Some(Ok(vec![0; 80])),
            FUSE_RELEASE | FUSE_RELEASEDIR => Some(Ok(Vec::new())),
            FUSE_READ => {
                stuck();
                None
            }
            FUSE_FORGET | FUSE_BATCH_FORGET | FUSE_INTERRUPT => None,
            _ => Some(Err(38)),
        };
        if let Some(answer) = answer {
            let (error, body) =
                answer.map_or_else(|error: i32| (-error, Vec::new()), |body| (0, body));
            let mut message = u32::try_from(16 + body.len()).expect("small").to_le_bytes().to_vec();
            message.extend(error.to_le_bytes());
            message.extend(unique);
            message.extend(body);
            let _ = device.write_all(&message);
        }
    }
}

/// `struct fuse_init_out`: the kernel's own version, and no features but id-mapped mounts.
fn init(major: u32, minor: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let (more_flags, allow_idmap) = (1_u32 << 30, 1_u32 << (40 - 32));
    for word in [major, minor, 64 * 1024, more_flags] {
        body.extend(word.to_le_bytes());
    }
    body.resize(64, 0);
    body[20..24].copy_from_slice(&4096_u32.to_le_bytes());
    body[32..36].copy_from_slice(&allow_idmap.to_le_bytes());
    body
}

/// `struct fuse_entry_out` for the file.
fn entry() -> Vec<u8> {
    let mut body = vec![0; 40];
    body[..8].copy_from_slice(&STUCK_NODE.to_le_bytes());
    body.extend(attributes(STUCK_NODE));
    body
}

/// `struct fuse_attr_out`.
fn attributes_answer(node: u64) -> Vec<u8> {
    let mut body = vec![0; 16];
    body.extend(attributes(node));
    body
}

/// `struct fuse_attr`: a directory or a file that everybody may read and run.
fn attributes(node: u64) -> Vec<u8> {
    let mode: u32 = if node == ROOT_NODE { 0o040_555 } else { 0o100_555 };
    let mut body = vec![0; 88];
    body[..8].copy_from_slice(&node.to_le_bytes());
    body[8..16].copy_from_slice(&4096_u64.to_le_bytes());
    body[60..64].copy_from_slice(&mode.to_le_bytes());
    body[64..68].copy_from_slice(&1_u32.to_le_bytes());
    body
}
