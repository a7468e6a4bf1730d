//! `belljar probe`: every backend, tried.

use belljar_backend::{IsolationClass, Probe};

use super::Done;
use crate::args::ProbeArgs;
use crate::context::Context;
use crate::failure::{EXIT_FAILURE, Failure};
use crate::output::{Table, print, print_json};

pub(crate) async fn probe(context: &Context, args: &ProbeArgs) -> Result<Done, Failure> {
    let probes = context.with_engine(async |engine| Ok(engine.probe().await)).await?;
    if args.json {
        print_json(&probes)?;
    } else {
        print(&render(&probes))?;
    }
    Ok(verdict(&probes))
}

/// Success where something with isolation works.
pub(crate) fn verdict(probes: &[Probe]) -> Done {
    let walled = |probe: &Probe| probe.works && probe.class != IsolationClass::None;
    if probes.iter().any(walled) { Done::Success } else { Done::Status(EXIT_FAILURE) }
}

pub(crate) fn render(probes: &[Probe]) -> String {
    let mut table = Table::new(&["BACKEND", "WORKS", "CLASS", "START", "WHY"]);
    for probe in probes {
        let start = probe.start_ms.map_or_else(String::new, |ms| format!("{ms:.1} ms"));
        let works = if probe.works { "yes" } else { "no" };
        table.row([&probe.backend, works, probe.class.as_str(), &start, &probe.reason]);
    }
    table.render(0)
}
