//! `belljar probe`: every backend, tried.

use belljar_api::v1;
use belljar_client::Client;

use super::Done;
use crate::args::ProbeArgs;
use crate::context::Context;
use crate::failure::{EXIT_FAILURE, Failure};
use crate::output::{Table, print, print_json};

pub(crate) async fn probe(context: &Context, args: &ProbeArgs) -> Result<Done, Failure> {
    let probes = context.with_client(async |client| all(&client).await).await?;
    if args.json {
        print_json(&probes)?;
    } else {
        print(&render(&probes))?;
    }
    Ok(verdict(&probes))
}

pub(crate) async fn all(client: &Client) -> Result<Vec<v1::Probe>, Failure> {
    let request = v1::ProbeBackendsRequest::default();
    Ok(client.system.clone().probe_backends(request).await?.into_inner().probes)
}

/// Success where something with isolation works.
pub(crate) fn verdict(probes: &[v1::Probe]) -> Done {
    let walled = |probe: &v1::Probe| probe.works && probe.class != "none";
    if probes.iter().any(walled) { Done::Success } else { Done::Status(EXIT_FAILURE) }
}

pub(crate) fn render(probes: &[v1::Probe]) -> String {
    let mut table = Table::new(&["BACKEND", "WORKS", "CLASS", "START", "WHY"]);
    for probe in probes {
        let start = probe.start_ms.map_or_else(String::new, |ms| format!("{ms:.1} ms"));
        let works = if probe.works { "yes" } else { "no" };
        table.row([&probe.backend, works, &probe.class, &start, &probe.detail]);
    }
    table.render(0)
}
