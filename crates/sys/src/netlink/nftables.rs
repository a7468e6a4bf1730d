//! Packet filters of a network namespace.
//!
//! Only what a table of a few fixed chains needs: a chain hangs at a hook, has a policy and rules; a rule is a list of
//! conditions and what happens where all of them hold.

use std::io;
use std::net::IpAddr;

use super::message::Nested;
use super::{Message, Socket};

/// Where a chain hangs and in which order it comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Whatever arrives, before connections are tracked.
    Arriving,
    /// The first packet of a connection that arrives, to change where it goes.
    Redirecting,
    /// What would go through.
    Forwarding,
    /// What is sent from here.
    Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Accept,
    Drop,
}

#[derive(Clone, Debug)]
pub struct Chain {
    pub name: &'static str,
    pub hook: Hook,
    /// What happens to a packet that no rule decides about.
    pub policy: Policy,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub conditions: Vec<Condition>,
    pub then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Clone, Copy, Debug)]
pub enum Condition {
    /// It arrived on this interface.
    ArrivedOn(u32),
    /// It leaves by this interface.
    LeavesBy(u32),
    Source(IpAddr),
    Destination(IpAddr),
    /// Of the same family as this address.
    FamilyOf(IpAddr),
    Protocol(Protocol),
    DestinationPort(u16),
    /// It belongs to a connection that has had packets both ways.
    Established,
}

#[derive(Clone, Copy, Debug)]
pub enum Then {
    Accept,
    Drop,
    /// It goes to this address and port instead; answers come back as if from where it wanted to go.
    SendTo(IpAddr, u16),
}

const SUBSYSTEM: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = SUBSYSTEM;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
const NESTED_IN_LIST: u16 = 1;

const FAMILY_UNSPECIFIED: u8 = 0;
/// Both versions of the Internet Protocol in one table.
const FAMILY_INET: u8 = 1;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;

const VERDICT: u32 = 0;
const REGISTER: u32 = 1;
const REGISTER_PORT: u32 = 2;

/// Makes a table with these chains, all or nothing.
pub fn add_table(socket: &mut Socket, name: &str, chains: &[Chain]) -> io::Result<()> {
    let mut messages = vec![Message::unanswered(BATCH_BEGIN, &header(FAMILY_UNSPECIFIED, 10))];
    let inet = header(FAMILY_INET, 0);
    messages.push(Message::new(NEW_TABLE, CREATE, &inet).text(1, name));
    for chain in chains {
        let (number, priority, kind) = match chain.hook {
            Hook::Arriving => (0, -300, "filter"),
            Hook::Redirecting => (0, -100, "nat"),
            Hook::Forwarding => (2, 0, "filter"),
            Hook::Sending => (3, 0, "filter"),
        };
        let hook = Nested::default().number(1, number).number(2, priority as u32);
        let policy: u32 = if chain.policy == Policy::Accept { 1 } else { 0 };
        messages.push(
            Message::new(NEW_CHAIN, CREATE, &inet)
                .text(1, name)
                .text(3, chain.name)
                .nested(4, hook)
                .attribute(5, &policy.to_be_bytes())
                .text(7, kind),
        );
        for rule in &chain.rules {
            let mut list = Nested::default();
            for condition in &rule.conditions {
                list = condition.add_to(list);
            }
            messages.push(
                Message::new(NEW_RULE, CREATE | APPEND, &inet)
                    .text(1, name)
                    .text(2, chain.name)
                    .nested(4, rule.then.add_to(list)),
            );
        }
    }
    messages.push(Message::unanswered(BATCH_END, &header(FAMILY_UNSPECIFIED, 10)));
    socket.ask(&messages)
}

/// `struct nfgenmsg`.
fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

