//! `belljar templates`.

use belljar_api::v1;

use super::Done;
use crate::args::TemplatesArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, print, print_json};

pub(crate) async fn templates(context: &Context, args: &TemplatesArgs) -> Result<Done, Failure> {
    let answer = context
        .with_client(async |mut client| {
            Ok(client.templates.list_templates(v1::ListTemplatesRequest {}).await?)
        })
        .await?;
    let templates = answer.into_inner().templates;
    if args.json {
        print_json(&templates)?;
    } else {
        let mut table = Table::new(&["TEMPLATE", "WHAT IT IS"]);
        for template in &templates {
            table.row([&template.name, &template.description]);
        }
        print(&table.render(0))?;
    }
    Ok(Done::Success)
}
