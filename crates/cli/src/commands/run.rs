//! `belljar run`: a command in a session.

use belljar_api::v1;
use belljar_client::Client;

use super::Done;
use super::perform::Performance;
use super::{drive, fetch};
use crate::args::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::print_explanation;
use crate::request::{self, path_text};

pub(crate) async fn run(context: &Context, args: RunArgs) -> Result<Done, Failure> {
    // Everything that can be wrong with the words is found before anything is made.
    let request = run_request(context, &args)?;
    context
        .with_client(async |client| {
            let explain = match args.explain {
                true => Some(explain(&client, &request).await?),
                false => None,
            };
            if let (Some(explain), false) = (&explain, args.json) {
                print_explanation(explain);
            }
            let (json, quiet) = (args.json, context.quiet);
            if let Some(create) = &request.create {
                fetch::watch(&client, create, quiet).await;
            }
            Performance { client, request, json, quiet, explain }.perform().await
        })
        .await
}

fn run_request(context: &Context, args: &RunArgs) -> Result<v1::RunRequest, Failure> {
    let mut request = v1::RunRequest {
        command: Some(command(context, args)?),
        write: args.write.iter().map(|f| request::file_to_write(f)).collect::<Result<_, _>>()?,
        read: args.read.iter().map(|path| path_text(path)).collect::<Result<_, _>>()?,
        detach: args.detach,
        idempotency_key: args.idempotency_key.clone(),
        ..v1::RunRequest::default()
    };
    let mut session = v1::SessionSpec { ephemeral: args.ephemeral, ..v1::SessionSpec::default() };
    if let Some(sandbox) = &args.sandbox {
        request::refuse_options(&args.options, sandbox)?;
        session.sandbox = Some(sandbox.clone());
    } else {
        let name = args.name.as_deref();
        let hint = args.command.hint();
        request.create =
            Some(request::session_request(&context.settings, name, &args.options, hint)?);
        session.name = args.name.clone();
    }
    request.session = Some(session);
    Ok(request)
}

fn command(context: &Context, args: &RunArgs) -> Result<v1::Command, Failure> {
    Ok(v1::Command {
        environment: request::environment(&args.options.env)?.into_map(),
        working_directory: args.options.workdir.as_deref().map(path_text).transpose()?,
        user: request::user(args.options.user.as_deref())?,
        // Nobody waits for a detached command; only a limit that was asked for counts.
        timeout_secs: request::command_timeout(&context.settings, args.detach)?,
        context: request::context(&args.told)?,
        stdin: if args.detach { args.stdin } else { drive::has_input() },
        ..args.command.command()?
    })
}

async fn explain(client: &Client, request: &v1::RunRequest) -> Result<v1::Explanation, Failure> {
    let wanted = v1::ExplainSandboxRequest {
        create: request.create.clone(),
        sandbox: request.session.as_ref().and_then(|session| session.sandbox.clone()),
    };
    let mut explain = client.sandboxes.clone().explain_sandbox(wanted).await?.into_inner();
    // What is passed with the command, not with the sandbox.
    let mut environment = belljar_policy::Environment::new();
    for (name, value) in request.command.iter().flat_map(|command| &command.environment) {
        environment.set(name, value)?;
    }
    explain.stripped_environment = environment.strip().1;
    Ok(explain)
}
