//! A sandbox's doors on loopback, and what is seen on both sides of them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_egress::{
    Approver, Authority, Callback, Decider, Destinations, Doors, Egress, Gate, Identity,
    NoApprover, NoDecider, NoOwners, NoSecrets, Owners, Record, Recorder, Rules, Secrets, Settings,
    Verdict,
};
use belljar_policy::document::{Document, Format};
use belljar_policy::{SandboxId, TenantId};
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use rustls::RootCertStore;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::upstream::Upstream;

/// Whatever takes longer than this hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Addresses that origins of the tests listen on, named one by one.
const ORIGINS: [&str; 5] = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"];

pub(crate) struct World {
    pub(crate) egress: Egress,
    pub(crate) gate: Gate,
    pub(crate) upstream: Upstream,
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    tcp: SocketAddr,
    destinations: Arc<Table>,
    pub(crate) records: Arc<Records>,
}

/// Where the client with a given address wants to go: what the kernel tells in a real gateway.
#[derive(Default)]
struct Table(Mutex<HashMap<SocketAddr, SocketAddr>>);

impl Destinations for Table {
    fn original(&self, connection: &TcpStream) -> io::Result<SocketAddr> {
        let peer = connection.peer_addr()?;
        self.0.lock().unwrap().get(&peer).copied().ok_or(io::ErrorKind::NotFound.into())
    }
}

pub(crate) struct Records(watch::Sender<Vec<Record>>);

impl Records {
    /// The records so far, once there are `count`.
    pub(crate) async fn wait(&self, count: usize) -> Vec<Record> {
        let mut records = self.0.subscribe();
        let found = timeout(LIMIT, records.wait_for(|records| records.len() >= count)).await;
        match found {
            Ok(found) => found.unwrap().clone(),
            Err(_) => panic!("not {count} records: {:?}", self.0.borrow()),
        }
    }
}

impl Recorder for Records {
    fn record(&self, identity: &Identity, record: Record) {
        assert_eq!(identity.tenant.as_str(), "acme");
        self.0.send_modify(|records| records.push(record));
    }
}

/// What it takes to look into requests.
#[derive(Default)]
pub(crate) struct Inspection {
    pub(crate) authority: Option<Authority>,
    pub(crate) roots: Option<Arc<RootCertStore>>,
    pub(crate) secrets: Option<Arc<dyn Secrets>>,
    pub(crate) decider: Option<Arc<dyn Decider>>,
    pub(crate) callback: Callback,
    pub(crate) max_flows: Option<usize>,
    pub(crate) owners: Option<Arc<dyn Owners>>,
}

pub(crate) fn sandbox() -> SandboxId {
    SandboxId::from_random("nod1", &[7; 16]).unwrap()
}

pub(crate) fn rules(yaml: &str) -> Rules {
    let mut rules = Rules::from_document(&Document::parse(yaml, Format::Yaml).unwrap());
    rules.cidrs = ORIGINS.iter().map(|address| format!("{address}/32").parse().unwrap()).collect();
    rules
}

impl World {
    pub(crate) async fn new(yaml: &str) -> Self {
        Self::with(rules(yaml), Arc::new(NoApprover), Vec::new()).await
    }

    pub(crate) async fn with(
        rules: Rules,
        approver: Arc<dyn Approver>,
        udp: Vec<(u16, std::net::UdpSocket)>,
    ) -> Self {
        Self::made(rules, approver, udp, Inspection::default()).await
    }

    /// With what it takes to look into requests.
    pub(crate) async fn inspecting(rules: Rules, inspection: Inspection) -> Self {
        Self::made(rules, Arc::new(NoApprover), Vec::new(), inspection).await
    }

    async fn made(
        mut rules: Rules,
        approver: Arc<dyn Approver>,
        udp: Vec<(u16, std::net::UdpSocket)>,
        inspection: Inspection,
    ) -> Self {
        rules.callback = inspection.callback;
        let upstream = Upstream::start().await;
        let asked = vec![belljar_egress::Upstream::Plain(upstream.address)];
        let settings = Settings {
            upstreams: asked,
            roots: inspection.roots.clone(),
            decider: inspection.decider.clone().unwrap_or_else(|| Arc::new(NoDecider)),
            owners: inspection.owners.clone().unwrap_or_else(|| Arc::new(NoOwners)),
            max_flows: inspection.max_flows.unwrap_or(Settings::default().max_flows),
            ..Settings::default()
        };
        Self::open(settings, upstream, rules, approver, udp, inspection)
    }

