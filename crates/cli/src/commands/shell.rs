//! `belljar shell`: an interactive session in a sandbox.

use std::ffi::OsString;

use belljar_engine::{ExecRequest, Program, SessionRequest, Stdin};
use belljar_policy::template::CommandText;

use super::Done;
use super::perform::Performance;
use crate::args::ShellArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::SessionShape;
use crate::{request, terminal};

/// Every root has `/bin/sh`; who has bash would rather have that.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec /bin/sh";

pub(crate) async fn shell(context: &Context, args: ShellArgs) -> Result<Done, Failure> {
    terminal::require()?;
    let exec = exec_request(&args)?;
    let wanted = session_request(context, &args)?;
    context
        .with_engine(async |engine| {
            let session = engine.session(wanted).await?;
            let performance = Performance {
                engine,
                sandbox: &session.sandbox,
                session: SessionShape { name: session.name.clone(), created: session.created },
                read: &[],
                json: false,
                quiet: context.quiet,
                explain: None,
            };
            let done = performance.perform(exec).await;
            let ended = session.end().await;
            let done = done?;
            ended?;
            Ok(done)
        })
        .await
}

fn exec_request(args: &ShellArgs) -> Result<ExecRequest, Failure> {
    let mut exec = ExecRequest::new(match args.argv.as_slice() {
        [] => Program::Shell(OsString::from(SHELL)),
        words => Program::Argv(words.to_vec()),
    });
    exec.environment = request::environment(&args.options.env)?;
    terminal::describe(&mut exec.environment)?;
    exec.workdir.clone_from(&args.options.workdir);
    exec.user = request::user(args.options.user.as_deref())?;
    exec.stdin = Stdin::Piped;
    exec.terminal = Some(terminal::size());
    Ok(exec)
}

fn session_request(context: &Context, args: &ShellArgs) -> Result<SessionRequest, Failure> {
    if let Some(sandbox) = &args.sandbox {
        request::refuse_options(&args.options, sandbox)?;
        return Ok(SessionRequest::Existing(sandbox.clone()));
    }
    let text = CommandText::Argv(&args.argv);
    let create = request::session_request(&context.settings, None, &args.options, text)?;
    Ok(if args.ephemeral {
        SessionRequest::Ephemeral(create)
    } else {
        SessionRequest::Automatic(create)
    })
}
