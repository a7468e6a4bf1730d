//! The way out of a sandbox: doors, names, addresses, TLS and HTTP, decided on the host.
//!
//! Gets listening sockets ([`Doors`]), who is behind them ([`Identity`]) and what they may do ([`Rules`]); nothing else.
//! Whoever speaks through a door *is* that sandbox: identity comes from the socket and never from what is said on it.
//!
//! Guarantees: what no rule names is denied; what cannot be read, resolved, verified or counted is denied; every queue,
//! table, message and wait has a limit; every flow, denied name and inspected request leaves exactly one [`Record`].
//! Dropping a [`Gate`] closes its doors and cuts its flows.
//!
//! Not here: making the sockets and the network around them (the launcher), keeping records, secrets and approvals
//! (the engine, through [`Recorder`], [`Secrets`] and [`Approver`]), and programs that decide (through [`Decider`]).

#![forbid(unsafe_code)]

mod address;
mod credentials;
mod decide;
mod doors;
mod flow;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod hello;
mod http;
mod intercept;
mod names;
mod outside;
mod record;
mod rules;
mod settings;

pub use credentials::SecretValue;
pub use decide::{
    Callback, Connecting, DECISION_TIME, Decider, Decision, Greeting, Handled, HandledRequest,
    NoDecider,
};
pub use doors::{Destinations, Doors, Identity, ProxyKey, Redirected};
pub use gate::{Counts, Egress, Gate, SharedProxy};
pub use intercept::{
    Authority, AuthorityError, RootFile, TRUST_BUNDLE, TRUST_CERTIFICATE, TRUST_DIRECTORY, Trust,
    Untrustable,
};
pub use outside::{
    Approval, Approver, Asked, Ends, NoApprover, NoOwners, NoSecrets, Owner, Owners, Recorder,
    Search, SecretError, Secrets,
};
pub use record::{Reason, Record, Stage, Verdict};
pub use rules::Rules;
pub use settings::{Settings, Upstream};
