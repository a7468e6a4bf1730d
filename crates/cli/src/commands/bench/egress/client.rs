//! The client: a Python program, the same without Belljar (on the edge) and inside a sandbox.

use std::process::{Command, Stdio};
use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use serde::de::DeserializeOwned;

use super::origin::WEB_NAME;
use super::world::{ORIGIN, RANGE, World};
use crate::failure::Failure;

/// Each mode prints JSON: nanoseconds, one number for each round.
const PROGRAM: &str = r#"
import json, resource, selectors, socket, ssl, struct, sys, time
mode, host, port, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
now = time.perf_counter_ns
# Asked once: how often names may be asked for is not what is measured.
place = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
def connect():
    s = socket.create_connection(place, 20)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
def secure():
    return ssl.create_default_context().wrap_socket(connect(), server_hostname='web.test')
def rounds(act, warm):
    for _ in range(warm):
        act()
    taken = []
    for _ in range(count):
        begun = now()
        act()
        taken.append(now() - begun)
    print(json.dumps(taken))
buffer = memoryview(bytearray(1 << 20))
def drain(s, left):
    while left:
        got = s.recv_into(buffer[:min(left, 1 << 20)])
        assert got, 'the transfer broke off'
        left -= got
if mode == 'bulk':
    s = connect()
    def act():
        s.sendall(struct.pack('>Q', size))
        drain(s, size)
    rounds(act, 1)
elif mode == 'echo':
    s, word = connect(), b'x' * size
    def act():
        s.sendall(word)
        drain(s, size)
    rounds(act, 50)
elif mode == 'web':
    s = secure()
    request = b'GET /b/%d HTTP/1.1\r\nhost: web.test\r\n\r\n' % size
    def act():
        s.sendall(request)
        head = b''
        while b'\r\n\r\n' not in head:
            got = s.recv(65536)
            assert got, 'the transfer broke off'
            head += got
        assert head.startswith(b'HTTP/1.1 200 '), head[:200]
        drain(s, size - (len(head) - head.index(b'\r\n\r\n') - 4))
    rounds(act, 1 if size > 65536 else 50)
elif mode == 'hold':
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kept, taken = [], []
    for half in range(2):
        waiting, left, begun = selectors.DefaultSelector(), count // 2, now()
        for _ in range(left):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(place)
            kept.append(s)
            waiting.register(s, selectors.EVENT_WRITE)
        while left:
            ready = waiting.select(60)
            assert ready, f'{left} connections were not answered'
            for key, mask in ready:
                s = key.fileobj
                if mask & selectors.EVENT_WRITE:
                    s.send(b'x')
                    waiting.modify(s, selectors.EVENT_READ)
                else:
                    assert s.recv(1) == b'g', 'a connection broke off'
                    waiting.unregister(s)
                    left -= 1
        taken.append(now() - begun)
    print(json.dumps(taken))
elif mode == 'cut':
    said = b''
    # The origin says when it is over: what it said before may be lost with a connection that is cut.
    while said != b'e':
        try:
            s = connect()
            s.sendall(b'x')
            said = s.recv(1)
            if said == b'g':
                s.settimeout(60)
                s.recv(1)
        except OSError:
            # Between two rounds the host is denied.
            time.sleep(0.005)
    print('[]')
"#;

/// Longer than any of the measurements takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// One thing that a client does.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) mode: &'static str,
    pub(super) port: u16,
    pub(super) size: u64,
    pub(super) count: u32,
}

impl Work {
    fn words(self, host: &str) -> Vec<String> {
        let Self { mode, port, size, count } = self;
        let numbers = [u64::from(port), size, u64::from(count)].map(|number| number.to_string());
        let mut words = ["python3", "-c", PROGRAM, mode, host].map(str::to_owned).to_vec();
        words.extend(numbers);
        words
    }

    /// Without Belljar: from the edge straight to the origin.
    pub(super) async fn direct(
        self,
        world: &World,
        roots: &std::path::Path,
    ) -> Result<Vec<Duration>, Failure> {
        let words = self.words(&ORIGIN.to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env("SSL_CERT_FILE", roots)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = world.spawn(command).map_err(|error| failed("").caused_by(&error))?;
        let waited = tokio::task::spawn_blocking(move || child.wait_with_output()).await;
        let output = waited.map_err(std::io::Error::other).and_then(|output| output);
        let output = output.map_err(|error| failed("").caused_by(&error))?;
        durations(&output.stdout, &output.stderr)
    }

    /// In a sandbox, by name.
    pub(super) async fn inside(
        self,
        client: &Client,
        sandbox: &str,
    ) -> Result<Vec<Duration>, Failure> {
        let command = v1::Command {
            argv: self.words(WEB_NAME),
            timeout_secs: Some(PATIENCE.as_secs_f64()),
            ..v1::Command::default()
        };
        let request = v1::ExecRequest {
            sandbox: sandbox.to_owned(),
            command: Some(command),
            ..v1::ExecRequest::default()
        };
        let ended = client.processes.clone().exec(request).await?.into_inner();
        durations(&ended.stdout, &ended.stderr)
    }
}

/// A sandbox with the rules that are wanted, or none.
pub(super) async fn create(client: &Client, allow: Option<&str>) -> Result<String, Failure> {
    let network = allow.map(|host| v1::Network {
        mode: Some("allowlist".to_owned()),
        allow: vec![host.to_owned()],
        cidrs: vec![RANGE.to_owned()],
        ..v1::Network::default()
    });
    let request = v1::CreateSandboxRequest { network, ..v1::CreateSandboxRequest::default() };
    Ok(client.sandboxes.clone().create_sandbox(request).await?.into_inner().sandbox_id)
}

pub(super) async fn destroy(client: &Client, sandbox: String) -> Result<(), Failure> {
    client.sandboxes.clone().destroy_sandbox(v1::DestroySandboxRequest { sandbox }).await?;
    Ok(())
}

fn durations(stdout: &[u8], stderr: &[u8]) -> Result<Vec<Duration>, Failure> {
    let taken: Vec<u64> = parse(stdout).map_err(|error| {
        let said = String::from_utf8_lossy(stderr);
        failed(said.lines().last().unwrap_or_default()).caused_by(&error)
    })?;
    Ok(taken.into_iter().map(Duration::from_nanos).collect())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(bytes)
}

fn failed(said: &str) -> Failure {
    Failure::new(Code::PortUnreachable, format!("the client of the benchmark failed: {said}"))
        .with_remedy("Python 3 must be in PATH, here and in sandboxes")
}
