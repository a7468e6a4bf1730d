//! `belljar run`: a command in a session.

use belljar_codes::Code;
use belljar_engine::{Engine, ExecRequest, SessionRequest, Stdin};

use super::Done;
use super::drive;
use super::perform::Performance;
use crate::args::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{ExplainShape, SessionShape, note, print_explanation};
use crate::request;

pub(crate) async fn run(context: &Context, args: RunArgs) -> Result<Done, Failure> {
    if args.detach {
        return Err(Failure::new(
            Code::InvalidArgument,
            "detached processes come with `belljar serve`, which this version does not have",
        )
        .with_remedy("leave out `--detach`"));
    }
    // Everything that can be wrong with the words is found before anything is made.
    let files: Vec<_> =
        args.write.iter().map(|file| request::file_to_write(file)).collect::<Result<_, _>>()?;
    let exec = exec_request(context, &args)?;
    let wanted = session_request(context, &args)?;

    context
        .with_engine(async |engine| {
            let explain =
                if args.explain { Some(explain(engine, &wanted, &exec).await?) } else { None };
            let session = engine.session(wanted).await?;
            let done = async {
                if let (Some(explain), false) = (&explain, args.json) {
                    print_explanation(explain);
                }
                if session.overflow {
                    let text =
                        "the session is busy; this runs in a fresh sandbox that ends with it";
                    note(context.quiet, text);
                }
                for (path, content) in files {
                    engine.write_file(&session.sandbox.id, path, content).await?;
                }
                let performance = Performance {
                    engine,
                    sandbox: &session.sandbox,
                    session: SessionShape { name: session.name.clone(), created: session.created },
                    read: &args.read,
                    json: args.json,
                    quiet: context.quiet,
                    explain,
                };
                performance.perform(exec).await
            }
            .await;
            // What was made for this run goes whatever happened; the first failure is the one to tell.
            let ended = session.end().await;
            let done = done?;
            ended?;
            Ok(done)
        })
        .await
}

fn exec_request(context: &Context, args: &RunArgs) -> Result<ExecRequest, Failure> {
    let mut exec = ExecRequest::new(args.command.program()?);
    exec.environment = request::environment(&args.options.env)?;
    exec.workdir.clone_from(&args.options.workdir);
    exec.user = request::user(args.options.user.as_deref())?;
    exec.timeout = request::timeout(&context.settings)?;
    exec.stdin = if drive::has_input() { Stdin::Piped } else { Stdin::Null };
    Ok(exec)
}

fn session_request(context: &Context, args: &RunArgs) -> Result<SessionRequest, Failure> {
    if let Some(sandbox) = &args.sandbox {
        request::refuse_options(&args.options, sandbox)?;
        return Ok(SessionRequest::Existing(sandbox.clone()));
    }
    let name = args.name.as_deref();
    let text = args.command.text();
    let create = request::session_request(&context.settings, name, &args.options, text)?;
    Ok(match (args.ephemeral, name) {
        (true, _) => SessionRequest::Ephemeral(create),
        (false, Some(_)) => SessionRequest::Named(create),
        (false, None) => SessionRequest::Automatic(create),
    })
}

async fn explain(
    engine: &Engine,
    wanted: &SessionRequest,
    exec: &ExecRequest,
) -> Result<ExplainShape, Failure> {
    let mut explain = match wanted {
        SessionRequest::Existing(reference) => {
            ExplainShape::from(&engine.inspect(reference).await?)
        }
        SessionRequest::Automatic(create)
        | SessionRequest::Named(create)
        | SessionRequest::Ephemeral(create) => engine.explain(create).await?.into(),
    };
    explain.stripped_environment = exec.environment.clone().strip().1;
    Ok(explain)
}
