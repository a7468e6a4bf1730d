//! `belljar destroy`: some sandboxes, or all.

use serde::Serialize;

use super::Done;
use super::list::all;
use crate::args::DestroyArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{print, print_failure, print_json};

#[derive(Serialize)]
struct Destroyed {
    destroyed: Vec<String>,
}

pub(crate) async fn destroy(context: &Context, args: &DestroyArgs) -> Result<Done, Failure> {
    let mut destroyed = Vec::new();
    let mut failures = Vec::new();
    context
        .with_engine(async |engine| {
            let wanted = if args.all {
                all(engine).await?.into_iter().map(|sandbox| sandbox.id.to_string()).collect()
            } else {
                args.sandboxes.clone()
            };
            for reference in wanted {
                match engine.destroy(&reference).await {
                    Ok(()) => destroyed.push(reference),
                    Err(error) => failures.push(Failure::from(error)),
                }
            }
            Ok(())
        })
        .await?;
    // Of several failures all but the last are told here, and the last where every failure is.
    let last = failures.pop();
    if args.json && last.is_none() {
        print_json(&Destroyed { destroyed })?;
    } else if !args.json {
        print(&destroyed.iter().map(|name| format!("{name}\n")).collect::<String>())?;
        failures.iter().for_each(|failure| print_failure(failure, false));
    }
    match last {
        Some(failure) => Err(failure),
        None => Ok(Done::Success),
    }
}
