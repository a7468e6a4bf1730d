//! File requests.

use belljar_protocol::v1::{
    Acknowledge, Cancel, Change, ChangeMode, Configure, Data, Done, Failure, Kind, List,
    MakeDirectory, MakeLink, Metadata, Move, ReadFile, Remove, Root, Stat, Watch, WriteFile,
    change::What, frame::Body, write_file::Mode,
};

use crate::host::{Agent, Host, WINDOW, configuration};

/// An agent whose working directory is its own.
fn agent() -> (Agent, Host) {
    let agent = Agent::start();
    let mut host = agent.connect();
    let configure = Configure {
        working_directory: agent.directory.to_str().unwrap().into(),
        ..configuration()
    };
    assert!(matches!(host.ask(Body::Configure(configure)), Body::Configured(_)));
    (agent, host)
}

fn read(path: &str) -> ReadFile {
    ReadFile { path: path.into(), ..ReadFile::default() }
}

fn write(path: &str, mode: Mode) -> WriteFile {
    WriteFile { path: path.into(), mode: mode.into(), ..WriteFile::default() }
}

impl Host {
    fn read_file(&mut self, request: ReadFile) -> Result<Vec<u8>, Failure> {
        let stream = self.request(Body::ReadFile(request));
        let mut content = Vec::new();
        let mut ended = false;
        loop {
            match self.receive_on(stream) {
                Body::Data(data) => {
                    assert!(!ended);
                    content.extend(data.data);
                    ended = data.end;
                    let offset = content.len() as u64;
                    self.send(stream, Body::Acknowledge(Acknowledge { channel: 0, offset }));
                }
                Body::Done(done) => {
                    assert!(ended);
                    assert_eq!(done.size, content.len() as u64);
                    return Ok(content);
                }
                Body::Failure(failure) => return Err(failure),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends at most a window ahead of what was acknowledged.
    fn write_file(&mut self, request: WriteFile, content: &[u8]) -> Result<u64, Failure> {
        let stream = self.request(Body::WriteFile(request));
        let (mut sent, mut acknowledged, mut ended) = (0, 0, false);
        loop {
            while !ended && sent - acknowledged < WINDOW as usize {
                let data = content[sent..content.len().min(sent + 50_000)].to_vec();
                sent += data.len();
                ended = sent == content.len();
                self.send(stream, Body::Data(Data { data, end: ended }));
            }
            match self.receive_on(stream) {
                Body::Acknowledge(acknowledge) => acknowledged = acknowledge.offset as usize,
                Body::Done(done) => return Ok(done.size),
                Body::Failure(failure) => return Err(failure),
                other => panic!("{other:?}"),
            }
        }
    }

    fn stat(&mut self, path: &str, follow: bool, root: Root) -> Result<Metadata, Failure> {
        match self.ask(Body::Stat(Stat { path: path.into(), follow, root: root.into() })) {
            Body::Metadata(metadata) => Ok(metadata),
            Body::Failure(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    fn list(&mut self, list: List) -> (Vec<String>, bool) {
        match self.ask(Body::List(list)) {
            Body::Entries(entries) => {
                let names = entries.entries.iter();
                (names.map(|e| String::from_utf8(e.path.clone()).unwrap()).collect(), entries.more)
            }
            other => panic!("{other:?}"),
        }
    }

    fn change(&mut self, body: Body) -> Result<(), String> {
        match self.ask(body) {
            Body::Done(_) => Ok(()),
            Body::Failure(failure) => Err(failure.code),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn contents_go_in_and_come_out() {
    let (agent, mut host) = agent();
    let content: Vec<u8> =
        (0..1_000_000u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
    let request =
        WriteFile { make_parents: true, permissions: 0o600, ..write("a/b/c", Mode::Truncate) };
    assert_eq!(host.write_file(request, &content), Ok(1_000_000));
    assert!(std::fs::read(agent.path("a/b/c")).unwrap() == content);
    assert!(host.read_file(read("a/b/c")).unwrap() == content);
    assert_eq!(host.stat("a/b/c", true, Root::Sandbox).unwrap().mode, 0o600);
    assert_eq!(host.stat("a/b", true, Root::Sandbox).unwrap().mode, 0o755);
    for (offset, length) in [(0, 1), (999_999, 5), (500_000, 300_000), (2_000_000, 0), (7, 0)] {
        let part = host.read_file(ReadFile { offset, length, ..read("a/b/c") }).unwrap();
        let rest = content.get(offset as usize..).unwrap_or_default();
        let length = if length == 0 { rest.len() } else { rest.len().min(length as usize) };
        assert!(part == rest[..length], "{offset} {length}");
    }
}

#[test]
fn each_way_of_writing() {
    let (agent, mut host) = agent();
    assert_eq!(host.write_file(write("f", Mode::CreateNew), b"one"), Ok(3));
    assert_eq!(host.write_file(write("f", Mode::CreateNew), b"two").unwrap_err().code, "exists");
    assert_eq!(host.write_file(write("f", Mode::Append), b"two"), Ok(6));
    assert_eq!(std::fs::read(agent.path("f")).unwrap(), b"onetwo");
    assert_eq!(host.write_file(write("f", Mode::Truncate), b""), Ok(0));
    assert_eq!(host.read_file(read("f")).unwrap(), b"");
    let failure = host.write_file(write("no/such/directory", Mode::Truncate), b"x").unwrap_err();
    assert_eq!((failure.code.as_str(), failure.stage.as_str()), ("not-found", "open"));
}

#[test]
fn relative_paths_start_in_the_working_directory_or_nowhere() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let gone = agent.path("gone");
    std::fs::create_dir(&gone).unwrap();
    std::fs::write(gone.join("here"), "x").unwrap();
    let working_directory = gone.to_str().unwrap().into();
    let configure = Configure { working_directory, ..configuration() };
    assert!(matches!(host.ask(Body::Configure(configure)), Body::Configured(_)));
    assert_eq!(host.read_file(read("here")).unwrap(), b"x");
    std::fs::remove_dir_all(&gone).unwrap();
    for path in ["etc/passwd", "here", ""] {
        let failure = host.read_file(read(path)).unwrap_err();
        assert_eq!(
            (failure.code.as_str(), failure.stage.as_str()),
            ("not-found", "chdir"),
            "{path}"
        );
    }
    assert!(host.read_file(read("/etc/passwd")).is_ok());
    let from = agent.path("elsewhere").to_str().unwrap().to_owned();
    std::fs::write(&from, "x").unwrap();
    let half = Move { from: from.into(), to: "tmp/nonesuch".into(), replace: false };
    assert_eq!(host.change(Body::Move(half)), Err("not-found".to_owned()));
}

#[test]
fn only_regular_files_have_contents() {
    let (agent, mut host) = agent();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, agent.path("fifo"), fifo, mode, 0).unwrap();
    for (path, code) in [
        (".", "is-a-directory"),
        ("fifo", "not-a-file"),
        ("/dev/zero", "not-a-file"),
        ("missing", "not-found"),
        ("socket", "not-a-file"),
        ("socket/x", "not-a-directory"),
    ] {
        assert_eq!(host.read_file(read(path)).unwrap_err().code, code, "{path}");
        if path != "missing" {
            let failure = host.write_file(write(path, Mode::Append), b"x").unwrap_err();
            assert_eq!(failure.code, code, "{path}");
        }
    }
}

#[test]
fn describes_every_kind() {
    let (agent, mut host) = agent();
    std::fs::write(agent.path("file"), b"12345").unwrap();
    std::os::unix::fs::symlink("file", agent.path("link")).unwrap();
    let link = host.stat("link", false, Root::Sandbox).unwrap();
    assert_eq!((link.kind(), link.link_target.as_slice()), (Kind::Symlink, &b"file"[..]));
    let file = host.stat("link", true, Root::Sandbox).unwrap();
    assert_eq!((file.kind(), file.size, file.links), (Kind::File, 5, 1));
    assert!(file.modified_ns > 1_600_000_000_000_000_000);
    for (path, kind) in
        [(".", Kind::Directory), ("socket", Kind::Socket), ("/dev/null", Kind::CharacterDevice)]
    {
        assert_eq!(host.stat(path, true, Root::Sandbox).unwrap().kind(), kind, "{path}");
    }
    assert_eq!(host.stat("missing", true, Root::Sandbox).unwrap_err().code, "not-found");
    assert_eq!(host.stat("file", true, Root::WorkspaceLayer).unwrap_err().code, "no-layer");
}

#[test]
fn lists_in_pages() {
    let (agent, mut host) = agent();
    std::fs::create_dir(agent.path("d")).unwrap();
    // More than fit into one frame.
    let names: Vec<String> =
        (0..3000).map(|number| format!("{number:04}-{}", "x".repeat(100))).collect();
    for name in &names {
        std::fs::write(agent.path("d").join(name), b"").unwrap();
    }
    let list = |after: &str, limit| List {
        path: b"d".to_vec(),
        after: after.into(),
        limit,
        ..List::default()
    };
    assert_eq!(host.list(list("", 3)), (names[..3].to_vec(), true));
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().cloned().unwrap_or_default();
        let (page, more) = host.list(list(&after, 10_000));
        assert!(!page.is_empty());
        found.extend(page);
        if !more {
            break;
        }
    }
    assert!(found == names);
    let failing = List { path: b"missing".to_vec(), ..List::default() };
    assert_eq!(host.ask_failing(Body::List(failing)).code, "not-found");
}

#[test]
fn changes_the_tree() {
    let (agent, mut host) = agent();
    let mkdir = |path: &str, parents| {
        Body::MakeDirectory(MakeDirectory { path: path.into(), parents, permissions: 0 })
    };
    assert_eq!(host.change(mkdir("a/b", false)), Err("not-found".into()));
    assert_eq!(host.change(mkdir("a/b", true)), Ok(()));
    assert_eq!(host.change(mkdir("a/b", true)), Ok(()));
    assert_eq!(host.change(mkdir("a/b", false)), Err("exists".into()));
    std::fs::write(agent.path("f"), b"f").unwrap();
    std::fs::write(agent.path("g"), b"g").unwrap();
    let rename = |from: &str, to: &str, replace| {
        Body::Move(Move { from: from.into(), to: to.into(), replace })
    };
    assert_eq!(host.change(rename("f", "g", false)), Err("exists".into()));
    assert_eq!(host.change(rename("f", "g", true)), Ok(()));
    assert_eq!(host.change(rename("g", "a/h", false)), Ok(()));
    assert_eq!(std::fs::read(agent.path("a/h")).unwrap(), b"f");
    // Memory is another file system than the disk, on most machines; the answer is the same if it is not.
    let far = format!("/dev/shm/belljar-move-{}", std::process::id());
    assert_eq!(host.change(rename("a/h", &far, false)), Ok(()));
    assert_eq!(std::fs::read(&far).unwrap(), b"f");
    assert_eq!(host.change(rename(&far, "a/b", true)), Err("is-a-directory".into()));
    assert_eq!(host.change(rename(&far, "a/h", false)), Ok(()));
    assert!(!std::path::Path::new(&far).exists());
    let chmod = ChangeMode { path: b"a/h".to_vec(), permissions: 0o4711 };
    assert_eq!(host.change(Body::ChangeMode(chmod)), Ok(()));
    assert_eq!(host.stat("a/h", true, Root::Sandbox).unwrap().mode, 0o4711);
    let link = |path: &str, target: &str| {
        Body::MakeLink(MakeLink { path: path.into(), target: target.into() })
    };
    assert_eq!(host.change(link("a/l", "/nowhere")), Ok(()));
    assert_eq!(std::fs::read_link(agent.path("a/l")).unwrap().to_str(), Some("/nowhere"));
    assert_eq!(host.change(link("a/l", "h")), Err("exists".into()));
    assert_eq!(host.change(link("missing/l", "h")), Err("not-found".into()));
    let remove = |path: &str, recursive| Body::Remove(Remove { path: path.into(), recursive });
    assert_eq!(host.change(remove("a", false)), Err("not-empty".into()));
    assert_eq!(host.change(remove("a", true)), Ok(()));
    assert_eq!(host.change(remove("a", true)), Err("not-found".into()));
    assert!(!agent.path("a").exists());
}

#[test]
fn watches_a_tree() {
    let (agent, mut host) = agent();
    std::fs::create_dir_all(agent.path("w/deep")).unwrap();
    let watch = Watch { path: b"w".to_vec(), recursive: true };
    let stream = host.request(Body::Watch(watch));
    assert_eq!(host.receive_on(stream), Body::Done(Done { size: 0 }));
    std::fs::write(agent.path("w/file"), b"x").unwrap();
    std::fs::rename(agent.path("w/file"), agent.path("w/deep/moved")).unwrap();
    std::fs::remove_file(agent.path("w/deep/moved")).unwrap();
    std::fs::create_dir(agent.path("w/new")).unwrap();
    let expected = [
        (What::Created, "file"),
        (What::Modified, "file"),
        (What::Removed, "file"),
        (What::Moved, "deep/moved"),
        (What::Removed, "deep/moved"),
        (What::Created, "new"),
    ];
    for (what, path) in expected {
        let change = Change { what: what.into(), path: path.into() };
        assert_eq!(host.receive_on(stream), Body::Change(change));
    }
    // What was made before is watched by now.
    std::fs::write(agent.path("w/new/file"), b"").unwrap();
    let change = Change { what: What::Created.into(), path: b"new/file".to_vec() };
    assert_eq!(host.receive_on(stream), Body::Change(change));
    host.send(stream, Body::Cancel(Cancel::default()));
    assert_eq!(host.receive_on(stream), Body::Done(Done { size: 0 }));
    let failing = Watch { path: b"missing".to_vec(), recursive: false };
    assert_eq!(host.ask_failing(Body::Watch(failing)).code, "not-found");
}

#[test]
fn reading_waits_for_acknowledgements() {
    let (agent, mut host) = agent();
    std::fs::write(agent.path("large"), vec![7; 2_000_000]).unwrap();
    let stream = host.request(Body::ReadFile(read("large")));
    let mut received = 0;
    while received < WINDOW as usize {
        let Body::Data(data) = host.receive_on(stream) else { panic!("not data") };
        received += data.data.len();
    }
    for _ in 0..20 {
        let ping = host.ask(Body::Ping(belljar_protocol::v1::Ping {}));
        assert!(matches!(ping, Body::Pong(_)));
    }
    assert!(received < WINDOW as usize + 65536);
    // Cancelling ends it in the middle.
    host.send(stream, Body::Cancel(Cancel::default()));
    assert!(matches!(host.receive_on(stream), Body::Done(_)));
    assert_eq!(host.read_file(read("large")).unwrap().len(), 2_000_000);
}

#[test]
fn the_workspace_layer_shows_what_an_overlay_keeps() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let layer = agent.path("layer");
    std::fs::create_dir_all(layer.join("opaque")).unwrap();
    std::fs::create_dir_all(layer.join("plain")).unwrap();
    std::fs::write(layer.join("plain/file"), b"inside").unwrap();
    std::fs::write(agent.path("secret"), b"outside").unwrap();
    std::os::unix::fs::symlink("../../secret", layer.join("plain/link")).unwrap();
    std::os::unix::fs::symlink("..", layer.join("up")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let opaque = layer.join("opaque");
    let marked = rustix::fs::setxattr(&opaque, "user.overlay.opaque", b"y", flags).is_ok();
    let device = rustix::fs::FileType::CharacterDevice;
    let mode = rustix::fs::Mode::empty();
    let made = rustix::fs::mknodat(rustix::fs::CWD, layer.join("gone"), device, mode, 0).is_ok();
    let configure =
        Configure { workspace_layer: layer.to_str().unwrap().into(), ..configuration() };
    assert!(matches!(host.ask(Body::Configure(configure)), Body::Configured(_)));

    let root = Root::WorkspaceLayer;
    let in_layer = |path: &str| ReadFile { root: root.into(), ..read(path) };
    assert_eq!(host.read_file(in_layer("plain/file")).unwrap(), b"inside");
    assert_eq!(host.read_file(in_layer("/plain/file")).unwrap(), b"inside");
    for path in ["plain/link", "up/secret", "../secret", "plain/../../secret"] {
        assert!(host.read_file(in_layer(path)).is_err(), "{path}");
    }
    let link = host.stat("plain/link", true, root).unwrap();
    assert_eq!((link.kind(), link.link_target.as_slice()), (Kind::Symlink, &b"../../secret"[..]));
    assert!(!host.stat("plain", false, root).unwrap().opaque);
    if marked {
        assert!(host.stat("opaque", false, root).unwrap().opaque);
    }
    if made {
        assert_eq!(host.stat("gone", false, root).unwrap().kind(), Kind::Whiteout);
    }
    let list = List { root: root.into(), depth: 9, ..List::default() };
    let (names, _) = host.list(list);
    let names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| *name != "gone").collect();
    assert_eq!(names, ["opaque", "plain", "plain/file", "plain/link", "up"]);
    // It is read, never written.
    let stream = host.request(Body::WriteFile(write("plain/file", Mode::Truncate)));
    host.send(stream, Body::Data(Data { data: vec![], end: true }));
    assert!(
        matches!(host.receive_on(stream), Body::Failure(failure) if failure.code == "not-found")
    );
}
