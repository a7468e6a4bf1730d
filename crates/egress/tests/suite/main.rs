//! The whole egress in one process: real sockets on loopback, a DNS server and origins of our own.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod approvals;
mod budgets;
mod callback;
mod credentials;
mod http;
mod load;
mod names;
mod origin;
mod owners;
mod parsers;
mod proxy;
mod tcp;
mod tls;
mod udp;
mod upstream;
mod web;
mod world;
