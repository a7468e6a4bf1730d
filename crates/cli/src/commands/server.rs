//! `belljar server status`, `belljar server start` and `belljar server stop`.

use belljar_api::v1;
use belljar_client::Client;
use belljar_codes::Code;
use serde::Serialize;

use super::Done;
use crate::args::{ServerArgs, ServerCommand};
use crate::context::{Context, Server};
use crate::failure::Failure;
use crate::output::{age, print, print_json};

#[derive(Serialize)]
struct Stopped {
    stopped: bool,
    pid: Option<u32>,
}

pub(crate) async fn server(context: &Context, args: &ServerArgs) -> Result<Done, Failure> {
    match args.command {
        ServerCommand::Status { json } => status(context, json).await,
        ServerCommand::Start { json } => start(context, json).await,
        ServerCommand::Stop { json } => stop(context, json).await,
    }
}

async fn status(context: &Context, json: bool) -> Result<Done, Failure> {
    let Some((_, server)) = find(context).await? else {
        let state_dir = context.settings.state_dir()?;
        return Err(Failure::new(
            Code::ServerUnreachable,
            format!("no server runs on `{}`", state_dir.display()),
        )
        .with_remedy(
            "commands start one when they need it; `belljar serve` starts one that stays",
        ));
    };
    show(&server, json)
}

async fn start(context: &Context, json: bool) -> Result<Done, Failure> {
    let mut client = match context.server()? {
        Server::Local(local) => local.find_or_start().await?,
        Server::Remote(address) => context.connect(&address).await?,
        Server::Embedded => {
            return Err(Failure::new(
                Code::ConflictingOptions,
                "`--server embedded` has no server that could be started",
            )
            .with_remedy("leave `--server` away"));
        }
    };
    let server = client.system.get_server(v1::GetServerRequest {}).await?.into_inner();
    show(&server, json)
}

fn show(server: &v1::Server, json: bool) -> Result<Done, Failure> {
    if json {
        print_json(server)?;
    } else {
        print(&render(server))?;
    }
    Ok(Done::Success)
}

async fn stop(context: &Context, json: bool) -> Result<Done, Failure> {
    let found = find(context).await?;
    let pid = found.as_ref().map(|(_, server)| server.pid);
    if let Some((mut client, server)) = found {
        match context.server()? {
            Server::Local(local) => local.stop(&client, &server).await?,
            Server::Remote(_) | Server::Embedded => {
                client.system.stop_server(v1::StopServerRequest {}).await?;
            }
        }
    }
    if json {
        print_json(&Stopped { stopped: pid.is_some(), pid })?;
    } else {
        print(match pid {
            Some(_) => "stopped\n",
            None => "no server runs\n",
        })?;
    }
    Ok(Done::Success)
}

/// The server that runs; none is started.
async fn find(context: &Context) -> Result<Option<(Client, v1::Server)>, Failure> {
    match context.server()? {
        Server::Local(local) => Ok(local.find().await?),
        Server::Remote(address) => {
            let mut client = context.connect(&address).await?;
            let server = client.system.get_server(v1::GetServerRequest {}).await?.into_inner();
            Ok(Some((client, server)))
        }
        Server::Embedded => Ok(None),
    }
}

fn render(server: &v1::Server) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<13}{value}\n"));
    let kind = if server.automatic { " (ends by itself)" } else { "" };
    line("process", &format!("{}{kind}", server.pid));
    line("version", &server.version);
    for address in &server.addresses {
        line("address", address);
    }
    // What only the operator is told is not there for others.
    if !server.state_dir.is_empty() {
        line("state", &server.state_dir);
    }
    line("up", &age(server.started_at.as_ref()));
    let counts = server.counts.unwrap_or_default();
    line("sandboxes", &format!("{} ({} paused)", counts.sandboxes, counts.paused));
    line("processes", &counts.processes.to_string());
    if counts.connections > 0 {
        line("connections", &counts.connections.to_string());
    }
    text
}
