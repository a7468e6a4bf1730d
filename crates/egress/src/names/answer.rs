//! What is said to the sandbox: replies made by us, never passed on.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{DNSClass, Name, RData, Record};

use super::chain::Reply;

/// Without EDNS, replies over UDP have at most this size.
const PLAIN_DATAGRAM: u16 = 512;
/// And never more than this, whatever the client says it takes.
const MAX_DATAGRAM: u16 = 1232;
/// Questions fit this many bytes, with room for options.
const MAX_QUESTION: usize = 1024;

/// A question that can be answered.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    id: u16,
    recursion_desired: bool,
    edns: Option<u16>,
    pub(crate) query: Query,
}

/// Why bytes are no question: to be answered with a code, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Nobody could tell whom the answer is for.
    Silence,
    Reply(Vec<u8>),
}

/// Reads a question.
pub(crate) fn read(bytes: &[u8]) -> Result<Asked, NotAsked> {
    // Before anything is parsed: the first two bytes are the number, the third's first bit says "reply".
    let Some(&[high, low, flags, _]) = bytes.first_chunk::<4>() else {
        return Err(NotAsked::Silence);
    };
    if flags & 0x80 != 0 {
        return Err(NotAsked::Silence);
    }
    let id = u16::from_be_bytes([high, low]);
    let refuse = |code| NotAsked::Reply(bare(id, OpCode::Query, code));
    if bytes.len() > MAX_QUESTION {
        return Err(refuse(ResponseCode::FormErr));
    }
    let message = Message::from_vec(bytes).map_err(|_| refuse(ResponseCode::FormErr))?;
    if message.metadata.message_type != MessageType::Query {
        return Err(NotAsked::Silence);
    }
    if message.metadata.op_code != OpCode::Query {
        return Err(refuse(ResponseCode::NotImp));
    }
    let [query] = &message.queries[..] else { return Err(refuse(ResponseCode::FormErr)) };
    if !message.answers.is_empty() || !message.authorities.is_empty() {
        return Err(refuse(ResponseCode::FormErr));
    }
    if query.query_class() != DNSClass::IN {
        return Err(refuse(ResponseCode::Refused));
    }
    Ok(Asked {
        id,
        recursion_desired: message.metadata.recursion_desired,
        edns: message.edns.as_ref().map(hickory_proto::op::Edns::max_payload),
        query: query.clone(),
    })
}

impl Asked {
    /// A reply with a code and without answers.
    pub(crate) fn refuse(&self, code: ResponseCode) -> Message {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.response_code = code;
        message.add_query(self.query.clone());
        if self.edns.is_some() {
            let mut edns = hickory_proto::op::Edns::new();
            edns.set_max_payload(MAX_DATAGRAM);
            message.set_edns(edns);
        }
        message
    }

    pub(crate) fn found(&self, reply: &Reply) -> Message {
        let mut message = self.refuse(ResponseCode::NoError);
        let ttl = u32::try_from(reply.ttl.as_secs()).unwrap_or(u32::MAX);
        let mut owner = self.query.name().clone();
        for (_, alias) in &reply.aliases {
            let data = RData::CNAME(CNAME(alias.clone()));
            message.add_answer(Record::from_rdata(owner, ttl, data));
            owner = alias.clone();
        }
        for address in &reply.addresses {
            message.add_answer(Record::from_rdata(owner.clone(), ttl, data(*address)));
        }
        message
    }

    /// One address, for `ttl`.
    pub(crate) fn address(&self, address: IpAddr, ttl: Duration) -> Message {
        self.found(&Reply {
            aliases: Vec::new(),
            end: Name::root(),
            addresses: vec![address],
            ttl,
            exists: true,
        })
    }

    /// The bytes for a datagram: cut where they do not fit.
    pub(crate) fn datagram(&self, message: &Message) -> Vec<u8> {
        let most = self.edns.unwrap_or(PLAIN_DATAGRAM).clamp(PLAIN_DATAGRAM, MAX_DATAGRAM);
        let bytes = self.bytes(message);
        if bytes.len() <= most.into() {
            return bytes;
        }
        let mut cut = self.refuse(ResponseCode::NoError);
        cut.metadata.truncation = true;
        self.bytes(&cut)
    }

    pub(crate) fn bytes(&self, message: &Message) -> Vec<u8> {
        message.to_vec().unwrap_or_else(|_| bare(self.id, OpCode::Query, ResponseCode::ServFail))
    }
}

fn data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

fn bare(id: u16, op_code: OpCode, code: ResponseCode) -> Vec<u8> {
    // A header alone can always be written.
    Message::error_msg(id, op_code, code).to_vec().unwrap_or_default()
}
