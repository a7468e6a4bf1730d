//! `belljar exec`: a command in a sandbox that exists.

use belljar_api::v1;

use super::Done;
use super::drive;
use super::perform::Performance;
use crate::args::ExecArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::request::path_text;
use crate::{request, terminal};

pub(crate) async fn exec(context: &Context, args: ExecArgs) -> Result<Done, Failure> {
    let request = v1::RunRequest {
        session: Some(v1::SessionSpec {
            sandbox: Some(args.sandbox.clone()),
            ..v1::SessionSpec::default()
        }),
        command: Some(command(context, &args)?),
        detach: args.detach,
        idempotency_key: args.idempotency_key.clone(),
        ..v1::RunRequest::default()
    };
    context
        .with_client(async |client| {
            let (json, quiet) = (args.json, context.quiet);
            Performance { client, request, json, quiet, explain: None }.perform().await
        })
        .await
}

fn command(context: &Context, args: &ExecArgs) -> Result<v1::Command, Failure> {
    let mut environment = request::environment(&args.env)?;
    let mut command = args.command.command()?;
    if args.tty {
        if !args.detach {
            terminal::require()?;
        }
        terminal::describe(&mut environment)?;
        command.terminal = Some(terminal::wire_size());
    }
    command.stdin = match args.detach {
        true => args.stdin || args.tty,
        false => args.tty || drive::has_input(),
    };
    command.environment = environment.into_map();
    command.working_directory = args.workdir.as_deref().map(path_text).transpose()?;
    command.user = request::user(args.user.as_deref())?;
    // Somebody sits there, or nobody waits; only a limit that was asked for counts.
    let unlimited = args.tty || args.detach;
    command.timeout_secs = request::command_timeout(&context.settings, unlimited)?;
    command.context = request::context(&args.told)?;
    Ok(command)
}
