use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use tokio::net::UdpSocket;

use super::*;
use crate::Upstream;

/// A name server that knows one address for everything, which can be changed.
struct Server {
    names: Names,
    address: Arc<Mutex<Ipv4Addr>>,
    asked: Arc<AtomicUsize>,
}

async fn server(first: &str) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Plain(socket.local_addr().unwrap());
    let address = Arc::new(Mutex::new(first.parse().unwrap()));
    let asked = Arc::new(AtomicUsize::new(0));
    let (current, count) = (Arc::clone(&address), Arc::clone(&asked));
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            count.fetch_add(1, Ordering::SeqCst);
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let mut reply = question.clone().into_response();
            let query = question.queries[0].clone();
            if query.query_type() == RecordType::A {
                let data = RData::A(A(*current.lock().unwrap()));
                reply.add_answer(Record::from_rdata(query.name().clone(), 0, data));
            }
            socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
        }
    });
    let names = Names::new(Arc::new(Resolver::new(vec![upstream], None)), 1000);
    Server { names, address, asked }
}

impl Server {
    fn pin(&self, age: Duration, address: &str) -> IpAddr {
        let address = address.parse().unwrap();
        let then = Instant::now().checked_sub(age).unwrap();
        self.names.lock().pins.pin(then, address, "a.example", Duration::ZERO);
        address
    }

    async fn locate(&self, wanted: IpAddr) -> Result<IpAddr, Unresolved> {
        self.names.locate("a.example", Some(wanted), &[]).await
    }
}

#[tokio::test]
async fn a_fresh_answer_is_used_as_it_is() {
    let server = server("93.184.216.35").await;
    let wanted = server.pin(Duration::ZERO, "93.184.216.34");
    assert_eq!(server.locate(wanted).await, Ok(wanted));
    assert_eq!(server.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_old_answer_is_checked_again() {
    let server = server("93.184.216.34").await;
    let wanted = server.pin(Duration::from_secs(10), "93.184.216.34");
    assert_eq!(server.locate(wanted).await, Ok(wanted));
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
    assert_eq!(server.locate(wanted).await, Ok(wanted), "it is fresh again");
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_name_that_moved_is_followed_and_one_turned_inwards_is_not() {
    let server = server("93.184.216.40").await;
    let wanted = server.pin(Duration::from_secs(10), "93.184.216.34");
    let moved: IpAddr = "93.184.216.40".parse().unwrap();
    assert_eq!(server.locate(wanted).await, Ok(moved));
    assert!(!server.names.names(moved).is_empty());
    *server.address.lock().unwrap() = "10.0.0.1".parse().unwrap();
    assert!(matches!(server.locate(wanted).await, Err(Unresolved::NotPublic(_))));
}

#[tokio::test]
async fn an_address_is_fresh_only_for_the_name_it_was_given_for() {
    let server = server("93.184.216.40").await;
    let wanted = server.pin(Duration::ZERO, "93.184.216.34");
    let found = server.names.locate("b.example", Some(wanted), &[]).await;
    assert_eq!(found, Ok("93.184.216.40".parse().unwrap()));
}

#[tokio::test]
async fn one_sandbox_leaves_the_servers_to_others() {
    // Never answers.
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Plain(silent.local_addr().unwrap());
    let resolver = Arc::new(Resolver::new(vec![upstream], None));
    let free = resolver.free();
    let greedy = Arc::new(Names::new(Arc::clone(&resolver), 1000));
    let mut flows = tokio::task::JoinSet::new();
    for number in 0..200 {
        let names = Arc::clone(&greedy);
        let host = format!("n{number}.example");
        flows.spawn(async move { names.locate(&host, None, &[]).await });
    }
    let mut buffer = [0; 1500];
    for _ in 0..MAX_OPEN {
        silent.recv_from(&mut buffer).await.unwrap();
        assert!(resolver.free() >= free - MAX_OPEN, "{} of {free}", resolver.free());
    }
}