    pub(crate) fn under(
        settings: Settings,
        upstream: Upstream,
        rules: Rules,
        approver: Arc<dyn Approver>,
        udp: Vec<(u16, std::net::UdpSocket)>,
    ) -> Self {
        Self::open(settings, upstream, rules, approver, udp, Inspection::default())
    }

    fn open(
        settings: Settings,
        upstream: Upstream,
        rules: Rules,
        approver: Arc<dyn Approver>,
        udp: Vec<(u16, std::net::UdpSocket)>,
        inspection: Inspection,
    ) -> Self {
        let destinations = Arc::new(Table::default());
        let records = Arc::new(Records(watch::Sender::default()));
        let settings = Settings {
            destinations: Arc::clone(&destinations) as Arc<dyn Destinations>,
            ..settings
        };
        // A queue as long as a gateway's: the kernel resets what does not fit.
        let listen = || {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            socket.listen(1024).unwrap().into_std().unwrap()
        };
        let (tcp, proxy) = (listen(), listen());
        let (dns_udp, dns_tcp) = loop {
            let tcp = listen();
            if let Ok(udp) = std::net::UdpSocket::bind(tcp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let [tcp_address, proxy_address, dns] =
            [&tcp, &proxy, &dns_tcp].map(|listener| listener.local_addr().unwrap());
        let egress = Egress::new(
            settings,
            Arc::clone(&records) as Arc<dyn Recorder>,
            approver,
            inspection.secrets.unwrap_or_else(|| Arc::new(NoSecrets)),
        );
        let identity = Identity { sandbox: sandbox(), tenant: TenantId::parse("acme").unwrap() };
        let doors = Doors {
            tcp: vec![tcp],
            dns_udp: vec![dns_udp],
            dns_tcp: vec![dns_tcp],
            udp,
            proxy: vec![proxy],
        };
        let gate = egress.open(identity, doors, rules, inspection.authority).unwrap();
        Self {
            egress,
            gate,
            upstream,
            proxy: proxy_address,
            dns,
            tcp: tcp_address,
            destinations,
            records,
        }
    }

    /// Connects as a program in the sandbox does: to an address, and ends in the door.
    pub(crate) async fn connect(&self, destination: SocketAddr) -> TcpStream {
        self.try_connect(destination).await.unwrap()
    }

    /// The same, where a refusal may be faster than the client looks.
    pub(crate) async fn try_connect(&self, destination: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let local = socket.local_addr().unwrap();
        self.destinations.0.lock().unwrap().insert(local, destination);
        socket.connect(self.tcp).await
    }

    /// Resolves as a program in the sandbox does, then connects.
    pub(crate) async fn reach(&self, name: &str, port: u16) -> TcpStream {
        let found = self.resolve(name).await.unwrap();
        self.connect((found[0], port).into()).await
    }

    pub(crate) async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResponseCode> {
        let reply = self.ask(name, RecordType::A).await;
        let address = |data: &RData| match data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        };
        match reply.metadata.response_code {
            ResponseCode::NoError => {
                Ok(reply.answers.iter().filter_map(|record| address(&record.data)).collect())
            }
            code => Err(code),
        }
    }

    pub(crate) async fn ask(&self, name: &str, kind: RecordType) -> Message {
        let mut question = Message::query();
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(Name::from_ascii(format!("{name}.")).unwrap(), kind));
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(self.dns).await.unwrap();
        socket.send(&question.to_vec().unwrap()).await.unwrap();
        let mut buffer = [0; 4096];
        let length = timeout(LIMIT, socket.recv(&mut buffer)).await.unwrap().unwrap();
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(reply.metadata.id, question.metadata.id);
        reply
    }

    /// The records so far, once there are `count`.
    pub(crate) async fn records(&self, count: usize) -> Vec<Record> {
        self.records.wait(count).await
    }

    /// The only record: a denial.
    pub(crate) async fn denied(&self) -> Record {
        let records = self.records(1).await;
        assert_eq!((records.len(), records[0].verdict), (1, Verdict::Deny), "{records:?}");
        records[0].clone()
    }
}
