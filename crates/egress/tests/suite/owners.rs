//! Whose connections are, as records tell it: never waited for by what goes through.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use belljar_egress::{Ends, Identity, Owner, Owners, Record, Search, Verdict};
use belljar_policy::document::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::origin::{echo, is_cut, says};
use crate::world::{Inspection, World, rules};

/// Keeps what it is asked, for the test to answer.
#[derive(Default)]
struct Asked(Mutex<Vec<(Ends, watch::Sender<Search>)>>);

impl Owners for Asked {
    fn search(&self, _: &Identity, ends: Ends) -> Option<watch::Receiver<Search>> {
        let (told, search) = watch::channel(Search::Waiting);
        self.0.lock().unwrap().push((ends, told));
        Some(search)
    }
}

impl Asked {
    /// What was asked since the last look. A flow is asked about before anything of it arrives anywhere.
    fn next(&self) -> (Ends, watch::Sender<Search>) {
        self.0.lock().unwrap().pop().expect("nothing was asked")
    }
}

async fn asking() -> (World, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let owners = Some(Arc::clone(&asked) as Arc<dyn Owners>);
    let inspection = Inspection { owners, ..Inspection::default() };
    let world = World::inspecting(rules("network_allowlist: [good.example]"), inspection).await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    (world, asked)
}

fn somebody() -> Owner {
    Owner { pid: 7, program: "curl".to_owned(), process: None }
}

/// A flow through which something has gone, and is still open.
async fn open(world: &World, origin: SocketAddr) -> TcpStream {
    let mut stream = world.reach("good.example", origin.port()).await;
    assert_eq!(says(&mut stream, b"hello").await.unwrap(), b"hello");
    stream
}

async fn last(world: &World, count: usize) -> Record {
    world.records(count).await.pop().expect("there are as many")
}

#[tokio::test]
async fn a_record_tells_who_was_found_before_its_end() {
    let (world, asked) = asking().await;
    let origin = echo("127.0.0.2").await;
    let stream = open(&world, origin).await;
    let (ends, told) = asked.next();
    let local = stream.local_addr().unwrap();
    assert_eq!(ends, Ends { transport: Transport::Tcp, local, remote: origin });
    told.send_replace(Search::Found(somebody()));
    drop(stream);
    assert_eq!(last(&world, 1).await.owner, Some(somebody()));
    // Without anybody who looks there is nobody, at once.
    for waiting in [true, false] {
        let stream = open(&world, origin).await;
        let (_, told) = asked.next();
        let told = waiting.then_some(told);
        drop(stream);
        let record = last(&world, if waiting { 2 } else { 3 }).await;
        assert_eq!((record.verdict, record.owner), (Verdict::Allow, None));
        drop(told);
    }
}

#[tokio::test]
async fn a_look_that_has_begun_is_waited_for_by_the_record_alone() {
    let (world, asked) = asking().await;
    let origin = echo("127.0.0.2").await;
    let mut late = world.gate.late();
    for (number, found) in [(1, Some(somebody())), (2, None)] {
        let mut stream = open(&world, origin).await;
        let (_, told) = asked.next();
        told.send_replace(Search::Looking);
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "the flow is over");
        late.wait_for(|late| *late == 1).await.unwrap();
        match &found {
            Some(owner) => drop(told.send_replace(Search::Found(owner.clone()))),
            None => drop(told),
        }
        assert_eq!(last(&world, number).await.owner, found);
        late.wait_for(|late| *late == 0).await.unwrap();
    }
    // Whoever looks and never comes back keeps no record from being written.
    let stream = open(&world, origin).await;
    let (_, told) = asked.next();
    told.send_replace(Search::Looking);
    drop(stream);
    assert_eq!(last(&world, 3).await.owner, None);
    // Nor does the end of the gate.
    let stream = open(&world, origin).await;
    let (_, told) = asked.next();
    told.send_replace(Search::Looking);
    drop(stream);
    let World { gate, records, .. } = world;
    drop(gate);
    assert_eq!(records.wait(4).await.pop().unwrap().owner, None);
    drop(told);
}

#[tokio::test]
async fn who_was_denied_and_who_used_the_proxy_is_told_too() {
    let (world, asked) = asking().await;
    let origin = echo("127.0.0.3").await;
    // Nobody asked for its name.
    let mut stream = world.connect(origin).await;
    let local = stream.local_addr().unwrap();
    assert!(is_cut(&mut stream).await);
    let denied = world.denied().await;
    assert_eq!(denied.owner, None);
    assert_eq!(asked.next().0, Ends { transport: Transport::Tcp, local, remote: origin });

    let origin = echo("127.0.0.2").await;
    let mut stream = TcpStream::connect(world.proxy).await.unwrap();
    let request = format!("CONNECT good.example:{} HTTP/1.1\r\n\r\n", origin.port());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let (ends, told) = asked.next();
    // As the sandbox sees it, the other end is the proxy.
    assert_eq!((ends.local, ends.remote), (stream.local_addr().unwrap(), world.proxy));
    told.send_replace(Search::Found(somebody()));
    drop(stream);
    assert_eq!(last(&world, 2).await.owner, Some(somebody()));
}
