use belljar_policy::document::{Format, Layer};
use belljar_policy::{HostPattern, Programs};

use super::*;
use crate::WorkspaceRequest;

fn policy(text: &str) -> SandboxPolicy {
    let document = Document::parse(text, Format::Yaml).unwrap();
    SandboxPolicy::new(vec![Layer { origin: "test".to_owned(), document }]).unwrap()
}

fn narrowed(text: &str, mut request: CreateRequest) -> Result<CreateRequest> {
    narrow(&policy(text), &mut request).map(|()| request)
}

fn refused(text: &str, request: CreateRequest) -> String {
    let error = narrowed(text, request).unwrap_err();
    assert_eq!(error.code(), Code::PolicyDenied);
    error.to_string()
}

fn request() -> CreateRequest {
    CreateRequest::default()
}

#[test]
fn limits_become_the_sandboxes_own() {
    const TEXT: &str = "name: p
defaults: {max_cpu: 2, max_memory_mb: 1024, timeout_seconds: 30}
processes: {count: 64, lifetime_seconds: 600}
";
    let bare = narrowed(TEXT, request()).unwrap();
    assert_eq!(bare.limits.memory_bytes, Asked::by_caller(1 << 30));
    assert_eq!(bare.limits.cpu_millis, Asked::by_caller(2000));
    assert_eq!(bare.limits.pids, Asked::by_caller(64));
    assert_eq!(bare.hard_limit, Some(Duration::from_secs(600)));
    assert_eq!(bare.timeout, Some(Duration::from_secs(30)));

    let with = |set: fn(&mut CreateRequest)| {
        let mut request = request();
        set(&mut request);
        request
    };
    let less = with(|r| r.limits.memory_bytes = Asked::by_caller(64 << 20));
    assert_eq!(narrowed(TEXT, less).unwrap().limits.memory_bytes, Asked::by_caller(64 << 20));
    let check = |set: fn(&mut CreateRequest), expected: &str| {
        assert_eq!(refused(TEXT, with(set)), format!("{expected}"));
    };
    check(
        |r| r.limits.memory_bytes = Asked::by_caller(2 << 30),
        "memory 2 GiB is more than policy `p` grants: 1 GiB",
    );
    check(
        |r| r.limits.pids = Asked::by_caller(65),
        "processes 65 is more than policy `p` grants: 64",
    );
    check(
        |r| r.hard_limit = Some(Duration::from_secs(601)),
        &format!(
            "a lease of {} is more than policy `p` grants: {}",
            format_duration(Duration::from_secs(601)),
            format_duration(Duration::from_secs(600))
        ),
    );
    assert!(narrowed(TEXT, with(|r| r.limits.cpu_millis = Asked::by_caller(2001))).is_err());
    assert!(narrowed(TEXT, with(|r| r.timeout = Some(Duration::from_secs(31)))).is_err());
    assert!(narrowed(TEXT, with(|r| r.best_effort = true)).is_err());
}

#[test]
fn a_floor_is_never_lowered() {
    let floor = |text: &str, asked| {
        let request = CreateRequest { isolation_floor: asked, ..request() };
        narrowed(text, request).unwrap().isolation_floor
    };
    use IsolationClass::{Kernel, Namespace, Vm};
    assert_eq!(floor("name: x", None), None);
    assert_eq!(floor("isolation: kernel", None), Some(Kernel));
    assert_eq!(floor("isolation: kernel", Some(Namespace)), Some(Kernel));
    assert_eq!(floor("isolation: kernel", Some(Vm)), Some(Vm));
}

