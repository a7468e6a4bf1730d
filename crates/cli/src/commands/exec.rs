//! `belljar exec`: a command in a sandbox that exists.

use belljar_engine::{ExecRequest, SessionRequest, Stdin};

use super::Done;
use super::drive;
use super::perform::Performance;
use crate::args::ExecArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::SessionShape;
use crate::{request, terminal};

pub(crate) async fn exec(context: &Context, args: ExecArgs) -> Result<Done, Failure> {
    let exec = exec_request(context, &args)?;
    context
        .with_engine(async |engine| {
            let wanted = SessionRequest::Existing(args.sandbox.clone());
            let session = engine.session(wanted).await?;
            let performance = Performance {
                engine,
                sandbox: &session.sandbox,
                session: SessionShape { name: session.name.clone(), created: false },
                read: &[],
                json: args.json,
                quiet: context.quiet,
                explain: None,
            };
            performance.perform(exec).await
        })
        .await
}

fn exec_request(context: &Context, args: &ExecArgs) -> Result<ExecRequest, Failure> {
    let mut exec = ExecRequest::new(args.command.program()?);
    exec.environment = request::environment(&args.env)?;
    exec.workdir.clone_from(&args.workdir);
    exec.user = request::user(args.user.as_deref())?;
    exec.timeout = request::timeout(&context.settings)?;
    if args.tty {
        terminal::require()?;
        terminal::describe(&mut exec.environment)?;
        exec.terminal = Some(terminal::size());
        exec.stdin = Stdin::Piped;
        // Somebody sits there; only a limit that was asked for counts.
        exec.timeout = exec.timeout.filter(|_| args.timeout.is_some());
    } else {
        exec.stdin = if drive::has_input() { Stdin::Piped } else { Stdin::Null };
    }
    Ok(exec)
}
