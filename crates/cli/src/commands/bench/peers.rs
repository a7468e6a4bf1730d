//! Other ways to run `true` behind a wall, for comparison. None is part of the product.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belljar_sys::child::{CloneOptions, Plan, Slot, Source, Step, Strings};

/// Directories that the host template shows, for a peer's root of the same shape.
pub(super) const SHOWN: &[&str] =
    &["usr", "opt", "etc/alternatives", "etc/ssl/certs", "etc/fonts", "etc/ld.so.conf.d"];
const LINKS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Runs `true` once.
pub(super) type Run = Box<dyn Fn() -> io::Result<()>>;

/// A peer that can be run here.
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) run: Run,
}

impl Peer {
    pub(super) fn measure(&self) -> io::Result<Duration> {
        let started = Instant::now();
        (self.run)()?;
        Ok(started.elapsed())
    }
}

/// Peers that work here, and why the others do not.
pub(super) fn all(scratch: &Path) -> (Vec<Peer>, Vec<String>) {
    let mut peers = Vec::new();
    let mut absent = Vec::new();
    let candidates: [(&'static str, io::Result<Run>); 4] = [
        ("raw clone", raw_clone(scratch)),
        ("bwrap", bubblewrap()),
        ("runc", runtime(scratch, "runc", &[])),
        ("runsc", runtime(scratch, "runsc", &["--network=none", "--ignore-cgroups"])),
    ];
    for (name, made) in candidates {
        let tried = made.and_then(|run| run().map(|()| run));
        match tried {
            Ok(run) => peers.push(Peer { name, run }),
            Err(error) => absent.push(format!("{name}: {error}")),
        }
    }
    (peers, absent)
}

/// A plain child on the host: what everything else is measured against when a command runs in a sandbox that exists.
pub(super) fn fork_and_exec(program: &OsStr) -> io::Result<Duration> {
    let started = Instant::now();
    success(
        Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()),
    )?;
    Ok(started.elapsed())
}

/// The floor: namespaces, a root, `/proc`, exec; nothing that limits or watches.
fn raw_clone(scratch: &Path) -> io::Result<Run> {
    let staging = scratch.join("raw");
    fs::create_dir_all(&staging)?;
    let staging = c_string(staging.as_os_str().as_encoded_bytes())?;
    let program = fs::File::open("/usr/bin/true")?;
    let namespaces = libc_namespaces();
    Ok(Box::new(move || {
        let mount = Slot(0);
        let root = Slot(1);
        let steps = vec![
            Step::MakePrivate,
            Step::OpenTree { from: Source::Path(c"/".to_owned()), recursive: false, to: mount },
            Step::AttachAt { slot: mount, path: staging.clone() },
            Step::Enter { path: staging.clone() },
            Step::OpenDirectory { path: c".".to_owned(), to: root },
            Step::NewFilesystem {
                kind: c"proc".to_owned(),
                options: Vec::new(),
                attributes: 0,
                to: mount,
            },
            Step::AttachAt { slot: mount, path: c"proc".to_owned() },
            Step::PivotRoot { slot: root },
            Step::Exec {
                descriptor: program.as_raw_fd(),
                arguments: Strings::new(vec![c"true".to_owned()]),
                environment: Strings::new(Vec::new()),
            },
        ];
        let options = CloneOptions { namespaces, ..CloneOptions::default() };
        let mut child = Plan { steps }.spawn(&options)?;
        let report = child.report()?;
        rustix::process::waitid(
            rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&child.pidfd)),
            rustix::process::WaitIdOptions::EXITED,
        )?;
        match report {
            None => Ok(()),
            Some(failed) => Err(io::Error::from_raw_os_error(failed.errno)),
        }
    }))
}

/// Mount, UTS, IPC, PID and network namespaces.
fn libc_namespaces() -> u64 {
    0x0002_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000
}

fn bubblewrap() -> io::Result<Run> {
    let mut arguments: Vec<OsString> = [
        "--unshare-all",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--hostname",
        "bench",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    .map(OsString::from)
    .to_vec();
    for name in SHOWN.iter().filter(|name| Path::new("/").join(name).exists()) {
        let path = format!("/{name}");
        arguments.extend(["--ro-bind".into(), path.clone().into(), path.into()]);
    }
    for (name, to) in links() {
        arguments.extend(["--symlink".into(), to.into_os_string(), format!("/{name}").into()]);
    }
    for path in ["/tmp", "/workspace", "/output", "/home/user"] {
        arguments.extend(["--tmpfs".into(), path.into()]);
    }
    arguments.extend(["--chdir".into(), "/workspace".into(), "true".into()]);
    Ok(Box::new(move || success(Command::new("bwrap").args(&arguments))))
}

fn runtime(
    scratch: &Path,
    name: &'static str,
    options: &'static [&'static str],
) -> io::Result<Run> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "needs root"));
    }
    let program = crate::backends::runtime_directories()
        .into_iter()
        .map(|directory| directory.join(name))
        .find(|path| path.exists())
        .ok_or(io::ErrorKind::NotFound)?;
    let bundle = scratch.join(name);
    let root = bundle.join("rootfs");
    for name in SHOWN.iter().chain(&["proc", "dev", "tmp", "workspace"]) {
        fs::create_dir_all(root.join(name))?;
    }
    for (name, to) in links() {
        let _ = std::os::unix::fs::symlink(to, root.join(name));
    }
    fs::write(bundle.join("config.json"), serde_json::to_vec(&bundle_configuration())?)?;
    let state = scratch.join(format!("{name}-state"));
    Ok(Box::new(move || {
        let name = format!("belljar-bench-{}", std::process::id());
        success(
            Command::new(&program)
                .arg("--root")
                .arg(&state)
                .args(options)
                .arg("run")
                .arg("--bundle")
                .arg(&bundle)
                .arg(name),
        )
    }))
}

fn bundle_configuration() -> serde_json::Value {
    let bind = |name: &&&str| {
        let path = format!("/{name}");
        serde_json::json!({"destination": path, "source": path, "type": "bind", "options": ["bind", "ro"]})
    };
    let mut mounts: Vec<serde_json::Value> = SHOWN
        .iter()
        .filter(|name| Path::new("/").join(name).exists())
        .map(|name| bind(&name))
        .collect();
    mounts.push(serde_json::json!({"destination": "/proc", "source": "proc", "type": "proc"}));
    mounts.push(serde_json::json!({"destination": "/dev", "source": "tmpfs", "type": "tmpfs", "options": ["mode=755"]}));
    mounts
        .push(serde_json::json!({"destination": "/workspace", "source": "tmpfs", "type": "tmpfs"}));
    let namespaces: Vec<_> = ["pid", "network", "ipc", "uts", "mount"]
        .iter()
        .map(|kind| serde_json::json!({"type": kind}))
        .collect();
    serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {"terminal": false, "user": {"uid": 0, "gid": 0}, "args": ["true"], "cwd": "/",
                    "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": true},
        "root": {"path": "rootfs", "readonly": true},
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
    })
}

fn links() -> impl Iterator<Item = (&'static str, PathBuf)> {
    LINKS.iter().filter_map(|name| Some((*name, fs::read_link(Path::new("/").join(name)).ok()?)))
}

pub(super) fn success(command: &mut Command) -> io::Result<()> {
    let output =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    // Some programs answer with the whole of what they were given.
    let line = text.lines().next().unwrap_or("failed").chars().take(200).collect::<String>();
    Err(io::Error::other(line))
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}
