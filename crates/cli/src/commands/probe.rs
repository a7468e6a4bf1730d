//! `belljar probe`: every backend, tried.

use belljar_api::v1;
use belljar_client::Client;

use super::Done;
use crate::args::ProbeArgs;
use crate::context::Context;
use crate::failure::{EXIT_FAILURE, Failure};
use crate::output::{Table, print, print_json, rules_table};

pub(crate) async fn probe(context: &Context, args: &ProbeArgs) -> Result<Done, Failure> {
    let request = v1::ProbeBackendsRequest { backend: args.backend.clone(), refresh: args.refresh };
    let probes = context.with_client(async |client| ask(&client, request).await).await?;
    if args.json {
        print_json(&probes)?;
    } else {
        print(&render(&probes))?;
        if args.rules {
            print(&render_rules(&probes))?;
        }
    }
    Ok(verdict(&probes))
}

/// Everything, tried now.
pub(crate) async fn all(client: &Client) -> Result<Vec<v1::Probe>, Failure> {
    ask(client, v1::ProbeBackendsRequest { backend: None, refresh: true }).await
}

async fn ask(
    client: &Client,
    request: v1::ProbeBackendsRequest,
) -> Result<Vec<v1::Probe>, Failure> {
    Ok(client.system.clone().probe_backends(request).await?.into_inner().probes)
}

/// Success where something with isolation works.
pub(crate) fn verdict(probes: &[v1::Probe]) -> Done {
    let walled = |probe: &v1::Probe| probe.works && probe.class != "none";
    if probes.iter().any(walled) { Done::Success } else { Done::Status(EXIT_FAILURE) }
}

pub(crate) fn render(probes: &[v1::Probe]) -> String {
    let mut table =
        Table::new(&["BACKEND", "WORKS", "CLASS", "PLATFORM", "START", "FAST", "ENFORCED", "WHY"]);
    for probe in probes {
        let start = probe.start_ms.map_or_else(String::new, |ms| format!("{ms:.1} ms"));
        let word = |yes: bool| if yes { "yes" } else { "no" };
        let full = probe.enforcement.iter().filter(|rule| rule.full).count();
        let (fast, enforced) = match probe.works && !probe.enforcement.is_empty() {
            true => (word(probe.fast), format!("{full}/{}", probe.enforcement.len())),
            false => ("", String::new()),
        };
        table.row([
            &name(probe),
            word(probe.works),
            &probe.class,
            probe.platform.as_deref().unwrap_or(""),
            &start,
            fast,
            &enforced,
            &probe.detail,
        ]);
    }
    table.render(0)
}

/// What to do about each that does not work.
pub(crate) fn render_hints(probes: &[v1::Probe]) -> String {
    let hint = |probe: &v1::Probe| {
        let remedy = probe.remedy.as_ref()?;
        Some(format!("hint for `{}`: {remedy}\n", name(probe)))
    };
    probes.iter().filter_map(hint).collect()
}

/// What would hold a sandbox with the default limits, for every backend that works.
fn render_rules(probes: &[v1::Probe]) -> String {
    let mut text = String::new();
    for probe in probes.iter().filter(|probe| !probe.enforcement.is_empty()) {
        text.push_str(&format!("\n{}\n{}", name(probe), rules_table(&probe.enforcement).render(2)));
    }
    text
}

pub(crate) fn name(probe: &v1::Probe) -> String {
    match &probe.runtime {
        Some(runtime) => format!("{}/{runtime}", probe.backend),
        None => probe.backend.clone(),
    }
}
