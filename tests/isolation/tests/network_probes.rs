//! What anyone may try against the network of a sandbox: floods of questions, speaking as somebody else, the
//! neighbour.

#![forbid(unsafe_code)]

mod common {
    #[allow(dead_code, reason = "shared with the other suites")]
    pub(crate) mod world;
}

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use belljar_testkit::{Finished, Installation, PROMPT, Sandbox, matrix, wait_until};
use common::world::{HOST, ORIGIN, World};

matrix! {
    other_kinds_of_questions_and_floods_of_them_stay_at_the_door,
    walls a_sandbox_speaks_as_itself_only,
    walls sandboxes_do_not_reach_each_other,
    a_shown_port_asks_sandboxes_for_its_token_too,
    volumes_are_shared_by_their_names_only,
}

fn python(sandbox: &Sandbox<'_>, program: &str) -> Finished {
    sandbox.exec(["/usr/bin/python3", "-c", &(QUESTIONS.to_owned() + program)])
}

/// Questions for names, by hand.
const QUESTIONS: &str = r"
import errno, socket, struct, sys
DOOR = ('192.0.0.1', 53)
def question(name, kind):
    labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.'))
    return struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + labels + struct.pack('>BHH', 0, kind, 1)
def ask(name, kind=1):
    # As every resolver does: asks again where a question was lost.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        for attempt in range(6):
            s.sendto(question(name, kind), DOOR)
            try:
                reply = s.recv(4096)
            except socket.timeout:
                continue
            return reply[3] & 15, struct.unpack('>H', reply[6:8])[0]
    raise SystemExit('no answer')
";

/// What the door lets through: so many a second, twice as many in a burst.
const PER_SECOND: usize = 100;

fn other_kinds_of_questions_and_floods_of_them_stay_at_the_door(belljar: &Installation) {
    let world = World::new(belljar);
    world.name("quiet.wild.test", &[ORIGIN]);
    let flags = ["--network", "allowlist", "--allow", "origin.test", "--allow", "*.wild.test"];
    let sandbox = belljar.create(&flags);
    let kinds = r"
assert ask('origin.test') == (0, 1)
for kind in (16, 10, 255, 15, 33, 252, 65280):
    assert ask('origin.test', kind) == (5, 0), kind
for kind in (64, 65):
    assert ask('origin.test', kind) == (0, 0), 'no answer that would carry keys'
payload = '.'.join(['d' * 63] * 3)
assert ask(payload + '.evil.test', 16)[0] == 3
print('done')
";
    assert_eq!(python(&sandbox, kinds).expect_success().text(), "done\n");
    let asked = world.asked();
    assert!(asked.iter().all(|name| name == "origin.test"), "{asked:?}");

    // Names under a wildcard can carry data away, but not fast.
    let flood = r"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(5000):
    s.sendto(question(f'n{number}.wild.test', 1), DOOR)
print('done')
";
    let begun = Instant::now();
    python(&sandbox, flood).expect_success();
    let limited = wait_until(PROMPT, || {
        let log = belljar.run(["network", "log", sandbox.id(), "--denied", "--json"]);
        log.expect_success().text().contains("\"too-many\"").then_some(())
    });
    assert!(limited.is_some(), "nothing was refused");
    // The door is open again for those who ask less.
    let again = wait_until(PROMPT, || {
        let program = "print(ask('quiet.wild.test'))";
        (python(&sandbox, program).expect_success().text() == "(0, 1)\n").then_some(())
    });
    assert!(again.is_some(), "the door stays closed");
    let mut left: Vec<_> = world.asked().into_iter().filter(|name| name.starts_with('n')).collect();
    left.sort_unstable();
    left.dedup();
    let most = PER_SECOND * 2 + PER_SECOND * (begun.elapsed().as_secs() as usize + 1);
    assert!(!left.is_empty() && left.len() <= most, "{} questions left", left.len());
}

