//! A launcher's failure in words, with what to do about it.

use std::io;

use belljar_backend::Error;
use belljar_codes::Code;
use belljar_launcher::wire::Failure;
use rustix::io::Errno;

/// What a kernel lacks that cannot make a network for a sandbox.
pub(crate) const NFTABLES: &str = "the kernel needs nftables with address translation (modules nf_tables, nft_nat, nft_chain_nat, nft_ct)";
pub(crate) const VETH: &str = "the kernel needs the `veth` device";

/// What was being done when it failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", .path.as_ref().map(|path| format!(" `{path}`")).unwrap_or_default())]
struct Step {
    what: &'static str,
    path: Option<String>,
    #[source]
    cause: io::Error,
}

pub(crate) fn explain(failure: &Failure) -> Error {
    match failure.stage.as_str() {
        "runtime" => return runtime_failed(failure),
        "runtime-program" => {
            return Error::new(
                Code::NotEnforceable,
                "the runtime's program could be changed by somebody other than root, whose power it would have",
            )
            .with_remedy("install it so that it belongs to root and nobody else can write to it");
        }
        "runtime-layer" => {
            return Error::new(
                Code::NotEnforceable,
                "gVisor's kernel cannot be given another workspace while it runs",
            )
            .with_remedy("create a new sandbox, or use another runtime");
        }
        _ => {}
    }
    let path = failure.path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned());
    let cause = io::Error::from_raw_os_error(failure.errno);
    let (code, remedy) = classify(&failure.stage, Errno::from_io_error(&cause), path.as_deref());
    let step = Step { what: words(&failure.stage), path, cause };
    Error::new(code, "the sandbox could not be started").with_source(step).with_remedy(remedy)
}

/// The runtime ended, or said nothing: its own last words are the cause.
fn runtime_failed(failure: &Failure) -> Error {
    let words = failure.path.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    let hung = failure.errno == Errno::TIMEDOUT.raw_os_error();
    let cause = match last {
        Some(line) => line.trim().chars().filter(|c| !c.is_control()).take(400).collect(),
        None if hung => "it did not get as far as the agent in time".to_owned(),
        None => "it ended without a word".to_owned(),
    };
    Error::new(Code::StartFailed, "the runtime could not start the sandbox")
        .with_source(io::Error::other(cause))
        .with_remedy("`belljar probe` tells which runtimes work on this host")
}

fn classify(stage: &str, errno: Option<Errno>, path: Option<&str>) -> (Code, &'static str) {
    match (stage, errno) {
        (
            "clone" | "user-namespace-map" | "user-namespace",
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::USERS),
        ) => (
            Code::HostUnsupported,
            "user namespaces are not allowed here; `belljar doctor` names the setting to change",
        ),
        ("mount", Some(Errno::PERM)) if path == Some("proc") => (
            Code::HostUnsupported,
            "this host hides parts of /proc (a container?), so a fresh one cannot be mounted; run outside of it, or unmask /proc",
        ),
        ("gateway-filter", _) => (Code::HostUnsupported, NFTABLES),
        ("gateway-link", _) => (Code::HostUnsupported, VETH),
        ("mount-id-mapping", _) => (
            Code::MountSourceUnusable,
            "the file system of this directory has no id-mapped mounts; copy it to another, or run as an ordinary user",
        ),
        ("open-tree", Some(Errno::STALE)) => (
            Code::MountSourceUnusable,
            "the directory was replaced while the sandbox started; try again",
        ),
        ("attach", Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR)) => (
            Code::MountTargetInvalid,
            "the path is not a plain directory inside the template; choose another target",
        ),
        (
            _,
            Some(
                Errno::NOSPC
                | Errno::USERS
                | Errno::DQUOT
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::AGAIN,
            ),
        ) => {
            (Code::HostExhausted, "free some space, or destroy sandboxes that are no longer needed")
        }
        _ => (Code::StartFailed, "`belljar doctor` checks what this host can do"),
    }
}

/// Stages as people say them; a stage that is not here is its own word.
fn words(stage: &str) -> &'static str {
    match stage {
        "state-directory" | "sandbox-directory" => {
            "make the sandbox's files in the state directory"
        }
        "run-directory" => "find a place for the sandboxes' sockets",
        "agent-socket" => "make the agent's socket",
        "id-range" => "find a free range of user ids",
        "cgroup" | "cgroup-enter" | "cgroup-delegate" | "cgroup-remove" => "set up the cgroup",
        "disk-format" | "disk-create" | "loop-device" | "disk-mount" | "disk-map-ids" => {
            "make the disk"
        }
        "user-namespace" | "user-namespace-map" => "make the user namespace",
        "mount-id-mapping" | "map-ids" => "map user ids of the mount",
        "network-namespace" | "loopback-up" => "make the network namespace",
        "gateway-namespace" | "gateway-link" | "gateway-address" | "gateway-filter"
        | "gateway-door" | "gateway" => "make the network",
        "clone" => "make the namespaces",
        "clone-mount" | "open-tree" => "take the directory",
        "mount" | "mount-attributes" | "make-private" => "mount",
        "attach" => "mount at",
        "mkdir" | "make-file" | "open" | "chdir" | "rename" => "prepare the directory",
        "pivot-root" | "cover-root" | "detach" => "change the root",
        "join-namespace" | "mount-namespace" | "unshare" => "join the namespace",
        "become" | "capabilities" | "no-new-privileges" | "filesystem-ids" => "give up privileges",
        "exec" => "run the agent",
        "kill" => "end the processes",
        "find-sandbox" => "find the running sandbox",
        _ => "talk to the launcher",
    }
}
