//! `belljar policy`: documents read, asked and compared, without a server and without a sandbox; and those that a server
//! keeps (see `kept`).

mod explain;
mod kept;
pub(crate) mod load;
mod scan;

pub(crate) use kept::kept;

use std::path::PathBuf;

use belljar_codes::Code;
use belljar_policy::document::{CaseResult, Cases, Effect, FlowRules, diff, to_yaml};
use serde::Serialize;

use super::Done;
use crate::args::{PlaceArgs, PolicyArgs, PolicyCommand};
use crate::failure::Failure;
use crate::output::{Inert, print, print_json};

pub(crate) fn policy(args: &PolicyArgs) -> Result<Done, Failure> {
    match &args.command {
        PolicyCommand::Check { files, json } => check(files, *json),
        PolicyCommand::Show { place, json } => show(place, *json),
        PolicyCommand::Test { place, cases, json } => test(place, cases, *json),
        PolicyCommand::Explain(args) => explain::explain(args),
        PolicyCommand::Scan { file, json } => scan::scan(file, *json),
        PolicyCommand::Put { .. }
        | PolicyCommand::Get { .. }
        | PolicyCommand::List { .. }
        | PolicyCommand::Rm { .. }
        | PolicyCommand::Learn { .. } => {
            Err(Failure::new(Code::Internal, "this part of `policy` is about what a server keeps"))
        }
        PolicyCommand::Diff { old, new, fail_if_wider, json } => {
            let changes = diff(&load::file(old)?.effective(), &load::file(new)?.effective());
            if *json {
                print_json(&changes)?;
            } else {
                let lines =
                    changes.iter().map(|change| format!("{}\n", inert(&change.to_string())));
                print(&lines.collect::<String>())?;
            }
            let wider = changes.iter().any(|change| change.effect == Effect::Wider);
            Ok(if *fail_if_wider && wider { Done::Status(1) } else { Done::Success })
        }
    }
}

#[derive(Serialize)]
struct Checked {
    file: String,
    name: String,
    rules: usize,
    /// The documents that count together, the most general first.
    documents: Vec<String>,
    digest: String,
}

fn check(files: &[PathBuf], json: bool) -> Result<Done, Failure> {
    let mut checked = Vec::new();
    for file in files {
        let chain = load::file(file)?;
        let effective = chain.effective();
        checked.push(Checked {
            file: file.display().to_string(),
            rules: effective.rules.len(),
            name: effective.name,
            documents: chain.layers().iter().map(|layer| layer.origin.clone()).collect(),
            digest: chain.policy().digest().to_owned(),
        });
    }
    if json {
        print_json(&checked)?;
    } else {
        for Checked { file, name, rules, digest, .. } in &checked {
            let (file, name) = (inert(file), inert(name));
            print(&format!("{file}: `{name}` is fine, {rules} rules, digest {digest}\n"))?;
        }
    }
    Ok(Done::Success)
}

fn show(place: &PlaceArgs, json: bool) -> Result<Done, Failure> {
    let chain = load::place(place)?;
    let document = chain.effective();
    if json {
        print_json(&document)?;
    } else {
        let mut text = String::new();
        for layer in chain.layers() {
            text.push_str(&format!("# from {}\n", inert(&layer.origin)));
        }
        text.push_str(&format!("# digest {}\n", chain.policy().digest()));
        text.push_str(&to_yaml(&document));
        print(&text)?;
    }
    Ok(Done::Success)
}

fn test(place: &PlaceArgs, cases: &std::path::Path, json: bool) -> Result<Done, Failure> {
    let chain = load::place(place)?;
    let (text, format) = load::text(cases)?;
    let cases_of = Cases::parse(&text, format).map_err(|refusal| load::refused(cases, refusal))?;
    let results = cases_of.run(&chain.policy(), &FlowRules::new(&chain.effective()));
    let failed = results.iter().filter(|result| !result.passed).count();
    if json {
        print_json(&results)?;
    } else {
        let lines: String = results.iter().map(line).collect();
        print(&format!("{lines}{} cases, {failed} failed\n", results.len()))?;
    }
    if results.is_empty() {
        return Err(Failure::new(Code::InvalidPolicy, "the file has no cases")
            .with_remedy("write at least one question with its answer"));
    }
    Ok(if failed == 0 { Done::Success } else { Done::Status(1) })
}

fn line(result: &CaseResult) -> String {
    let name = inert(&result.name);
    if result.passed {
        return format!("ok    {name}: {}\n", result.found);
    }
    let by = match &result.rule {
        Some(rule) => format!("by `{}`", inert(rule)),
        None => "by default".to_owned(),
    };
    format!("FAIL  {name}: {} {by}, expected {}\n", result.found, result.expected.as_str())
}

/// Text of a document as a terminal may show it.
fn inert(text: &str) -> String {
    Inert::default().push(text.as_bytes())
}
