//! Images that the engine does not have: fetched from a registry that the test runs on loopback.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use belljar_testkit::{Installation, Mode, matrix, write_busybox};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::run;

matrix! {
    engines images_are_fetched_where_that_is_wanted,
    engines who_sits_at_a_terminal_sees_how_far_an_image_is,
}

fn images_are_fetched_where_that_is_wanted(belljar: &Installation) {
    let registry = Registry::start(belljar);
    let (image, missing) = (registry.image("busybox"), registry.image("none"));
    let refused = run(belljar, &["--template", &image], "true").expect_code(125);
    assert!(refused.stderr.contains("BELLJAR_DOCKER_PULL"), "{refused}");
    assert_eq!(registry.layers_sent(), 0, "it was fetched without being wanted");

    belljar.stop_server();
    belljar.set_variable("BELLJAR_DOCKER_PULL", "1");
    let seen = run(belljar, &["--template", &image], "echo fetched").expect_success();
    assert_eq!((seen.text().as_str(), seen.stderr.as_str()), ("fetched\n", ""));
    assert_eq!(registry.layers_sent(), 1);
    run(belljar, &["--template", &image], "true").expect_success();
    assert_eq!(registry.layers_sent(), 1, "it was fetched again");

    // Any client can have it fetched ahead, and sees how far that is.
    belljar.destroy_all();
    let removed = belljar.daemon().command(&["image", "rm", &image]).output();
    assert!(removed.expect("docker runs").status.success());
    let told = fetch_by_rest(belljar, &image);
    let last = told.lines().last().unwrap_or_default();
    assert!(last.contains("\"part\"") && last.to_lowercase().contains("done"), "{told}");
    assert_eq!(registry.layers_sent(), 2);
    let told = fetch_by_rest(belljar, &missing);
    assert!(told.contains("template-not-found"), "{told}");

    let refused = belljar.run(["run", "--json", "--template", &missing, "--", "true"]);
    let refused = refused.expect_code(125);
    let told = format!("{}{}", refused.text(), refused.stderr);
    for word in ["template-not-found", &missing, "manifest unknown"] {
        assert!(told.contains(word), "`{word}` in {refused}");
    }
}

fn who_sits_at_a_terminal_sees_how_far_an_image_is(belljar: &Installation) {
    belljar.set_variable("BELLJAR_DOCKER_PULL", "1");
    let registry = Registry::start(belljar);
    let image = registry.image("busybox");
    let (code, shown) = on_terminal(belljar, &["run", "--template", &image, "--", "id"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(&format!("{image}`: 0 of 1 parts")), "{shown:?}");
    // Podman counts what describes the image, too.
    let all = if belljar.mode() == Mode::Podman { "2 of 2 parts" } else { "1 of 1 parts" };
    assert!(shown.contains(all), "{shown:?}");
    // What is there is not fetched, and nothing is shown.
    let (code, shown) = on_terminal(belljar, &["run", "--template", &image, "--", "id"]);
    assert_eq!((code, shown.contains("fetching")), (Some(0), false), "{shown:?}");
    assert_eq!(registry.layers_sent(), 1);

    let missing = registry.image("none");
    let (code, shown) = on_terminal(belljar, &["create", "--template", &missing]);
    assert_eq!(code, Some(125), "{shown}");
    assert!(shown.contains("cannot be fetched"), "{shown:?}");
}

/// Asks the server to fetch an image, and gives what it says.
fn fetch_by_rest(belljar: &Installation, image: &str) -> String {
    belljar.run(["list"]).expect_success(); // there is a server
    let request = json!({"template": format!("image:{image}"), "backend": "docker"});
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "100", "--header", "content-type: application/json"])
        .arg("--unix-socket")
        .arg(belljar.state().join("server.sock"))
        .args(["--data", &request.to_string(), "http://localhost/v1/templates/fetch"])
        .output()
        .expect("`curl` is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command whose messages go to a terminal; gives its exit code and what the terminal showed.
fn on_terminal(belljar: &Installation, arguments: &[&str]) -> (Option<i32>, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("our own");
    unlockpt(&terminal).expect("our own");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let path = name.to_str().expect("a number in a path");
    let far = fs::OpenOptions::new().read(true).write(true).open(path).expect("it exists");
    let mut command = belljar.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(far));
    let mut child = command.spawn().expect("the binary runs");
    drop(command); // with it goes our own far end
    let reader = thread::spawn(move || {
        let mut shown = Vec::new();
        // Ends with an error when nobody has the far end any more.
        let _ = fs::File::from(terminal).read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    });
    let status = child.wait().expect("our own child");
    (status.code(), reader.join().expect("it does not panic"))
}

/// A registry of one small image, which has one part.
struct Registry {
    address: SocketAddr,
    sent: Arc<AtomicUsize>,
}

/// What it serves.
struct Content {
    manifest: Vec<u8>,
    configuration: Vec<u8>,
    layer: Vec<u8>,
}

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

impl Registry {
    fn start(belljar: &Installation) -> Self {
        let content = Arc::new(Content::new(belljar));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound above");
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (content, counter) = (Arc::clone(&content), Arc::clone(&counter));
                thread::spawn(move || content.answer(stream, &counter));
            }
        });
        Self { address, sent }
    }

    fn image(&self, name: &str) -> String {
        format!("{}/{name}:1", self.address)
    }

    fn layers_sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Content {
    fn new(belljar: &Installation) -> Self {
        let root = belljar.make_directory("registry");
        write_busybox(&root).expect("busybox is installed");
        let layer = archive(&root);
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let configuration = json!({
            "architecture": architecture, "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        let configuration = configuration.to_string().into_bytes();
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "size": bytes.len(), "digest": digest(bytes)});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("application/vnd.docker.container.image.v1+json", &configuration),
            "layers": [part("application/vnd.docker.image.rootfs.diff.tar.gzip", &layer)],
        });
        Self { manifest: manifest.to_string().into_bytes(), configuration, layer }
    }

    /// Answers one request and closes the connection.
    fn answer(&self, stream: TcpStream, sent: &AtomicUsize) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let known = [
            ("/v2/".to_owned(), "application/json", &b"{}"[..]),
            ("/v2/busybox/manifests/1".to_owned(), MANIFEST, &self.manifest),
            (format!("/v2/busybox/manifests/{}", digest(&self.manifest)), MANIFEST, &self.manifest),
            (blob(&self.configuration), "application/octet-stream", &self.configuration),
            (blob(&self.layer), "application/octet-stream", &self.layer),
        ];
        let unknown =
            json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
        let unknown = unknown.to_string().into_bytes();
        let found = known.iter().find(|(place, ..)| place == path);
        let (status, kind, body) = match found {
            Some((_, kind, body)) => ("200 OK", *kind, *body),
            None => ("404 Not Found", "application/json", unknown.as_slice()),
        };
        let mut stream = reader.into_inner();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
            Docker-Content-Digest: {}\r\nDocker-Distribution-Api-Version: registry/2.0\r\n\
            Connection: close\r\n\r\n",
            body.len(),
            digest(body),
        )?;
        if method == "GET" {
            if path == blob(&self.layer) {
                sent.fetch_add(1, Ordering::SeqCst);
            }
            stream.write_all(body)?;
        }
        Ok(())
    }
}

fn blob(bytes: &[u8]) -> String {
    format!("/v2/busybox/blobs/{}", digest(bytes))
}

fn digest(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hash}")
}

fn archive(root: &Path) -> Vec<u8> {
    let output = Command::new("tar").arg("-C").arg(root).args(["-cf", "-", "."]).output();
    let output = output.expect("`tar` is installed");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
