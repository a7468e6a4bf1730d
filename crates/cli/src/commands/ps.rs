//! `belljar ps`.

use belljar_api::v1;

use super::{Done, enumeration};
use crate::args::PsArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, age, print, print_json, word};

pub(crate) async fn ps(context: &Context, args: &PsArgs) -> Result<Done, Failure> {
    let statuses = match (args.all, args.status.as_slice()) {
        (true, []) => Vec::new(),
        (false, []) => {
            vec![v1::ProcessStatus::Starting.into(), v1::ProcessStatus::Running.into()]
        }
        (_, words) => enumeration::<v1::ProcessStatus>(words)?,
    };
    let mut query = v1::ListProcessesRequest {
        sandbox: args.sandbox.clone(),
        statuses,
        ..v1::ListProcessesRequest::default()
    };
    let processes = context
        .with_client(async |mut client| {
            let mut found = Vec::new();
            loop {
                let page = client.processes.list_processes(query.clone()).await?.into_inner();
                found.extend(page.processes);
                query.page_token = page.next_page_token;
                if query.page_token.is_none() {
                    return Ok(found);
                }
            }
        })
        .await?;
    if args.json {
        print_json(&processes)?;
    } else {
        print(&render(&processes))?;
    }
    Ok(Done::Success)
}

fn render(processes: &[v1::Process]) -> String {
    let mut table = Table::new(&["ID", "SANDBOX", "STATUS", "EXIT", "AGE", "COMMAND"]);
    for process in processes {
        table.row([
            process.process_id.as_str(),
            &process.sandbox_id,
            &word(&process.status()),
            &process.exit_code.map_or_else(String::new, |code| code.to_string()),
            &age(process.started_at.as_ref()),
            &process.command,
        ]);
    }
    table.render(0)
}
