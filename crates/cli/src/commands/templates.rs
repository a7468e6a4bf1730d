//! `belljar templates`.

use serde::Serialize;

use super::Done;
use crate::args::TemplatesArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Table, print, print_json};

#[derive(Serialize)]
struct TemplateShape {
    name: String,
    description: String,
}

pub(crate) async fn templates(context: &Context, args: &TemplatesArgs) -> Result<Done, Failure> {
    let templates: Vec<TemplateShape> = context
        .with_engine(async |engine| Ok(engine.templates().await?))
        .await?
        .into_iter()
        .map(|template| TemplateShape { name: template.name, description: template.description })
        .collect();
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
