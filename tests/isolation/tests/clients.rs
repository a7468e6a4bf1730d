//! Real programs in sandboxes, whose requests are looked into: package managers against an index that the test serves,
//! git, HTTP/2 on both sides, WebSocket.

#![forbid(unsafe_code)]

mod common {
    #[allow(dead_code, reason = "shared with the other suites")]
    pub(crate) mod web;
    #[allow(dead_code, reason = "shared with the other suites")]
    pub(crate) mod world;
}

use std::process::Command;

use belljar_testkit::{Finished, Installation, Sandbox, matrix};
use common::web::{Web, has};
use common::world::World;

matrix! {
    package_managers_install_what_their_paths_allow,
    requests_of_version_2_are_judged_and_sent_as_such,
    a_websocket_is_a_request_and_then_a_stream,
}

/// Serves the files of its directory.
const FILES: &[&str] = &[
    "python3",
    "-c",
    r#"
import functools, http.server, json, ssl, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *words):
        with open(sys.argv[3], 'a') as log:
            log.write(json.dumps({'path': self.path}) + '\n')
handler = functools.partial(Handler, directory=sys.argv[4] + '/public')
server = http.server.ThreadingHTTPServer((sys.argv[1], 443), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print('ready', flush=True)
server.serve_forever()
"#,
];

/// A package for pip and one for npm, each with the index that its client asks.
const PACKAGES: &str = r#"
import base64, hashlib, io, json, os, sys, tarfile, zipfile
root = sys.argv[1] + '/public'
for name in ('simple/bell', 'files', 'npm', 'npm-files', 'private/simple/bell'):
    os.makedirs(f'{root}/{name}', exist_ok=True)