fn a_sandbox_speaks_as_itself_only(belljar: &Installation) {
    let world = World::new(belljar);
    let sandbox = belljar.create(&["--network", "allowlist", "--allow", "*.wild.test"]);
    world.name("honest.wild.test", &[ORIGIN]);
    world.name("spoofed.wild.test", &[ORIGIN]);
    // Anybody may bind to an address that is not there; version 6 even sends from it.
    let spoof = r"
IP_FREEBIND, IPV6_FREEBIND, IP_TRANSPARENT = 15, 78, 19
sent = 0
for family, level, option, address, door in (
    (socket.AF_INET, socket.IPPROTO_IP, IP_FREEBIND, '11.0.0.10', DOOR[0]),
    (socket.AF_INET6, socket.IPPROTO_IPV6, IPV6_FREEBIND, '2600:1::99', 'fd62:6c6a:7200::1'),
):
    s = socket.socket(family, socket.SOCK_DGRAM)
    try:
        s.setsockopt(level, option, 1)
        s.bind((address, 4000))
        s.sendto(question('spoofed.wild.test', 1), (door, 53))
        sent += 1
    except OSError as error:
        print(error, file=sys.stderr)
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
    s.bind(('11.0.0.10', 4001)) # gVisor's kernel takes the option and does not know it
    raise SystemExit('transparent')
except OSError:
    pass
assert ask('honest.wild.test') == (0, 1)
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    s.settimeout(10)
    s.sendto(question('honest.wild.test', 1), ('fd62:6c6a:7200::1', 53))
    s.recv(512)
print('done', sent)
";
    let told = python(&sandbox, spoof).expect_success();
    assert!(told.text().starts_with("done"), "{told}");
    assert!(world.was_asked("honest.wild.test"));
    assert!(!world.was_asked("spoofed.wild.test"), "a packet from elsewhere came through: {told}");

    // Neighbours, addresses and routes cannot be told to the kernel, nor asked of others.
    let poison = r"
def attribute(kind, value):
    return struct.pack('HH', 4 + len(value), kind) + value + b'\0' * (-len(value) % 4)
def tell(kind, body):
    try:
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        s.bind((0, 0))
        s.send(struct.pack('IHHII', 16 + len(body), kind, 0x505, 1, 0) + body)
        return struct.unpack('i', s.recv(4096)[16:20])[0]
    except OSError as error:
        return -error.errno
denied = (-errno.EPERM, -errno.EACCES, -errno.EAFNOSUPPORT)
gateway = socket.inet_aton('192.0.0.1')
neighbour = struct.pack('BBHiHBB', 2, 0, 0, 1000, 0x80, 0, 0) + attribute(1, gateway) + attribute(2, b'\2\0\0\0\0\7')
address = struct.pack('BBBBi', 2, 24, 0, 0, 1000) + attribute(2, socket.inet_aton('11.0.0.10'))
assert tell(28, neighbour) in denied, 'a neighbour'
assert tell(20, address) in denied, 'an address'
dhcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dhcp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
dhcp.settimeout(0.5)
try:
    dhcp.sendto(b'\1\1\6\0' + b'\0' * 296, ('255.255.255.255', 67))
    dhcp.recv(512)
    raise SystemExit('somebody answered')
except OSError:
    pass
assert ask('honest.wild.test') == (0, 1)
print('done')
";
    for flags in [&[][..], &["--user", "root"]] {
        let program = QUESTIONS.to_owned() + poison;
        let finished = sandbox.exec_with(flags, ["/usr/bin/python3", "-c", &program]);
        if finished.code() != 125 {
            assert_eq!(finished.expect_success().text(), "done\n", "{flags:?}");
        }
    }
}

/// Serves on every address of its sandbox, and says with which word it was asked.
const NEIGHBOUR: &str = r"
import socket, threading
s = socket.create_server(('::', 8000), family=socket.AF_INET6, dualstack_ipv6=True)
open('/workspace/ready', 'w').close()
while True:
    c, _ = s.accept()
    with open('/workspace/asked', 'ab') as f:
        f.write(c.recv(64) + b'\n')
    c.sendall(b'neighbour')
    c.close()
