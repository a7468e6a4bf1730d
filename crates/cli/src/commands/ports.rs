//! `belljar expose`, `ports`, `hide`: what a sandbox shows over HTTP.

use belljar_api::v1;

use super::Done;
use crate::args::{ExposeArgs, HideArgs, PortsArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, note, print, print_json, time};
use crate::request;

pub(crate) async fn expose(context: &Context, args: &ExposeArgs) -> Result<Done, Failure> {
    let request = v1::ExposePortRequest {
        sandbox: args.sandbox.clone(),
        port: args.port.into(),
        public: args.public,
        expires_in_secs: request::duration("--expires", args.expires.as_deref())?,
    };
    let shown = context
        .with_client(async |mut client| Ok(client.ports.expose_port(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&shown)?;
        return Ok(Done::Success);
    }
    match (&shown.url, &shown.token) {
        (Some(url), Some(token)) => print(&format!("{url}?belljar_token={token}\n"))?,
        (Some(url), None) => print(&format!("{url}\n"))?,
        (None, _) => {
            print(&format!("{}\n", shown.path))?;
            note(
                context.quiet,
                "the server has no port of its own: begin it with `belljar serve --listen`, or use `belljar forward`",
            );
        }
    }
    if shown.token.is_some() {
        let until = time(shown.token_expires_at.as_ref());
        note(context.quiet, &format!("the token ends at {until}"));
    }
    Ok(Done::Success)
}

pub(crate) async fn ports(context: &Context, args: &PortsArgs) -> Result<Done, Failure> {
    let request = v1::ListPortsRequest { sandbox: args.sandbox.clone() };
    let ports = context
        .with_client(async |mut client| Ok(client.ports.list_ports(request).await?))
        .await?
        .into_inner()
        .ports;
    if args.json {
        print_json(&ports)?;
        return Ok(Done::Success);
    }
    let mut table = Table::new(&["PORT", "SHOWN TO", "ADDRESS"]);
    for port in &ports {
        let whom = if port.public { "everybody" } else { "who has a token" };
        let address = port.url.as_deref().unwrap_or(&port.path);
        table.row([&port.port.to_string(), whom, address]);
    }
    print(&table.render(0))?;
    Ok(Done::Success)
}

pub(crate) async fn hide(context: &Context, args: &HideArgs) -> Result<Done, Failure> {
    let request = v1::HidePortRequest { sandbox: args.sandbox.clone(), port: args.port.into() };
    let hidden = context
        .with_client(async |mut client| Ok(client.ports.hide_port(request).await?))
        .await?
        .into_inner();
    if args.json {
        print_json(&hidden)?;
    } else if !hidden.was_shown {
        note(context.quiet, &format!("port {} was not shown", args.port));
    }
    Ok(Done::Success)
}
