//! Reading an upstream's reply: only what follows from the question counts.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

/// Aliases from the question to an address.
pub(crate) const MAX_ALIASES: usize = 8;
/// Addresses of one answer; more help nobody.
pub(crate) const MAX_ADDRESSES: usize = 32;

/// What one reply says about one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Name and the alias it has, in order from the question on.
    pub(crate) aliases: Vec<(Name, Name)>,
    /// Where the aliases end.
    pub(crate) end: Name,
    /// The addresses of that name.
    pub(crate) addresses: Vec<IpAddr>,
    /// The shortest on the way.
    pub(crate) ttl: Duration,
    pub(crate) exists: bool,
}

/// A reply that answers something else, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadReply {
    #[error("the reply is not to the question")]
    Foreign,
    #[error("the server failed: {0}")]
    Server(ResponseCode),
    #[error("the aliases go in a circle or on for too long")]
    Aliases,
}

/// Follows the aliases from the question; records of other names are ignored.
pub(crate) fn read(question: &Query, reply: &Message) -> Result<Reply, BadReply> {
    let metadata = &reply.metadata;
    let [echoed] = &reply.queries[..] else { return Err(BadReply::Foreign) };
    if metadata.message_type != MessageType::Response
        || metadata.op_code != OpCode::Query
        || echoed.query_type() != question.query_type()
        || echoed.query_class() != question.query_class()
        || echoed.name() != question.name()
    {
        return Err(BadReply::Foreign);
    }
    let exists = match metadata.response_code {
        ResponseCode::NoError => true,
        ResponseCode::NXDomain => false,
        other => return Err(BadReply::Server(other)),
    };
    let mut found = Reply {
        aliases: Vec::new(),
        end: question.name().clone(),
        addresses: Vec::new(),
        ttl: Duration::from_secs(u32::MAX.into()),
        exists,
    };
    let answers = || reply.answers.iter().filter(|record| record.dns_class == DNSClass::IN);
    while let Some((ttl, target)) = answers().find_map(|record| match &record.data {
        RData::CNAME(target) if record.name == found.end => Some((record.ttl, target.0.clone())),
        _ => None,
    }) {
        let circle = found.aliases.iter().any(|(name, _)| *name == target);
        if circle || target == found.end || found.aliases.len() == MAX_ALIASES {
            return Err(BadReply::Aliases);
        }
        found.ttl = found.ttl.min(Duration::from_secs(ttl.into()));
        let name = std::mem::replace(&mut found.end, target.clone());
        found.aliases.push((name, target));
    }
    for record in answers().filter(|record| record.name == found.end) {
        let address = match (&record.data, question.query_type()) {
            (RData::A(address), RecordType::A) => IpAddr::V4(address.0),
            (RData::AAAA(address), RecordType::AAAA) => IpAddr::V6(address.0),
            _ => continue,
        };
        if found.addresses.len() < MAX_ADDRESSES && !found.addresses.contains(&address) {
            found.addresses.push(address);
            found.ttl = found.ttl.min(Duration::from_secs(record.ttl.into()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, CNAME};
    use std::net::Ipv4Addr;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn alias(from: &str, to: &str, ttl: u32) -> Record {
        Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
    }

    fn address(of: &str, last: u8, ttl: u32) -> Record {
        Record::from_rdata(name(of), ttl, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
    }

    fn reply(question: &Query, answers: Vec<Record>) -> Message {
        let mut message = Message::response(7, OpCode::Query);
        message.add_query(question.clone());
        message.insert_answers(answers);
        message
    }

    #[test]
    fn only_what_follows_from_the_question_counts() {
        let question = Query::query(name("a.example."), RecordType::A);
        let answers = vec![
            address("evil.example.", 66, 9),
            alias("B.example.", "c.example.", 30),
            address("C.example.", 1, 60),
            address("c.example.", 1, 60),
            address("a.example.", 67, 1),
            alias("a.example.", "b.example.", 90),
        ];
        let found = read(&question, &reply(&question, answers)).unwrap();
        assert_eq!(found.addresses, [IpAddr::from([192, 0, 2, 1])]);
        assert_eq!(found.aliases.len(), 2);
        assert_eq!(found.ttl.as_secs(), 30);
    }

    #[test]
    fn circles_and_foreign_replies_are_refused() {
        let question = Query::query(name("a.example."), RecordType::A);
        let circle =
            vec![alias("a.example.", "b.example.", 1), alias("b.example.", "a.example.", 1)];
        assert_eq!(read(&question, &reply(&question, circle)), Err(BadReply::Aliases));
        let itself = vec![alias("a.example.", "a.example.", 1)];
        assert_eq!(read(&question, &reply(&question, itself)), Err(BadReply::Aliases));
        let long = (0..20)
            .map(|n| {
                let from = if n == 0 { "a.example.".to_owned() } else { format!("n{n}.example.") };
                alias(&from, &format!("n{}.example.", n + 1), 1)
            })
            .collect();
        assert_eq!(read(&question, &reply(&question, long)), Err(BadReply::Aliases));
        let other = Query::query(name("b.example."), RecordType::A);
        assert_eq!(read(&question, &reply(&other, Vec::new())), Err(BadReply::Foreign));
        let mut asked = reply(&question, Vec::new());
        asked.metadata.message_type = MessageType::Query;
        assert_eq!(read(&question, &asked), Err(BadReply::Foreign));
    }
}