";

fn sandboxes_do_not_reach_each_other(belljar: &Installation) {
    let world = World::new(belljar);
    let one = belljar.create(&["--name", "one", "--network", "full"]);
    let other = belljar.create(&["--name", "other", "--network", "full"]);
    let serve = ["exec", "--detach", other.id(), "--", "/usr/bin/python3", "-c", NEIGHBOUR];
    belljar.run(serve).expect_success();
    let ready = || (other.exec(["test", "-e", "/workspace/ready"]).code() == 0).then_some(());
    assert!(wait_until(PROMPT, ready).is_some());
    // Whatever an address leads to, it is not the other: not the one that both have, not the gateway, not the host.
    let reach = |sandbox: &Sandbox<'_>, word: &str| {
        let program = format!(
            r"
import socket
reached = []
for address in ('127.0.0.1', '::1', '192.0.0.2', 'fd62:6c6a:7200::2', '192.0.0.1', 'fd62:6c6a:7200::1', '{HOST}', '2600:1::1',
                '192.0.0.3', 'fe80::2%eth0', 'ff02::1%eth0', 'other', '{}', 'other.local'):
    try:
        with socket.create_connection((address, 8000), 3) as s:
            s.sendall(b'{word}')
            if s.recv(16) == b'neighbour':
                reached.append(address)
    except OSError:
        pass
print(' '.join(reached))
",
            other.id()
        );
        sandbox.exec(["/usr/bin/python3", "-c", &program]).expect_success().text()
    };
    assert_eq!(reach(&one, "stranger"), "\n");
    assert!(reach(&other, "itself").contains("127.0.0.1 ::1 192.0.0.2"));
    let asked = other.exec(["cat", "/workspace/asked"]).text();
    assert!(asked.contains("itself") && !asked.contains("stranger"), "{asked}");
    assert_eq!(world.reached(HOST), 0);
}

/// Stands for whatever makes a server public: passes what comes to an address of the host on to it, and counts.
fn publish(port: u16, to: String) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind((HOST, port)).expect("an address of ours");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            let Ok(server) = TcpStream::connect(&to) else { continue };
            for (mut from, mut to) in [(clone(&client), clone(&server)), (server, client)] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    count
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor more")
}

/// An HTTP server at 8000 that says how it was asked.
const SHOWN: &str = r"
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open('/workspace/asked', 'a') as f:
            f.write(self.path + '\n')
        self.send_response(200); self.end_headers(); self.wfile.write(b'neighbour')
    def log_message(self, *a): pass
server = http.server.HTTPServer(('127.0.0.1', 8000), Handler)
open('/workspace/ready', 'w').close()
server.serve_forever()
";