impl Condition {
    fn add_to(self, list: Nested) -> Nested {
        const META_IN: u32 = 4;
        const META_OUT: u32 = 5;
        const META_FAMILY: u32 = 15;
        const META_PROTOCOL: u32 = 16;
        const NETWORK_HEADER: u32 = 1;
        const TRANSPORT_HEADER: u32 = 2;
        match self {
            Self::ArrivedOn(index) => equal(meta(list, META_IN), &index.to_ne_bytes()),
            Self::LeavesBy(index) => equal(meta(list, META_OUT), &index.to_ne_bytes()),
            Self::FamilyOf(address) => equal(meta(list, META_FAMILY), &[family(address)]),
            Self::Source(address) => {
                let offset = if address.is_ipv4() { 12 } else { 8 };
                let list = Self::FamilyOf(address).add_to(list);
                let octets = octets(address);
                equal(payload(list, NETWORK_HEADER, offset, octets.len()), &octets)
            }
            Self::Destination(address) => {
                let offset = if address.is_ipv4() { 16 } else { 24 };
                let list = Self::FamilyOf(address).add_to(list);
                let octets = octets(address);
                equal(payload(list, NETWORK_HEADER, offset, octets.len()), &octets)
            }
            Self::Protocol(protocol) => {
                let number = if protocol == Protocol::Tcp { 6 } else { 17 };
                equal(meta(list, META_PROTOCOL), &[number])
            }
            Self::DestinationPort(port) => {
                equal(payload(list, TRANSPORT_HEADER, 2, 2), &port.to_be_bytes())
            }
            Self::Established => established(list),
        }
    }
}

impl Then {
    fn add_to(self, list: Nested) -> Nested {
        match self {
            Self::Accept => verdict(list, 1),
            Self::Drop => verdict(list, 0),
            Self::SendTo(address, port) => {
                let list = immediate(list, REGISTER, &octets(address));
                let list = immediate(list, REGISTER_PORT, &port.to_be_bytes());
                const TO_DESTINATION: u32 = 1;
                let data = Nested::default()
                    .number(1, TO_DESTINATION)
                    .number(2, family(address).into())
                    .number(3, REGISTER)
                    .number(5, REGISTER_PORT);
                expression(list, "nat", data)
            }
        }
    }
}

fn expression(list: Nested, name: &str, data: Nested) -> Nested {
    list.nested(NESTED_IN_LIST, Nested::default().text(1, name).nested(2, data))
}

fn meta(list: Nested, key: u32) -> Nested {
    expression(list, "meta", Nested::default().number(1, REGISTER).number(2, key))
}

fn payload(list: Nested, base: u32, offset: u32, length: usize) -> Nested {
    let data = Nested::default()
        .number(1, REGISTER)
        .number(2, base)
        .number(3, offset)
        .number(4, length as u32);
    expression(list, "payload", data)
}

fn equal(list: Nested, value: &[u8]) -> Nested {
    compare(list, 0, value)
}

fn compare(list: Nested, operator: u32, value: &[u8]) -> Nested {
    let data = Nested::default().number(1, REGISTER).number(2, operator).nested(3, constant(value));
    expression(list, "cmp", data)
}

fn established(list: Nested) -> Nested {
    const NOT_EQUAL: u32 = 1;
    const STATE: u32 = 0;
    const ESTABLISHED: u32 = 1 << 1;
    let list = expression(list, "ct", Nested::default().number(1, REGISTER).number(2, STATE));
    let mask = Nested::default()
        .number(1, REGISTER)
        .number(2, REGISTER)
        .number(3, 4)
        .nested(4, constant(&ESTABLISHED.to_ne_bytes()))
        .nested(5, constant(&[0; 4]));
    compare(expression(list, "bitwise", mask), NOT_EQUAL, &[0; 4])
}

fn immediate(list: Nested, register: u32, value: &[u8]) -> Nested {
    let data = Nested::default().number(1, register).nested(2, constant(value));
    expression(list, "immediate", data)
}

fn verdict(list: Nested, code: u32) -> Nested {
    let code = Nested::default().nested(2, Nested::default().number(1, code));
    expression(list, "immediate", Nested::default().number(1, VERDICT).nested(2, code))
}

fn constant(value: &[u8]) -> Nested {
    Nested::default().attribute(1, value)
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
