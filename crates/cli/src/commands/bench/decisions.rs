//! `belljar bench decisions`: what it costs that a program decides about connections.
//!
//! Python in a sandbox makes connections to an echo of this process, one after the other: where rules allow them, and where a
//! client that is connected as any other is decides about each. Then several threads make them at once. Python itself takes
//! the time, so that the figures are what a caller sees.

use std::time::Duration;

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use belljar_engine::{
    CreateRequest, Engine, ExecRequest, IpNet, NetworkCallback, Program, SandboxId,
};
use belljar_policy::{NetworkMode, NetworkPolicy};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::Done;
use super::answering::answer;
use super::stats::{Figures, table};
use super::tidy::{Bench, request};
use crate::args::BenchDecisionsArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Through the proxy door, since an address of the host means the sandbox's own inside.
const SCRIPT: &str = "
import json, socket, sys, threading, time
port, count, threads = map(int, sys.argv[1:])
def once():
    with socket.create_connection(('192.0.0.1', 3128), 20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(b'CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n' % port)
        head = b''
        while not head.endswith(b'\\r\\n\\r\\n'):
            head += s.recv(1024) or sys.exit('closed')
        if b' 200 ' not in head:
            sys.exit(head.decode())
        s.sendall(b'x')
        if s.recv(1) != b'x':
            sys.exit('denied')
taken = []
def many(number):
    for _ in range(number):
        begun = time.perf_counter_ns()
        once()
        taken.append(time.perf_counter_ns() - begun)
many(20)
taken.clear()
begun = time.perf_counter_ns()
workers = [threading.Thread(target=many, args=(count // threads,)) for _ in range(threads)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
print(json.dumps({'taken': taken, 'whole': time.perf_counter_ns() - begun}))
";

/// Python makes no more connections at once, whatever their number.
const THREADS: u32 = 8;

#[derive(Deserialize)]
struct Told {
    taken: Vec<u64>,
    whole: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    connections: Vec<Figures>,
    added_p50_ms: f64,
    decisions_per_second: f64,
}

pub(super) async fn decisions(
    bench: &Bench<'_>,
    args: &BenchDecisionsArgs,
) -> Result<Done, Failure> {
    let report = bench.with_engine(async |engine| measure(engine, args.count).await).await?;
    if args.json {
        print_json(&report)?;
    } else {
        let Report { connections, added_p50_ms, decisions_per_second } = &report;
        print(&format!(
            "a connection from Python in a sandbox\n{}a decision adds {added_p50_ms:.2} ms (p50); \
             {THREADS} threads get {decisions_per_second:.0} a second\n",
            table(connections)
        ))?;
    }
    Ok(Done::Success)
}

async fn measure(engine: &Engine, count: u32) -> Result<Report, Failure> {
    let client = Client::new(belljar_server::embedded(engine.clone()), None)?;
    let port = echo().await?;
    let ruled = sandbox(engine, NetworkMode::Full, false).await?;
    let decided = sandbox(engine, NetworkMode::Allowlist, true).await?;
    let measured = async {
        let hello = v1::CallbackHello {
            sandbox_id: decided.to_string(),
            decides_connections: true,
            ..Default::default()
        };
        let verdict = v1::ConnectionVerdict { allow: true, ..Default::default() };
        let answering = answer(&client, hello, move |_| v1::CallbackAnswer {
            connection: Some(verdict.clone()),
            ..Default::default()
        })
        .await?;
        let by_rule = connect(engine, &ruled, port, count, 1).await?;
        let by_client = connect(engine, &decided, port, count, 1).await?;
        let at_once = connect(engine, &decided, port, count * 2, THREADS).await?;
        answering.abort();
        let rate = at_once.taken.len() as f64 / Duration::from_nanos(at_once.whole).as_secs_f64();
        let connections = vec![
            figures("allowed by a rule", by_rule),
            figures("decided by a client", by_client),
            figures("decided by a client, at once", at_once),
        ];
        Ok(Report {
            added_p50_ms: connections[1].p50_ms - connections[0].p50_ms,
            connections,
            decisions_per_second: rate,
        })
    }
    .await;
    for id in [ruled, decided] {
        engine.destroy(id.as_str()).await?;
    }
    measured
}

fn figures(name: &str, told: Told) -> Figures {
    Figures::of(name, told.taken.into_iter().map(Duration::from_nanos).collect())
}

async fn sandbox(
    engine: &Engine,
    mode: NetworkMode,
    connections: bool,
) -> Result<SandboxId, Failure> {
    let here: IpNet = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST).into();
    let wanted = CreateRequest {
        network: NetworkPolicy { mode, allow: Vec::new() },
        network_asked: true,
        network_cidrs: vec![here],
        network_callback: NetworkCallback { connections, requests: false },
        ..request()
    };
    Ok(engine.create(wanted).await?.id)
}

/// Gives back what it gets.
async fn echo() -> Result<u16, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Code::Internal, "nothing can be listened to on loopback").caused_by(&error)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                let mut buffer = [0; 64];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(port)
}

async fn connect(
    engine: &Engine,
    id: &SandboxId,
    port: u16,
    count: u32,
    threads: u32,
) -> Result<Told, Failure> {
    let numbers = [port.to_string(), count.to_string(), threads.to_string()];
    let words = ["python3", "-c", SCRIPT].into_iter().chain(numbers.iter().map(String::as_str));
    let argv = words.map(Into::into).collect();
    let request = ExecRequest { timeout: None, ..ExecRequest::new(Program::Argv(argv)) };
    let ended = engine.exec(id, request).await?.wait().await?;
    serde_json::from_slice(&ended.stdout.data).map_err(|error| {
        let said = String::from_utf8_lossy(&ended.stderr.data);
        let said = said.lines().last().unwrap_or_default().to_owned();
        Failure::new(Code::NetworkDenied, format!("connecting from Python failed: {said}"))
            .caused_by(&error)
            .with_remedy("Python 3 must be in the sandbox's PATH")
    })
}