#[test]
fn directories_are_those_of_the_document() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let text = format!("filesystem: {{mounts: [{{source: {}, target: /data}}]}}\n", path.display());
    let mount = |access| MountSpec { source: path.clone(), target: "/elsewhere".into(), access };
    let with = |mounts| CreateRequest { mounts, ..request() };
    let targets = |request: CreateRequest| {
        let mounts = narrowed(&text, request).unwrap().mounts;
        mounts.into_iter().map(|mount| mount.target.display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(targets(request()), ["/data"]);
    assert_eq!(targets(with(vec![mount(Access::ReadOnly)])), ["/elsewhere", "/data"]);
    assert!(narrowed(&text, with(vec![mount(Access::ReadWrite)])).is_err());
    let outside =
        MountSpec { source: "/srv".into(), target: "/x".into(), access: Access::ReadOnly };
    let message = refused(&text, with(vec![outside]));
    assert!(message.starts_with("directory `/srv` (ro) is more than"), "{message}");
    let workspace = |mode| CreateRequest {
        workspace: Some(WorkspaceRequest { path: path.clone(), mode }),
        ..request()
    };
    assert!(narrowed(&text, workspace(WorkspaceMode::Overlay)).is_ok());
    assert!(narrowed(&text, workspace(WorkspaceMode::Bind)).is_err());
    assert!(narrowed("name: x", workspace(WorkspaceMode::Overlay)).is_err());
    let relative = narrowed("sandbox_mounts: {input_dir: data}", request()).unwrap_err();
    assert_eq!(relative.code(), Code::InvalidPolicy);
}

#[test]
fn what_stays_as_it_is_can_be_kept_so() {
    let text = |more: &str| format!("filesystem: {{read_only: [{more}]}}");
    assert!(narrowed(&text("/usr, /opt/tools"), request()).is_ok());
    for inside in ["/tmp", "/workspace/src", "/", "/home"] {
        let error = narrowed(&text(inside), request()).unwrap_err();
        assert_eq!(error.code(), Code::NotEnforceable, "{inside}");
    }
    let writable = CreateRequest { writable: true, ..request() };
    assert_eq!(narrowed(&text("/usr"), writable).unwrap_err().code(), Code::NotEnforceable);
    let mounted =
        "filesystem: {read_only: [/data], mounts: [{source: /srv, target: /data/a, access: rw}]}";
    assert_eq!(narrowed(mounted, request()).unwrap().mounts[0].access, Access::ReadOnly);
}

#[test]
fn the_root_and_programs() {
    let writable = || CreateRequest { writable: true, ..request() };
    assert!(narrowed("filesystem: {writable_root: false}", writable()).is_err());
    assert!(narrowed("filesystem: {writable_root: true}", request()).unwrap().writable);
    assert!(narrowed("name: x", writable()).unwrap().writable);
    let programs =
        |list: &str| CreateRequest { programs: Some(Programs::parse(list).unwrap()), ..request() };
    let text = "programs: [cat, python3]";
    let found = |request| narrowed(text, request).unwrap().programs.unwrap().to_string();
    assert_eq!(found(request()), "cat,python3");
    assert_eq!(found(programs("cat")), "cat");
    assert!(refused(text, programs("cat,sh")).starts_with("program `sh` is more than"));
}

#[test]
fn the_network_is_the_documents() {
    let asked = |mode, hosts: &[&str]| CreateRequest {
        network: NetworkPolicy {
            mode,
            allow: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
        },
        network_asked: true,
        ..request()
    };
    let listed = "network_allowlist: [pypi.org]";
    let mode = |text, request| narrowed(text, request).unwrap().network.mode;
    use NetworkMode::{Allowlist, Full, None};
    assert_eq!(mode("name: x", request()), None);
    assert_eq!(mode(listed, request()), Allowlist);
    assert_eq!(mode(listed, asked(None, &[])), None);
    assert_eq!(mode(listed, asked(Allowlist, &["pypi.org"])), Allowlist);
    assert!(refused(listed, asked(Full, &[])).starts_with("network `full` is more than"));
    assert!(refused(listed, asked(Allowlist, &["evil.net"])).starts_with("host `evil.net`"));
    assert!(narrowed("name: x", asked(Allowlist, &["pypi.org"])).is_err());
}

#[test]
fn environments_are_checked_by_name() {
    let environment = |entry: &str| CreateRequest {
        environment: Environment::parse([entry]).unwrap(),
        ..request()
    };
    let text = "environment: {set: {MODE: safe}, allow: [LANG]}";
    let found = narrowed(text, environment("LANG=C")).unwrap().environment;
    assert_eq!((found.get("MODE"), found.get("LANG")), (Some("safe"), Some("C")));
    let message = refused(text, environment("OTHER=1"));
    assert!(message.starts_with("environment variable `OTHER` is more than"), "{message}");
    assert!(narrowed(text, environment("MODE=other")).is_err());
    let open = "environment: {set: {MODE: safe}}";
    assert!(narrowed(open, environment("OTHER=1")).is_ok());
    assert!(narrowed(open, environment("MODE=other")).is_err());
    assert!(narrowed(open, environment("MODE=safe")).is_ok());
}

#[test]
fn commands_run_as_long_as_the_policy_says() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let policy = policy("defaults: {timeout_seconds: 100}");
    let check = |asked, by_caller, expected: Option<Option<Duration>>| {
        assert_eq!(narrow_timeout(&policy, asked, by_caller).ok(), expected);
    };
    check(seconds(60), false, Some(seconds(100)));
    check(seconds(60), true, Some(seconds(60)));
    check(seconds(101), true, None);
    check(None, true, Some(seconds(100)));
}

#[test]
fn recording_bounds_nothing() {
    let mut request = CreateRequest { writable: true, ..request() };
    request.limits.memory_bytes = Asked::by_caller(4 << 30);
    narrow(&SandboxPolicy::recording(), &mut request).unwrap();
    assert!(request.writable);
}