fn a_shown_port_asks_sandboxes_for_its_token_too(belljar: &Installation) {
    const PORT: u16 = 8080;
    let _world = World::new(belljar);
    let mut server = belljar.start(["serve", "--listen", "127.0.0.1:0", "--json"]);
    let ready: serde_json::Value = serde_json::from_str(&server.line()).expect("a line of JSON");
    let addresses = ready["addresses"].as_array().expect("a list").iter();
    let address = addresses.filter_map(|one| one.as_str()?.strip_prefix("http://")).next();
    let arrived = publish(PORT, address.expect("an address").to_owned());
    // Where nobody has a key, whoever is on this machine is the operator.
    belljar.run(["keys", "create"]).expect_success();

    let other = belljar.create(&["--name", "other"]);
    let serve = ["exec", "--detach", other.id(), "--", "/usr/bin/python3", "-c", SHOWN];
    belljar.run(serve).expect_success();
    let ready = || (other.exec(["test", "-e", "/workspace/ready"]).code() == 0).then_some(());
    assert!(wait_until(PROMPT, ready).is_some());
    let full = ["--name", "one", "--network", "full"];
    let one = belljar.create(&full);
    let let_near = format!("{HOST}/32");
    let near = belljar.create(&["--name", "near", "--network", "full", "--allow-cidr", &let_near]);
    let expose = |sandbox: &str| -> serde_json::Value {
        let shown = belljar.run(["expose", sandbox, "8000", "--json"]).expect_success().text();
        serde_json::from_str(&shown).expect("JSON")
    };
    let (shown, own) = (expose(other.id()), expose(near.id()));
    let name = format!("8000-{}.localhost", other.id());
    let token = |of: &serde_json::Value| of["token"].as_str().expect("a token").to_owned();

    let ask = |sandbox: &Sandbox<'_>, host: &str, path: &str, header: &str| {
        let program = format!(
            r"
import socket
try:
    with socket.create_connection(('{HOST}', {PORT}), 60) as s:
        s.sendall('GET {path} HTTP/1.1\r\nhost: {host}:{PORT}\r\nconnection: close\r\n{header}\r\n'.encode())
        answer = b''
        while got := s.recv(4096):
            answer += got
        print(answer.split(b' ')[1].decode() if answer else 'nothing', b'neighbour' in answer)
except OSError:
    print('nothing', False)
"
        );
        sandbox.exec(["/usr/bin/python3", "-c", &program]).expect_success().text()
    };
    // The host's own addresses are not part of the network that a sandbox has.
    let stolen = format!("x-belljar-token: {}\\r\\n", token(&shown));
    assert_eq!(ask(&one, &name, "/stranger", &stolen), "403 False\n", "by the door");
    assert_eq!(arrived.load(Ordering::Relaxed), 0);
    // Where the operator names them, the server is reached, and asks as it asks everybody.
    let wrong = format!("x-belljar-token: {}\\r\\n", token(&own));
    for header in ["", "x-belljar-token: none\\r\\n", &wrong, "cookie: belljar=1\\r\\n"] {
        let answer = ask(&near, &name, "/stranger", header);
        assert!(answer == "401 False\n" || answer == "403 False\n", "{header}: {answer}");
    }
    let path = format!("/v1/sandboxes/{}/ports/8000/stranger", other.id());
    for path in [path.as_str(), "/v1/sandboxes"] {
        let answer = ask(&near, "localhost", path, &wrong);
        assert!(answer == "401 False\n" || answer == "403 False\n", "{path}: {answer}");
    }
    assert_eq!(arrived.load(Ordering::Relaxed), 6, "it was the server that refused");
    // Twin: with the token it opens.
    assert_eq!(ask(&near, &name, "/known", &stolen), "200 True\n");
    assert_eq!(other.exec(["cat", "/workspace/asked"]).text(), "/known\n");
    belljar.run(["server", "stop"]).expect_success();
    server.finish().expect_success();
}

fn volumes_are_shared_by_their_names_only(belljar: &Installation) {
    let one = belljar.create(&["--name", "one", "--volume", "mine"]);
    let other = belljar.create(&["--name", "other", "--volume", "theirs"]);
    let write = ["sh", "-c", "echo private > /storage/secret; ln -s ../theirs /storage/link"];
    other.exec(write).expect_success();
    one.exec(["sh", "-c", "echo own > /storage/file; ln -s ../theirs /storage/link"])
        .expect_success();
    let look = "cat /storage/secret /storage/../theirs/secret /storage/link/secret /storage/file; \
                find / -xdev -name secret -path '*storage*' 2>/dev/null; true";
    assert_eq!(one.exec(["sh", "-c", look]).text(), "own\n");
    for name in ["../theirs", "mine/../theirs", "/theirs", "", ".", ".."] {
        assert!(belljar.try_create(&["--volume", name]).is_err(), "`{name}`");
    }
    // Twin: who is given the name has the files, and both see what the other writes.
    let third = belljar.create(&["--name", "third", "--volume", "theirs"]);
    assert_eq!(third.exec(["cat", "/storage/secret"]).text(), "private\n");
    third.exec(["sh", "-c", "echo seen > /storage/secret"]).expect_success();
    assert_eq!(other.exec(["cat", "/storage/secret"]).text(), "seen\n");
}