wheel = 'bell-1.0-py3-none-any.whl'
with zipfile.ZipFile(f'{root}/files/{wheel}', 'w') as archive:
    archive.writestr('bell.py', "word = 'ding'\n")
    archive.writestr('bell-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: bell\nVersion: 1.0\n')
    archive.writestr('bell-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    archive.writestr('bell-1.0.dist-info/RECORD', 'bell.py,,\nbell-1.0.dist-info/METADATA,,\nbell-1.0.dist-info/WHEEL,,\nbell-1.0.dist-info/RECORD,,\n')
for index in ('simple', 'private/simple'):
    with open(f'{root}/{index}/bell/index.html', 'w') as page:
        page.write(f'<!DOCTYPE html><html><body><a href="/files/{wheel}">{wheel}</a></body></html>')
package = io.BytesIO()
with tarfile.open(fileobj=package, mode='w:gz') as archive:
    for name, text in (('package.json', '{"name": "bell", "version": "1.0.0"}'), ('index.js', "module.exports = 'dong'\n")):
        entry = tarfile.TarInfo('package/' + name)
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
with open(f'{root}/npm-files/bell-1.0.0.tgz', 'wb') as file:
    file.write(package.getvalue())
digest = 'sha512-' + base64.b64encode(hashlib.sha512(package.getvalue()).digest()).decode()
version = {'name': 'bell', 'version': '1.0.0', 'dist': {'tarball': 'https://web.test/npm-files/bell-1.0.0.tgz', 'integrity': digest}}
with open(f'{root}/npm/bell', 'w') as file:
    json.dump({'name': 'bell', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': version}}, file)
"#;

fn shell(sandbox: &Sandbox<'_>, line: &str) -> Finished {
    sandbox.exec(["sh", "-c", line])
}

/// A repository that can be cloned from plain files.
fn make_repository(directory: &std::path::Path) {
    let script = "set -e; cd \"$1\"; git init -q --bare public/repo.git; git init -q work; cd work; \
                  echo bell > word; git add word; \
                  git -c user.name=t -c user.email=t@t.test commit -qm first; \
                  git push -q ../public/repo.git HEAD:refs/heads/main; cd ../public/repo.git; \
                  git symbolic-ref HEAD refs/heads/main; git update-server-info";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(directory).env("HOME", directory);
    assert!(command.status().expect("sh runs").success());
}

fn package_managers_install_what_their_paths_allow(belljar: &Installation) {
    let world = World::new(belljar);
    let directory = Web::directory(belljar);
    let made = Command::new("python3").args(["-c", PACKAGES]).arg(&directory).status();
    assert!(made.expect("python3 runs").success());
    let git = has("git");
    if git {
        make_repository(&directory);
    }
    let web = Web::start(&world, belljar, true, FILES);
    let mut flags = vec!["--network", "allowlist"];
    for place in [
        "web.test/simple",
        "web.test/files",
        "web.test/npm",
        "web.test/npm-files",
        "web.test/repo.git",
    ] {
        flags.extend(["--allow", place]);
    }
    let sandbox = belljar.create(&flags);
    if has("pip3") {
        let pip = "/usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --retries 0 \
                   --target /workspace/site --index-url https://web.test";
        let denied = shell(&sandbox, &format!("{pip}/private/simple/ bell"));
        assert_ne!(denied.code(), 0, "{denied}");
        shell(&sandbox, &format!("{pip}/simple/ bell")).expect_success();
        let run = "PYTHONPATH=/workspace/site /usr/bin/python3 -c 'import bell; print(bell.word)'";
        assert_eq!(shell(&sandbox, run).expect_success().text(), "ding\n");
    }
    if has("npm") && has("node") {
        let npm = "cd /workspace && npm install --no-audit --no-fund --no-update-notifier --fetch-retries=0 \
                   --cache /tmp/npm --prefix /workspace/app --registry https://web.test";
        let denied = shell(&sandbox, &format!("{npm}/private/ bell"));
        assert_ne!(denied.code(), 0, "{denied}");
        shell(&sandbox, &format!("{npm}/npm/ bell")).expect_success();
        let run = "cd /workspace/app && node -e \"console.log(require('bell'))\"";
        assert_eq!(shell(&sandbox, run).expect_success().text(), "dong\n");
    }
    if git {
        let clone = |path: &str| {
            shell(&sandbox, &format!("git clone -q https://web.test/{path} /workspace/{path}"))
        };
        let denied = clone("private.git");
        assert!(denied.code() != 0 && denied.to_string().contains("403"), "{denied}");
        clone("repo.git").expect_success();
        assert_eq!(sandbox.exec(["cat", "/workspace/repo.git/word"]).text(), "bell\n");
    }
    let seen = web.seen();
    assert!(!seen.is_empty());
    for request in seen {
        let path = request["path"].as_str().unwrap_or_default();
        assert!(!path.starts_with("/private"), "{request}");
    }
}

/// Answers every request with the version that it came in.
const VERSION_2: &[&str] = &[
    "node",
    "-e",
    r#"
const fs = require('fs');
const [address, pem, log] = process.argv.slice(1);
const both = fs.readFileSync(pem);
const server = require('http2').createSecureServer({key: both, cert: both, allowHTTP1: true}, (request, response) => {
  let body = 0;
  request.on('data', piece => body += piece.length);
  request.on('end', () => {
    fs.appendFileSync(log, JSON.stringify({path: request.url, version: request.httpVersion, body}) + '\n');
    response.end(request.httpVersion);
  });
});
server.listen(443, address, () => console.log('ready'));
"#,
];

fn requests_of_version_2_are_judged_and_sent_as_such(belljar: &Installation) {
    if !has("node") {
        return;
    }
    let world = World::new(belljar);
    let web = Web::start(&world, belljar, true, VERSION_2);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "web.test/public"]);
    // Several on one connection, one of them denied: what is denied does not end the others.
    let urls = "https://web.test/public/1 https://web.test/private https://web.test/public/2";
    let curl = "curl -sS --max-time 60 --http2 -w ' %{http_version} %{http_code}\\n' -o /dev/null -o /dev/null -o /dev/null";
    let told = shell(&sandbox, &format!("{curl} {urls}")).expect_success().text();
    assert_eq!(told, " 2 200\n 2 403\n 2 200\n");
    let upload = "head -c 3000000 /dev/zero | curl -sS --max-time 60 --http2 --data-binary @- https://web.test/public/3";
    assert_eq!(shell(&sandbox, upload).expect_success().text(), "2.0");
    // Node speaks version 2 by itself, too.
    let program = "const session = require('http2').connect('https://web.test');
        const request = session.request({':path': '/public/4'});
        request.on('response', head => console.log(head[':status']));
        request.on('end', () => session.close());
        request.resume(); request.end();";
    assert_eq!(sandbox.exec(["node", "-e", program]).expect_success().text(), "200\n");
    let seen = web.seen();
    assert_eq!(seen.len(), 4, "{seen:?}");
    for (number, request) in (1..).zip(&seen) {
        assert_eq!(request["path"], format!("/public/{number}"));
        assert_eq!(request["version"], "2.0");
    }
    assert_eq!(seen[2]["body"], 3_000_000);
}

/// One text, turned around.
const SOCKET: &[&str] = &[
    "python3",
    "-c",
    r#"
import base64, hashlib, json, socket, ssl, sys, threading
def need(s, count):
    got = b''
    while len(got) < count:
        more = s.recv(count - len(got))
        if not more: raise EOFError
        got += more
    return got
def serve(s):
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        head += need(s, 1)
    lines = head.decode().split('\r\n')
    with open(sys.argv[3], 'a') as log:
        log.write(json.dumps({'path': lines[0].split(' ')[1]}) + '\n')
    fields = {name.lower(): value for name, value in (line.split(': ', 1) for line in lines[1:] if ': ' in line)}
    made = hashlib.sha1((fields['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()
    s.sendall(('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: '
        + base64.b64encode(made).decode() + '\r\n\r\n').encode())
    while True:
        first = need(s, 2)
        mask = need(s, 4)
        text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(need(s, first[1] & 127)))
        s.sendall(bytes([0x81, len(text)]) + text[::-1])
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
listener = socket.create_server((sys.argv[1], 443))
print('ready', flush=True)
def accept(raw):
    try:
        serve(context.wrap_socket(raw, server_side=True))
    except (OSError, EOFError, KeyError):
        pass
while True:
    threading.Thread(target=accept, args=(listener.accept()[0],), daemon=True).start()
"#,
];

/// Opens a WebSocket at a path and says two words on it; prints the answers, or the status that refused it.
const SOCKET_CLIENT: &str = r"
import base64, os, socket, ssl, sys
s = ssl.create_default_context().wrap_socket(socket.create_connection(('web.test', 443), 20), server_hostname='web.test')
key = base64.b64encode(os.urandom(16)).decode()
s.sendall(f'GET {sys.argv[1]} HTTP/1.1\r\nhost: web.test\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n'.encode())
head = b''
while not head.endswith(b'\r\n\r\n'):
    head += s.recv(1)
status = head.split(b' ')[1].decode()
if status != '101':
    raise SystemExit(f'status {status}')
for word in (b'bell', b'jar'):
    mask = os.urandom(4)
    s.sendall(bytes([0x81, 0x80 | len(word)]) + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(word)))
    got = b''
    while len(got) < 2 + len(word):
        got += s.recv(64)
    print(got[2:].decode())
";

fn a_websocket_is_a_request_and_then_a_stream(belljar: &Installation) {
    let world = World::new(belljar);
    let web = Web::start(&world, belljar, true, SOCKET);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "web.test/socket"]);
    let open = |path: &str| sandbox.exec(["/usr/bin/python3", "-c", SOCKET_CLIENT, path]);
    assert_eq!(open("/socket").expect_success().text(), "lleb\nraj\n");
    let denied = open("/other");
    assert!(denied.code() == 1 && denied.to_string().contains("status 403"), "{denied}");
    let seen = web.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0]["path"], "/socket");
}
