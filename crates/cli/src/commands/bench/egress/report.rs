//! What was measured, and how it is told. Every target is a ratio or a difference within one run.

use std::fmt;

use serde::Serialize;

use super::super::stats::{Figures, table};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) pass_through: PassThrough,
    pub(super) intercepted: Intercepted,
    pub(super) latency: Vec<Latency>,
    pub(super) connections: Connections,
    /// From the answer of `network deny` to the end of a flow that was open.
    pub(super) revocation: Figures,
    pub(super) creation: Creation,
}

/// Bytes that nobody looks into.
#[derive(Debug, Serialize)]
pub(super) struct PassThrough {
    pub(super) direct_gbit_per_second: f64,
    pub(super) through_gbit_per_second: f64,
    pub(super) ratio: f64,
}

/// HTTPS whose requests are looked into.
#[derive(Debug, Serialize)]
pub(super) struct Intercepted {
    pub(super) direct_gbit_per_second: f64,
    pub(super) through_gbit_per_second: f64,
    /// By the time that the server had a processor.
    pub(super) gbit_per_core_second: f64,
}

/// There and back, on a connection that exists.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) name: String,
    pub(super) direct: Figures,
    pub(super) through: Figures,
    pub(super) added_p50_ms: f64,
}

/// Memory of the server for connections that are open at once.
#[derive(Debug, Serialize)]
pub(super) struct Connections {
    pub(super) count: u32,
    /// From the first of a half's connections, which are begun together, to the answer on the last.
    pub(super) halves_open_after_ms: Vec<f64>,
    pub(super) first_half_kib_each: f64,
    pub(super) second_half_kib_each: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Creation {
    pub(super) none: Figures,
    pub(super) allowlist: Figures,
    pub(super) ratio: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pass_through, intercepted, latency, connections, revocation, creation } = self;
        writeln!(
            f,
            "pass-through: {:.1} Gbit/s of {:.1} without Belljar ({:.0} %)",
            pass_through.through_gbit_per_second,
            pass_through.direct_gbit_per_second,
            pass_through.ratio * 100.0
        )?;
        writeln!(
            f,
            "intercepted HTTPS: {:.1} Gbit/s of {:.1} without Belljar, {:.1} Gbit/s per core of the server",
            intercepted.through_gbit_per_second,
            intercepted.direct_gbit_per_second,
            intercepted.gbit_per_core_second
        )?;
        writeln!(f, "\nthere and back on a connection that exists")?;
        let figures: Vec<Figures> =
            latency.iter().flat_map(|one| [one.direct.clone(), one.through.clone()]).collect();
        f.write_str(&table(&figures))?;
        for one in latency {
            writeln!(f, "  {}: {:.3} ms added (p50)", one.name, one.added_p50_ms)?;
        }
        writeln!(
            f,
            "\n{} connections at once: {:.1} KiB of the server for each of the first half, {:.1} for each of the second",
            connections.count, connections.first_half_kib_each, connections.second_half_kib_each
        )?;
        for (half, taken) in ["first", "second"].iter().zip(&connections.halves_open_after_ms) {
            writeln!(
                f,
                "  the {half} half begun at once: the last was answered after {taken:.0} ms"
            )?;
        }
        writeln!(f, "\na host that is denied")?;
        f.write_str(&table(std::slice::from_ref(revocation)))?;
        writeln!(f, "\ncreating a sandbox")?;
        f.write_str(&table(&[creation.none.clone(), creation.allowlist.clone()]))?;
        writeln!(f, "  with an allowlist: {:.2} × (p50)", creation.ratio)
    }
}
