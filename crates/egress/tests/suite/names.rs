use std::sync::Arc;

use belljar_egress::{NoApprover, Reason, Settings, Stage};
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::upstream::Upstream;
use crate::world::{World, rules};

const LIST: &str = "network_allowlist: [good.example, '*.wide.example']";

#[tokio::test]
async fn allowed_names_are_answered_and_no_other_name_leaves() {
    let world = World::new(LIST).await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    world.upstream.set("evil.example", &["127.0.0.3"]);
    assert_eq!(
        world.resolve("good.example").await.unwrap(),
        ["127.0.0.2".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(world.resolve("GOOD.Example").await.unwrap().len(), 1);
    for name in [
        "evil.example",
        "data.evil.example",
        "notgood.example",
        "good.example.evil.example",
        "wide.example",
        "localhost",
        "good",
    ] {
        assert_eq!(world.resolve(name).await, Err(ResponseCode::NXDomain), "{name}");
    }
    assert_eq!(world.upstream.asked(), ["good.example", "good.example"]);
    let records = world.records(7).await;
    assert_eq!(records[0].host.as_deref(), Some("evil.example"));
    assert!(
        records
            .iter()
            .all(|record| record.stage == Stage::Dns && record.reason == Reason::NotListed)
    );
}

#[tokio::test]
async fn a_denied_name_is_one_record_however_often_it_is_asked_for() {
    let world = World::new(LIST).await;
    for _ in 0..3 {
        world.ask("evil.example", RecordType::A).await;
        world.ask("evil.example", RecordType::AAAA).await;
    }
    world.ask("other.example", RecordType::A).await;
    let records = world.records(2).await;
    assert_eq!(records.len(), 2, "{records:?}");
}

#[tokio::test]
async fn answers_that_are_not_public_are_left_out_also_later() {
    let world = World::new(LIST).await;
    world.upstream.set("good.example", &["127.0.0.2", "10.0.0.1", "169.254.169.254", "127.0.0.1"]);
    assert_eq!(world.resolve("good.example").await.unwrap().len(), 1);
    // Rebinding: the second answer is private.
    for address in
        ["10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "0.0.0.0"]
    {
        world.upstream.set("good.example", &[address]);
        assert_eq!(world.resolve("good.example").await, Err(ResponseCode::NXDomain), "{address}");
    }
    world.upstream.set("good.example", &["fd00:ec2::254", "::1", "::ffff:10.0.0.1"]);
    let reply = world.ask("good.example", RecordType::AAAA).await;
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(world.denied().await.reason, Reason::AddressNotPublic);
}

#[tokio::test]
async fn aliases_are_followed_and_told() {
    let world = World::new(LIST).await;
    world.upstream.alias("a.wide.example", "b.elsewhere.example");
    world.upstream.alias("b.elsewhere.example", "c.elsewhere.example");
    world.upstream.set("c.elsewhere.example", &["127.0.0.2"]);
    let reply = world.ask("a.wide.example", RecordType::A).await;
    let kinds: Vec<RecordType> = reply.answers.iter().map(|record| record.record_type()).collect();
    assert_eq!(kinds, [RecordType::CNAME, RecordType::CNAME, RecordType::A]);
    // Only the name that was asked for is allowed by the answer.
    assert_eq!(world.resolve("c.elsewhere.example").await, Err(ResponseCode::NXDomain));
}

#[tokio::test]
async fn other_kinds_of_questions_are_not_passed_on() {
    let world = World::new(LIST).await;
    world.upstream.set("good.example", &["127.0.0.2"]);
    for kind in [RecordType::HTTPS, RecordType::SVCB] {
        let reply = world.ask("good.example", kind).await;
        assert_eq!((reply.metadata.response_code, reply.answers.len()), (ResponseCode::NoError, 0));
    }
    for kind in
        [RecordType::TXT, RecordType::ANY, RecordType::NULL, RecordType::MX, RecordType::AXFR]
    {
        let reply = world.ask("good.example", kind).await;
        assert_eq!(reply.metadata.response_code, ResponseCode::Refused, "{kind}");
    }
    assert_eq!(world.upstream.asked(), [""; 0]);
    assert_eq!(world.denied().await.reason, Reason::QueryType);
}

#[tokio::test]
async fn tcp_is_answered_alike_and_cut_answers_are_fetched_whole() {
    let world = World::new(LIST).await;
    world.upstream.only_over_tcp();
    world.upstream.set("good.example", &["127.0.0.2"]);
    assert_eq!(world.resolve("good.example").await.unwrap().len(), 1);
    let mut stream = TcpStream::connect(world.dns).await.unwrap();
    for (name, code, count) in
        [("good.example.", ResponseCode::NoError, 1), ("evil.example.", ResponseCode::NXDomain, 0)]
    {
        let mut question = Message::query();
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        let question = question.to_vec().unwrap();
        stream.write_u16(u16::try_from(question.len()).unwrap()).await.unwrap();
        stream.write_all(&question).await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut reply = vec![0; length.into()];
        stream.read_exact(&mut reply).await.unwrap();
        let reply = Message::from_vec(&reply).unwrap();
        assert_eq!((reply.metadata.response_code, reply.answers.len()), (code, count));
    }
}

#[tokio::test]
async fn many_addresses_are_cut_over_udp() {
    let world = World::new(LIST).await;
    let many: Vec<String> = (1..=60).map(|n| format!("93.184.216.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.upstream.set("good.example", &many);
    let reply = world.ask("good.example", RecordType::A).await;
    assert!(reply.metadata.truncation && reply.answers.is_empty());
}

#[tokio::test]
async fn questions_are_limited_per_sandbox() {
    let upstream = Upstream::start().await;
    let settings = Settings {
        upstreams: vec![belljar_egress::Upstream::Plain(upstream.address)],
        // However slow this machine is, it asks faster.
        questions_per_second: 1,
        ..Settings::default()
    };
    let world = World::under(settings, upstream, rules(LIST), Arc::new(NoApprover), Vec::new());
    world.upstream.set("good.example", &["127.0.0.2"]);
    let mut refused = 0;
    for n in 0..400 {
        let reply = world.ask(&format!("n{n}.example"), RecordType::A).await;
        refused += u32::from(reply.metadata.response_code == ResponseCode::Refused);
    }
    assert!(refused > 50, "{refused}");
    let records = world.records(1).await;
    // One for all that are refused within some seconds.
    let told = records.iter().filter(|record| record.reason == Reason::TooMany).count();
    assert!((1..20).contains(&told), "{told} for {refused}");
}

#[tokio::test]
async fn upstreams_over_tls_are_verified_and_the_next_is_asked() {
    let upstream = Upstream::start().await;
    upstream.set("good.example", &["127.0.0.2"]);
    let (address, roots) = upstream.over_tls().await;
    for (name, expected) in [("dns.example", Ok(1)), ("other.example", Err(ResponseCode::ServFail))]
    {
        // Nobody listens on port 1: the second server is asked.
        let gone = belljar_egress::Upstream::Tcp("127.0.0.1:1".parse().unwrap());
        let settings = Settings {
            upstreams: vec![gone, belljar_egress::Upstream::Tls(address, name.to_owned())],
            roots: Some(Arc::clone(&roots)),
            ..Settings::default()
        };
        let world =
            World::under(settings, upstream.clone(), rules(LIST), Arc::new(NoApprover), Vec::new());
        assert_eq!(world.resolve("good.example").await.map(|found| found.len()), expected);
    }
    assert_eq!(upstream.asked(), ["good.example"], "who is not who it should be is not asked");
}
