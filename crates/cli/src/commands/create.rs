//! `belljar create`: a sandbox that stays.

use belljar_policy::template::CommandText;

use super::Done;
use crate::args::CreateArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{ExplainShape, SandboxShape, note, print, print_explanation, print_json};
use crate::request;

pub(crate) async fn create(context: &Context, args: CreateArgs) -> Result<Done, Failure> {
    let name = args.name.as_deref();
    let request =
        request::create_request(&context.settings, name, &args.options, CommandText::None)?;
    let (explain, sandbox) = context
        .with_engine(async |engine| {
            let explain = match args.explain {
                true => Some(ExplainShape::from(engine.explain(&request).await?)),
                false => None,
            };
            Ok((explain, engine.create(request).await?))
        })
        .await?;
    for name in &sandbox.stripped_environment {
        note(context.quiet, &format!("environment variable `{name}` was not passed on"));
    }
    if args.json {
        print_json(&SandboxShape { explain, ..SandboxShape::from(&sandbox) })?;
    } else {
        if let Some(explain) = &explain {
            print_explanation(explain);
        }
        print(&format!("{}\n", sandbox.id))?;
    }
    Ok(Done::Success)
}
