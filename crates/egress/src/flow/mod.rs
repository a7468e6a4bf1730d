//! One flow: judged, counted, cut when its permission ends, and handed to HTTP where a request must be seen.
//!
//! # The seam to `http`
//!
//! The doors find out *where* a connection goes; [`crate::http::serve`] is called for the connections whose requests
//! must be seen: a rule has methods or paths ([`Answer::Inspect`]), or a credential is for the host.
//! It gets an [`Intercepted`] and
//! - asks [`Judge::judge`] anew for each request, with `request: Some((method, canonical path))`, and keeps the
//!   [`Permit`] until the reply's last byte: [`Permit::count`] takes every chunk in both directions (it waits for
//!   bandwidth and fails when a budget is spent), [`Permit::revoked`] ends when the rules change and no longer allow it;
//! - connects with [`Judge::dial`], which resolves, checks the address and connects (plain TCP; TLS is on top);
//! - writes one record per request with [`Judge::record_of`] (stage `Request`); the door writes the one of the flow from
//!   the [`Outcome`];
//! - takes rules (credentials) from [`Judge::rules`] at each request, secrets from [`Judge::secrets`].

mod approvals;
mod decisions;
mod dial;
mod judge;
mod live;
mod meter;
mod owner;
mod permit;
mod prefixed;
mod question;
mod repeats;
mod room;
mod ruling;
mod tally;

pub(crate) use judge::{Judge, Parts};
pub(crate) use meter::Direction;
pub(crate) use owner::Searched;
pub(crate) use permit::{Permit, Refusal};
pub(crate) use prefixed::Prefixed;
pub(crate) use question::{Answer, Preview, Question};
pub(crate) use repeats::Rate;
pub(crate) use room::{Place, Room};

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::{Greeting, Reason};

/// How the client's requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The client begins with a TLS greeting (it is in the stream's prefix) for the one name in `names`.
    Tls,
    /// Plain HTTP; `Host` must be one of `names`.
    Plain,
    /// Plain HTTP in absolute form, from the proxy door: every request names its host, `names` is empty,
    /// `address` is none and `port` is not of interest. Only the scheme `http` is acceptable.
    Proxy,
}

/// A connection whose requests must be seen.
pub(crate) struct Intercepted {
    pub(crate) stream: Prefixed<TcpStream>,
    pub(crate) entry: Entry,
    /// Verified: the client got `address` as an answer for each of them.
    pub(crate) names: Vec<String>,
    /// Where the client meant to connect; none where it only named a host to the proxy door. For [`Judge::dial`].
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    /// Who connected.
    pub(crate) source: Option<SocketAddr>,
    /// What it says in TLS.
    pub(crate) greeting: Option<Greeting>,
    /// Whose it is.
    pub(crate) searched: Searched,
    pub(crate) judge: Arc<Judge>,
    /// For the connection as a whole; ends when no request to it could be allowed any more.
    pub(crate) permit: Permit,
}

/// What came of a connection, for its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) reason: Reason,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
}
