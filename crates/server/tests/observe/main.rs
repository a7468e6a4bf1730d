//! What a server tells about itself, to whom, and how often: the audit log, metrics, tokens, limits and webhooks, as
//! clients see them. Sandboxes are those of the engine's own tests, without a wall.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "../../../engine/tests/support/mod.rs"]
mod fake;

mod audit;
mod connections;
mod limits;
mod metrics;
mod scopes;
mod stalls;
mod support;
mod telemetry;
mod tokens;
mod webhooks;
