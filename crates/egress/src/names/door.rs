//! The DNS door: what the sandbox asks, over UDP and TCP.
//!
//! A name that no rule allows is answered `NXDOMAIN` and never leaves. Allowed names are answered for A and AAAA; HTTPS
//! and SVCB have no answer (they would carry keys for encrypted greetings); other types are refused. A name that
//! somebody must approve gets an address that stands in for it and is resolved only after the approval, so that asking
//! gives nothing away. Where a program decides, it is asked about the question itself and may name the server to ask.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use belljar_policy::document::{NetworkVerdict, Transport};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::{Asked, NotAsked, read};
use super::name::{is_local, normalise};
use super::table::Unresolved;
use crate::flow::{Judge, Refusal};
use crate::{Connecting, Reason, Record, Stage, Verdict, address};

/// Questions of one sandbox that wait for an answer.
const MAX_OPEN: usize = 64;
const MAX_CONNECTIONS: usize = 16;
/// A connection without a question for this long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// And in any case after this time.
const LIFETIME: Duration = Duration::from_secs(300);
/// How long a client may keep an address that stands in for a name.
const STAND_IN_TTL: Duration = Duration::from_secs(60);
const ERROR_PAUSE: Duration = Duration::from_millis(1);
const PORT: u16 = 53;

/// Serves until the gate is closed.
pub(crate) async fn serve_udp(judge: Arc<Judge>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let open = Arc::new(Semaphore::new(MAX_OPEN));
    let mut buffer = vec![0; 2048];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // An ICMP error for an earlier reply; the socket goes on.
            Err(error) => {
                tracing::debug!(%error, "the DNS door received nothing");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        // Too many at once: the client asks again.
        let Ok(permit) = Arc::clone(&open).try_acquire_owned() else {
            judge.record_denied_name(denial(Transport::Udp, "", Reason::TooMany));
            continue;
        };
        let question = buffer[..length].to_vec();
        let (judge, socket) = (Arc::clone(&judge), Arc::clone(&socket));
        tokio::spawn(async move {
            let closed = judge.live().closed().clone();
            let answered = async {
                let bytes = match read(&question) {
                    Ok(asked) => {
                        let ends = Ends { client: Some(client), door: socket.local_addr().ok() };
                        let message = answer(&judge, &asked, Transport::Udp, ends).await;
                        asked.datagram(&message)
                    }
                    Err(NotAsked::Reply(bytes)) => bytes,
                    Err(NotAsked::Silence) => return,
                };
                // A client that is gone does not matter.
                let _ = socket.send_to(&bytes, client).await;
            };
            closed.run_until_cancelled(answered).await;
            drop(permit);
        });
    }
}

/// Serves until the gate is closed.
pub(crate) async fn serve_tcp(judge: Arc<Judge>, listener: TcpListener) {
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&open).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let judge = Arc::clone(&judge);
        tokio::spawn(async move {
            let closed = judge.live().closed().clone();
            let served = timeout(LIFETIME, serve_connection(&judge, stream));
            closed.run_until_cancelled(served).await;
            drop(permit);
        });
    }
}

async fn serve_connection(judge: &Judge, mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let question = timeout(IDLE, async {
            let length = stream.read_u16().await?;
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await?;
            Ok::<_, std::io::Error>(question)
        });
        let bytes = match read(&question.await??) {
            Ok(asked) => {
                let ends = Ends { client: stream.peer_addr().ok(), door: stream.local_addr().ok() };
                let message = answer(judge, &asked, Transport::Tcp, ends).await;
                asked.bytes(&message)
            }
            Err(NotAsked::Reply(bytes)) => bytes,
            Err(NotAsked::Silence) => return Ok(()),
        };
        let length = u16::try_from(bytes.len()).unwrap_or(0);
        let framed = [&length.to_be_bytes(), &bytes[..]].concat();
        timeout(IDLE, stream.write_all(&framed)).await??;
    }
}

/// Who asks, and whom.
#[derive(Clone, Copy)]
struct Ends {
    client: Option<SocketAddr>,
    door: Option<SocketAddr>,
}

/// How a name that may be resolved is.
enum Resolved {
    /// Now.
    Now,
    /// After somebody said yes to a connection.
    Later,
}

