//! Names: which may be asked for, what they resolve to, and which address was given for which name.
//!
//! # How long an answer holds
//!
//! An answer is *pinned*: address → name, for this sandbox. A connection to an address is a connection to the names
//! pinned to it, and to nothing else.
//! - Within the answer's time to live (at least [`pins::FRESH_MIN`], at most [`pins::FRESH_MAX`]) a connection goes to the
//!   address as it is.
//! - Later, up to [`pins::KEPT`] after the last use, the name is resolved again at connect. If the address is
//!   still an answer it is used; if the name moved, the connection goes to where the name is now. So a client
//!   may use an old answer, and an address that was given back to its owner is never reached under an old name.
//! - A new answer is checked like the first: an address that is not public is left out, so a name cannot be turned
//!   to a private address later (rebinding).

mod answer;
mod chain;
mod door;
mod foreign;
mod name;
mod pins;
mod resolver;
mod table;
mod upstreams;

pub(crate) use door::{serve_tcp, serve_udp};
pub(crate) use foreign::is_foreign_resolver;
pub(crate) use name::normalise;
pub(crate) use resolver::Resolver;
pub(crate) use table::{Names, Unresolved};

pub(crate) fn fuzz_question(bytes: &[u8]) {
    use hickory_proto::op::{Message, ResponseCode};
    match answer::read(bytes) {
        Ok(asked) => {
            let reply =
                asked.address(std::net::Ipv4Addr::LOCALHOST.into(), std::time::Duration::ZERO);
            for reply in [reply, asked.refuse(ResponseCode::NXDomain)] {
                let bytes = asked.datagram(&reply);
                assert!(bytes.len() <= 1232 && Message::from_vec(&bytes).is_ok());
            }
        }
        Err(answer::NotAsked::Reply(bytes)) => assert!(Message::from_vec(&bytes).is_ok()),
        Err(answer::NotAsked::Silence) => {}
    }
}

pub(crate) fn fuzz_reply(
    question: &hickory_proto::op::Query,
    message: &hickory_proto::op::Message,
) {
    if let Ok(reply) = chain::read(question, message) {
        assert!(reply.addresses.len() <= chain::MAX_ADDRESSES);
        assert!(reply.aliases.len() <= chain::MAX_ALIASES);
    }
}
