//! A web server in the world, over TLS.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use belljar_testkit::Installation;
use serde_json::Value;

use super::world::{OTHER, World};

/// Tells what it got, over TLS, in the world.
pub(crate) const TELLING: &[&str] = &[
    "python3",
    "-c",
    r#"
import http.server, json, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def answer(self):
        body = self.rfile.read(int(self.headers.get('content-length') or 0)).decode()
        text = json.dumps({'method': self.command, 'path': self.path, 'headers': dict(self.headers), 'body': body}).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        with open(sys.argv[3], 'a') as log:
            log.write(json.dumps({'path': self.path, 'authorization': self.headers.get('authorization')}) + '\n')
    do_GET = do_POST = do_DELETE = answer
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer((sys.argv[1], 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print('ready', flush=True)
server.serve_forever()
"#,
];

pub(crate) struct Web {
    child: Child,
    log: PathBuf,
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Web {
    /// Where its files are.
    pub(crate) fn directory(belljar: &Installation) -> PathBuf {
        belljar.make_directory("web")
    }

    /// Serves `web.test`; the server of Belljar trusts its certificate if `trusted`. The program gets the address, a file with key and
    /// certificate, a file to write to, and [`Web::directory`].
    pub(crate) fn start(
        world: &World,
        belljar: &Installation,
        trusted: bool,
        program: &[&str],
    ) -> Self {
        world.name("web.test", &[OTHER]);
        let directory = Self::directory(belljar);
        let pem = directory.join("both.pem");
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
            ])
            .args(["-days", "2", "-subj", "/CN=web.test", "-addext", "subjectAltName=DNS:web.test"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(directory.join("key.pem"))
            .arg("-out")
            .arg(directory.join("certificate.pem"))
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("openssl is there").success());
        let read = |name: &str| fs::read_to_string(directory.join(name)).expect("just made");
        fs::write(&pem, read("key.pem") + &read("certificate.pem")).expect("our own file");
        if trusted {
            let config = belljar.make_directory("home/.config/belljar").join("config.toml");
            let text = fs::read_to_string(&config).unwrap_or_default();
            let roots = directory.join("certificate.pem");
            fs::write(&config, format!("{text}tls_roots = \"{}\"\n", roots.display()))
                .expect("our own file");
        }
        let log = directory.join("log");
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(OTHER).arg(&pem).arg(&log).arg(&directory);
        command.stdout(Stdio::piped());
        let mut child = world.start(command);
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self { child, log }
    }

    /// What arrived: the path and the authorization of each request.
    pub(crate) fn seen(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Whether a program is where sandboxes see it; says so where it is not.
pub(crate) fn has(program: &str) -> bool {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        belljar_testkit::skip(program, "it is not in /usr/bin");
    }
    found
}