/// Decides and answers one question.
async fn answer(judge: &Judge, asked: &Asked, transport: Transport, ends: Ends) -> Message {
    let begin = Instant::now();
    let text = asked.query.name().to_ascii();
    let denied = |name: &str, reason: Reason, rule: Option<String>| {
        let denial = denial(transport, name, reason);
        judge.record_denied_name(Record { rule, duration: begin.elapsed(), ..denial });
    };
    if !judge.names().question_allowed() {
        denied("", Reason::TooMany, None);
        return asked.refuse(ResponseCode::Refused);
    }
    let name = match normalise(&text) {
        Some(name) if !is_local(&name) => name,
        // Escaped and cut: what a sandbox asks is not for a record to repeat at any length.
        _ => {
            denied(&belljar_policy::shown(&text), Reason::NotListed, None);
            return asked.refuse(ResponseCode::NXDomain);
        }
    };
    let rules = judge.rules();
    let kind = asked.query.query_type();
    let resolved = match rules.flows.resolution(&name) {
        Some(NetworkVerdict::Allow) => Resolved::Now,
        Some(NetworkVerdict::Ask) => Resolved::Later,
        None if rules.callback.connections => {
            // Types that are not answered anyway need no decision.
            if matches!(kind, RecordType::A | RecordType::AAAA)
                && let Err(refusal) = decided(judge, &name, kind, transport, ends).await
            {
                denied(&name, refusal.reason, refusal.rule);
                return asked.refuse(ResponseCode::NXDomain);
            }
            Resolved::Now
        }
        None if rules.ask.is_some() => Resolved::Later,
        verdict => {
            let ruled = verdict.is_some();
            let reason = if ruled { Reason::RuleDenies } else { Reason::NotListed };
            denied(&name, reason, None);
            return asked.refuse(ResponseCode::NXDomain);
        }
    };
    match (kind, resolved) {
        (RecordType::A, Resolved::Later) => {
            asked.address(judge.names().stand_in(&name).into(), STAND_IN_TTL)
        }
        (RecordType::AAAA, Resolved::Later) => asked.refuse(ResponseCode::NoError),
        (RecordType::A | RecordType::AAAA, Resolved::Now) => {
            match judge.names().resolve(&name, kind, &rules.cidrs).await {
                Ok(reply) => {
                    // Whoever changed the rules meanwhile changed what this address may be used for, too.
                    judge.names().pin(&name, &reply);
                    asked.found(&reply)
                }
                Err(Unresolved::Missing { exists: true }) => asked.refuse(ResponseCode::NoError),
                Err(Unresolved::Missing { exists: false }) => asked.refuse(ResponseCode::NXDomain),
                Err(unresolved @ Unresolved::NotPublic(_)) => {
                    denied(&name, unresolved.reason(), None);
                    asked.refuse(ResponseCode::NXDomain)
                }
                Err(Unresolved::Failed | Unresolved::TooMany) => {
                    asked.refuse(ResponseCode::ServFail)
                }
            }
        }
        (RecordType::HTTPS | RecordType::SVCB, _) => asked.refuse(ResponseCode::NoError),
        _ => {
            denied(&name, Reason::QueryType, None);
            asked.refuse(ResponseCode::Refused)
        }
    }
}

/// What is recorded of a question that has no answer.
fn denial(transport: Transport, name: &str, reason: Reason) -> Record {
    Record {
        at: SystemTime::now(),
        stage: Stage::Dns,
        transport,
        host: Some(name.to_owned()),
        address: None,
        port: PORT,
        sni: None,
        method: None,
        path: None,
        rule: None,
        verdict: Verdict::Deny,
        reason,
        bytes_up: 0,
        bytes_down: 0,
        duration: Duration::ZERO,
        owner: None,
    }
}

/// Asks the program whether a name may be resolved, and remembers by whom.
async fn decided(
    judge: &Judge,
    name: &str,
    kind: RecordType,
    transport: Transport,
    ends: Ends,
) -> Result<(), Refusal> {
    let connecting = Connecting {
        transport,
        source: ends.client.map(|client| (client.ip().to_canonical(), client.port()).into()),
        address: ends.door.map(|door| door.ip().to_canonical()),
        port: PORT,
        host: None,
        question: Some((name.to_owned(), kind.to_string())),
        greeting: None,
        rule: None,
    };
    let resolver = judge.decide_name(&connecting).await?;
    // The question would leave from this host: it goes where the sandbox could go itself.
    if let Some(resolver) = resolver
        && !address::admits(resolver.ip(), &judge.rules().cidrs)
    {
        return Err(Reason::AddressNotPublic.into());
    }
    judge.names().ask_at(name, resolver);
    Ok(())
}
