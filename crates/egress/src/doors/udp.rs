//! The UDP doors: one socket per port that a rule names.
//!
//! A datagram is judged by the names of the address that it was sent to, like a connection. Client and destination
//! together are a flow: it has a socket of its own outside, so that only that destination can answer.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_policy::document::Transport;
use belljar_sys::datagram;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::draft::Draft;
use crate::flow::{Answer, Direction, Judge, Permit, Question};
use crate::{Reason, address};

/// Flows that one port may have.
const MAX_FLOWS: usize = 256;
/// Datagrams of one flow that wait to be sent; more are dropped, as networks do.
const QUEUE: usize = 64;
/// A flow without a datagram for this long is over.
const IDLE: Duration = Duration::from_secs(60);
const DENIED_FOR: Duration = Duration::from_secs(5);
const MAX_DATAGRAM: usize = 65_535;
const ERROR_PAUSE: Duration = Duration::from_millis(1);

type Flows = Arc<Mutex<HashMap<(SocketAddr, IpAddr), mpsc::Sender<Vec<u8>>>>>;

/// Serves until the gate is closed.
pub(crate) async fn serve(judge: Arc<Judge>, port: u16, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let flows = Flows::default();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        let received =
            socket.try_io(Interest::READABLE, || datagram::receive(&*socket, &mut buffer));
        let received = match received {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            // One that cannot be read, or whose destination is not told; however many come, they do not take the processor.
            Err(_) => {
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        let bytes = buffer[..received.length].to_vec();
        let key = (received.from, received.to.to_canonical());
        let mut table = flows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = table.get(&key) {
            // A full queue drops the datagram.
            let _ = sender.try_send(bytes);
            continue;
        }
        if table.len() >= MAX_FLOWS {
            continue;
        }
        let Some(place) = judge.enter() else { continue };
        let (sender, receiver) = mpsc::channel(QUEUE);
        let _ = sender.try_send(bytes);
        table.insert(key, sender);
        drop(table);
        let flow = Flow {
            judge: Arc::clone(&judge),
            door: Arc::clone(&socket),
            client: received.from,
            destination: key.1,
            port,
        };
        let flows = Arc::clone(&flows);
        tokio::spawn(async move {
            flow.conduct(receiver).await;
            drop(place);
            flows.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        });
    }
}

struct Flow {
    judge: Arc<Judge>,
    door: Arc<UdpSocket>,
    client: SocketAddr,
    destination: IpAddr,
    port: u16,
}

#[derive(Default)]
struct Bytes {
    up: u64,
    down: u64,
}

impl Flow {
    async fn conduct(self, mut from_client: mpsc::Receiver<Vec<u8>>) {
        let meant = SocketAddr::new(self.destination, self.port);
        let searched = self.judge.search(Transport::Udp, Some(self.client), Some(meant));
        let mut draft = Draft::new(Transport::Udp, Some(self.destination), self.port);
        let mut bytes = Bytes::default();
        let closed = self.judge.live().closed().clone();
        let run = self.run(&mut from_client, &mut draft, &mut bytes);
        let reason = closed.run_until_cancelled(run).await.unwrap_or(Err(Reason::Revoked));
        let reason = reason.unwrap_or_else(|reason| reason);
        let denied = reason.verdict() == crate::Verdict::Deny;
        self.judge.record_of(&searched, draft.finish(reason, bytes.up, bytes.down));
        if denied {
            // What it sends right after is the same denial, not one for each datagram. Then it is judged anew.
            let rest = async { while from_client.recv().await.is_some() {} };
            let _ = timeout(DENIED_FOR, rest).await;
        }
    }

    async fn run(
        &self,
        from_client: &mut mpsc::Receiver<Vec<u8>>,
        draft: &mut Draft,
        bytes: &mut Bytes,
    ) -> Result<Reason, Reason> {
        let (host, permit) = self.permit(draft).await?;
        draft.host = Some(host.clone());
        draft.rule.clone_from(&permit.rule);
        let outside = self.connect(&host).await?;
        draft.address = outside.peer_addr().ok().map(|peer| peer.ip());
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            tokio::select! {
                () = permit.revoked() => return Err(Reason::Revoked),
                sent = from_client.recv() => {
                    let Some(sent) = sent else { return Ok(permit.reason) };
                    let counted = permit.count(Direction::Up, sent.len()).await;
                    counted.map_err(|refusal| refusal.reason)?;
                    bytes.up += sent.len() as u64;
                    // Refused by the other side: datagrams get lost, the flow goes on.
                    let _ = outside.send(&sent).await;
                }
                received = outside.recv(&mut buffer) => {
                    let Ok(length) = received else { continue };
                    let counted = permit.count(Direction::Down, length).await;
                    counted.map_err(|refusal| refusal.reason)?;
                    bytes.down += length as u64;
                    let _ = self.reply(&buffer[..length]);
                }
                () = tokio::time::sleep(IDLE) => return Ok(permit.reason),
            }
        }
    }

    async fn permit(&self, draft: &mut Draft) -> Result<(String, Permit), Reason> {
        let mut names: Vec<String> =
            self.judge.names().names(self.destination).into_iter().map(|pin| pin.name).collect();
        if names.is_empty() {
            let rules = self.judge.rules();
            if !address::admits(self.destination, &rules.cidrs) {
                return Err(Reason::AddressNotPublic);
            }
            if !self.judge.allows_addresses() {
                return Err(Reason::NotResolved);
            }
            names.push(self.destination.to_string());
        }
        let mut last = Reason::NotResolved;
        for host in names {
            draft.host = Some(host.clone());
            let question = Question {
                host: &host,
                address: Some(self.destination),
                port: self.port,
                transport: Transport::Udp,
                request: None,
                source: Some(self.client),
                greeting: None,
            };
            match self.judge.judge(question).await {
                Answer::Allow(permit) => return Ok((host, permit)),
                Answer::Inspect(_) => last = Reason::Unsupported,
                Answer::Deny(refusal) => {
                    draft.rule = refusal.rule;
                    last = refusal.reason;
                }
            }
        }
        Err(last)
    }

    async fn connect(&self, host: &str) -> Result<UdpSocket, Reason> {
        let address = self.judge.locate(host, Some(self.destination)).await;
        let address = address.map_err(|refusal| refusal.reason)?;
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let connected = async {
            let socket = UdpSocket::bind((any, 0)).await?;
            socket.connect((address, self.port)).await?;
            Ok::<_, io::Error>(socket)
        };
        connected.await.map_err(|_| Reason::ConnectFailed)
    }

    /// From the address that the client sent to, whatever we connected to.
    fn reply(&self, bytes: &[u8]) -> io::Result<()> {
        self.door.try_io(Interest::WRITABLE, || {
            datagram::send(&*self.door, bytes, self.destination, self.client)
        })
    }
}
