//! `belljar shell`: an interactive session in a sandbox.

use std::ffi::OsStr;

use belljar_api::v1;

use super::Done;
use super::perform::Performance;
use crate::args::ShellArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::request::path_text;
use crate::{request, terminal};

/// Every root has `/bin/sh`; who has bash would rather have that.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec /bin/sh";

pub(crate) async fn shell(context: &Context, args: ShellArgs) -> Result<Done, Failure> {
    terminal::require()?;
    let mut request =
        v1::RunRequest { command: Some(command(&args)?), ..v1::RunRequest::default() };
    let mut session = v1::SessionSpec { ephemeral: args.ephemeral, ..v1::SessionSpec::default() };
    if let Some(sandbox) = &args.sandbox {
        request::refuse_options(&args.options, sandbox)?;
        session.sandbox = Some(sandbox.clone());
    } else {
        let hint = args.argv.iter().filter_map(|word| word.to_str().map(str::to_owned)).collect();
        request.create =
            Some(request::session_request(&context.settings, None, &args.options, hint)?);
    }
    request.session = Some(session);
    context
        .with_client(async |client| {
            let quiet = context.quiet;
            Performance { client, request, json: false, quiet, explain: None }.perform().await
        })
        .await
}

fn command(args: &ShellArgs) -> Result<v1::Command, Failure> {
    let mut command = match args.argv.as_slice() {
        [] => request::shell(OsStr::new(SHELL)),
        words => request::argv(words),
    };
    let mut environment = request::environment(&args.options.env)?;
    terminal::describe(&mut environment)?;
    command.environment = environment.into_map();
    command.working_directory = args.options.workdir.as_deref().map(path_text).transpose()?;
    command.user = request::user(args.options.user.as_deref())?;
    command.stdin = true;
    command.terminal = Some(terminal::wire_size());
    // Nobody is thrown out of a shell.
    command.timeout_secs = Some(0.0);
    Ok(command)
}
