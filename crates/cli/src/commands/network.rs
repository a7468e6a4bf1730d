//! `belljar network`: what a sandbox may reach, and what it wanted to.

use belljar_api::v1;
use belljar_codes::Code;

use super::Done;
use crate::args::{NetworkArgs, NetworkCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Inert, print, print_json, print_json_line, time};
use crate::request;

pub(crate) async fn network(context: &Context, args: NetworkArgs) -> Result<Done, Failure> {
    match args.command {
        NetworkCommand::Show { sandbox, json } => {
            let request = v1::GetNetworkRequest { sandbox };
            let network = context
                .with_client(async |mut client| Ok(client.networks.get_network(request).await?))
                .await?
                .into_inner();
            show(&network, json)
        }
        NetworkCommand::Set { sandbox, network, allow, allow_cidr, network_ask, json } => {
            let entries = |entries: Vec<String>| {
                (!entries.is_empty()).then_some(v1::NetworkEntries { entries })
            };
            // A mode without hosts means the mode alone.
            let replace = match network.as_deref() {
                Some("none" | "full") => Some(v1::NetworkEntries { entries: allow }),
                _ => entries(allow),
            };
            let ask_secs = request::duration("--network-ask", network_ask.as_deref())?;
            let cidrs = entries(allow_cidr);
            if network.is_none() && replace.is_none() && cidrs.is_none() && ask_secs.is_none() {
                return Err(Failure::new(Code::InvalidArgument, "nothing is to be changed")
                    .with_remedy(
                        "give `--network`, `--allow`, `--allow-cidr` or `--network-ask`",
                    ));
            }
            let request = v1::ChangeNetworkRequest {
                sandbox,
                mode: network,
                replace,
                cidrs,
                ask_secs,
                ..v1::ChangeNetworkRequest::default()
            };
            change(context, request, json).await
        }
        NetworkCommand::Allow(args) => {
            let request = v1::ChangeNetworkRequest {
                sandbox: args.sandbox,
                allow: args.hosts,
                ..v1::ChangeNetworkRequest::default()
            };
            change(context, request, args.json).await
        }
        NetworkCommand::Deny(args) => {
            let request = v1::ChangeNetworkRequest {
                sandbox: args.sandbox,
                deny: args.hosts,
                ..v1::ChangeNetworkRequest::default()
            };
            change(context, request, args.json).await
        }
        NetworkCommand::Log { sandbox, denied, last, follow, json } => {
            log(context, v1::ReadNetworkLogRequest { sandbox, denied, last, follow }, json).await
        }
    }
}

async fn change(
    context: &Context,
    request: v1::ChangeNetworkRequest,
    json: bool,
) -> Result<Done, Failure> {
    let network = context
        .with_client(async |mut client| Ok(client.networks.change_network(request).await?))
        .await?
        .into_inner();
    show(&network, json)
}

fn show(network: &v1::SandboxNetwork, json: bool) -> Result<Done, Failure> {
    if json {
        print_json(network)?;
    } else {
        print(&render(network))?;
    }
    Ok(Done::Success)
}

fn render(network: &v1::SandboxNetwork) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<12}{value}\n"));
    line("sandbox", &network.sandbox_id);
    line("mode", &network.mode);
    for host in &network.allow {
        line("allow", host);
    }
    for host in &network.deny {
        line("deny", host);
    }
    for range in &network.cidrs {
        line("allow-cidr", range);
    }
    if let Some(seconds) = network.ask_secs {
        line("ask", &format!("{seconds} s"));
    }
    let callbacks =
        [("connections", network.callback_connections), ("requests", network.callback_requests)];
    for (what, _) in callbacks.into_iter().filter(|(_, decided)| *decided) {
        line("callback", what);
    }
    line("enforced by", &network.enforcement);
    if let Some(open) = network.open {
        line("open", &open.to_string());
    }
    text
}

async fn log(
    context: &Context,
    request: v1::ReadNetworkLogRequest,
    json: bool,
) -> Result<Done, Failure> {
    context
        .with_client(async |mut client| {
            let mut decisions = client.networks.read_network_log(request).await?.into_inner();
            while let Some(decision) = decisions.message().await? {
                if json {
                    print_json_line(&decision)?;
                } else {
                    print(&line(&decision))?;
                }
            }
            Ok(Done::Success)
        })
        .await
}

/// `2026-01-02T03:04:05.678Z  deny   flow  example.com 192.0.2.1:443  not-listed  by curl [7]`.
fn line(decision: &v1::NetworkDecision) -> String {
    let mut place = decision.host.clone().unwrap_or_default();
    if let Some(address) = &decision.address {
        place.push_str(if place.is_empty() { "" } else { " " });
        place.push_str(&match address.contains(':') {
            true => format!("[{address}]"),
            false => address.clone(),
        });
    }
    if decision.port != 0 {
        place.push_str(&format!(":{}", decision.port));
    }
    let mut text = format!(
        "{}  {:<5}  {:<7}  {}",
        time(decision.at.as_ref()),
        decision.verdict,
        decision.stage,
        place
    );
    if let (Some(method), Some(path)) = (&decision.method, &decision.path) {
        text.push_str(&format!("  {} {}", method, path));
    }
    text.push_str(&format!("  {}", decision.reason));
    if let Some(rule) = &decision.rule {
        text.push_str(&format!(" ({})", rule));
    }
    if decision.bytes_up != 0 || decision.bytes_down != 0 {
        text.push_str(&format!(
            "  {} up, {} down, {:.1} ms",
            decision.bytes_up, decision.bytes_down, decision.duration_ms
        ));
    }
    if let (Some(pid), Some(program)) = (decision.pid, &decision.program) {
        text.push_str(&format!("  by {program} [{pid}]"));
    }
    // Names and paths are the sandbox's choice, and a terminal must not obey them.
    let text = text.replace(['\n', '\r'], "\u{fffd}");
    Inert::default().push(text.as_bytes()) + "\n"
}
