//! What a server tells about itself: the audit log and the metrics, as a client sees them. No sandbox is needed: what
//! is refused is on record like everything else.

mod audit;
mod metrics;
mod support;
