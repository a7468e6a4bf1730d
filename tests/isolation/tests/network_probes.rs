//! What anyone may try against the network of a sandbox: floods of questions, speaking as somebody else, the
//! neighbour.

#![forbid(unsafe_code)]

mod common {
    #[allow(dead_code, reason = "shared with the other suites")]
    pub(crate) mod world;
}

use std::time::Instant;

use belljar_testkit::{Finished, Installation, PROMPT, Sandbox, matrix, wait_until};
use common::world::{HOST, ORIGIN, World};

matrix! {
    other_kinds_of_questions_and_floods_of_them_stay_at_the_door,
    a_sandbox_speaks_as_itself_only,
    sandboxes_do_not_reach_each_other,
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
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
    raise SystemExit('transparent')
except PermissionError:
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
