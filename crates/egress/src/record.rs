//! What is written down about every flow, denied name and inspected request.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use belljar_policy::document::Transport;

use crate::Owner;

/// One decision and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When the flow, question or request began.
    pub at: SystemTime,
    pub stage: Stage,
    pub transport: Transport,
    /// The verified name; for a denial, the name that was asked for.
    pub host: Option<String>,
    pub address: Option<IpAddr>,
    pub port: u16,
    /// As the client sent it.
    pub sni: Option<String>,
    pub method: Option<String>,
    pub path: Option<String>,
    /// The rule, allowlist entry or approval that decided.
    pub rule: Option<String>,
    pub verdict: Verdict,
    pub reason: Reason,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub duration: Duration,
    /// Who inside had the connection, where that is known.
    pub owner: Option<Owner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Dns,
    Flow,
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Allow,
    Deny,
}

/// Why it was allowed, denied or ended. The words are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    // --- allowed ---
    /// A rule, an entry of the allowlist or the mode `full` allows it.
    Allowed,
    /// Somebody was asked and said yes.
    Approved,
    /// A program decides about it and allowed it.
    CallbackAllows,
    // --- denied by what the rules say ---
    /// No rule names it.
    NotListed,
    /// A rule denies it.
    RuleDenies,
    /// Nobody said yes in time, or somebody said no.
    NotApproved,
    /// A program decides about it and denied it.
    CallbackDenies,
    /// A program decides about it and is not there, failed, or did not answer in time.
    CallbackUnanswered,
    /// A budget is spent.
    BudgetSpent,
    /// The rules changed while it was open.
    Revoked,
    // --- denied for what it is ---
    /// The address was never an answer to an allowed name.
    NotResolved,
    /// Private, loopback, link-local, shared, multicast, metadata or an address of the host.
    AddressNotPublic,
    /// Servers that resolve names for others, past the DNS door.
    ForeignResolver,
    /// The name in TLS is missing.
    SniMissing,
    /// The name in TLS is not the name that was resolved.
    SniMismatch,
    /// The name in TLS is hidden.
    EncryptedHello,
    /// A TLS greeting that is not well-formed.
    HelloMalformed,
    /// A request or message that is not well-formed or ambiguous.
    Malformed,
    /// A kind of DNS question that is not answered.
    QueryType,
    /// A limit on connections, questions or waiting approvals is reached.
    TooMany,
    /// A protocol or kind that these rules cannot judge.
    Unsupported,
    // --- the other side ---
    /// No upstream server answered, or none with a usable answer.
    ResolveFailed,
    ConnectFailed,
    /// The certificate of the other side does not hold.
    CertificateInvalid,
    /// A credential that the rules name cannot be had.
    SecretUnavailable,
    /// The client sent nothing, or not enough, for too long.
    TimedOut,
}

impl Reason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Approved => "approved",
            Self::CallbackAllows => "callback-allows",
            Self::CallbackDenies => "callback-denies",
            Self::CallbackUnanswered => "callback-unanswered",
            Self::NotListed => "not-listed",
            Self::RuleDenies => "rule-denies",
            Self::NotApproved => "not-approved",
            Self::BudgetSpent => "budget-spent",
            Self::Revoked => "revoked",
            Self::NotResolved => "not-resolved",
            Self::AddressNotPublic => "address-not-public",
            Self::ForeignResolver => "foreign-resolver",
            Self::SniMissing => "sni-missing",
            Self::SniMismatch => "sni-mismatch",
            Self::EncryptedHello => "encrypted-hello",
            Self::HelloMalformed => "hello-malformed",
            Self::Malformed => "malformed",
            Self::QueryType => "query-type",
            Self::TooMany => "too-many",
            Self::Unsupported => "unsupported",
            Self::ResolveFailed => "resolve-failed",
            Self::ConnectFailed => "connect-failed",
            Self::CertificateInvalid => "certificate-invalid",
            Self::SecretUnavailable => "secret-unavailable",
            Self::TimedOut => "timed-out",
        }
    }
}

impl Reason {
    /// What a record with this reason says: the rules allowed it (whatever became of it), or it was denied or cut.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Allowed
            | Self::Approved
            | Self::CallbackAllows
            | Self::ResolveFailed
            | Self::ConnectFailed
            | Self::CertificateInvalid
            | Self::SecretUnavailable
            | Self::TimedOut => Verdict::Allow,
            _ => Verdict::Deny,
        }
    }
}

impl Verdict {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl Stage {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Flow => "flow",
            Self::Request => "request",
        }
    }
}
