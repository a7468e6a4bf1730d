//! `belljar policy explain`: one question and the grounds of its answer.

use belljar_codes::Code;
use belljar_policy::document::{
    Context, FlowCase, FlowRules, Format, Method, Transport, Value, read,
};
use belljar_policy::shown;
use serde::Serialize;

use super::{Done, inert, load};
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

const HTTPS: u16 = 443;

pub(super) fn explain(args: &ExplainArgs) -> Result<Done, Failure> {
    let chain = load::place(&args.place)?;
    if let Some(host) = &args.host {
        return explain_host(args, host, &FlowRules::new(&chain.effective()));
    }
    let explanation = chain.policy().explain(&context(args)?);
    if args.json {
        print_json(&explanation)?;
    } else {
        for line in explanation.to_string().lines() {
            print(&format!("{}\n", inert(line)))?;
        }
    }
    Ok(Done::Success)
}

#[derive(Serialize)]
struct HostAnswer<'a> {
    host: &'a str,
    port: u16,
    verdict: &'a str,
    rule: Option<String>,
}

fn explain_host(args: &ExplainArgs, host: &str, flows: &FlowRules) -> Result<Done, Failure> {
    let (host, port) = match host.split_once(':') {
        None => (host, HTTPS),
        Some((name, digits)) => (name, digits.parse().map_err(|_| no_port(host))?),
    };
    let flow = FlowCase {
        host: host.to_owned(),
        port,
        transport: Transport::Tcp,
        method: args.method.as_deref().map(Method::parse).transpose()?,
        path: args.path.clone(),
    };
    let (verdict, rule) = flow.ask(flows);
    if args.json {
        print_json(&HostAnswer { host, port, verdict, rule })?;
    } else {
        let by = match &rule {
            Some(rule) => format!("`{}` decides", inert(rule)),
            None => "nothing names it, so the default counts".to_owned(),
        };
        print(&format!("{verdict}: {by}\n"))?;
    }
    Ok(Done::Success)
}

fn no_port(host: &str) -> Failure {
    Failure::new(Code::InvalidArgument, format!("`{}` has no port", shown(host)))
        .with_remedy("write `HOST` or `HOST:PORT`")
}

fn context(args: &ExplainArgs) -> Result<Context, Failure> {
    let mut context = Context::new();
    if let Some(path) = &args.context {
        let (text, format) = load::text(path)?;
        let value: Value = read(&text, format).map_err(|refusal| load::refused(path, refusal))?;
        let Value::Map(entries) = value else {
            return Err(Failure::new(Code::InvalidArgument, "the context is not a map of fields")
                .with_remedy("write `field: value` lines"));
        };
        for (name, value) in entries {
            context.nest(&name, value);
        }
    }
    if let Some(action) = &args.action {
        context.set("action", action.as_str());
    }
    for field in &args.field {
        let Some((name, text)) = field.split_once('=') else {
            let message = format!("`{}` has no `=`", shown(field));
            return Err(Failure::new(Code::InvalidArgument, message)
                .with_remedy("write `--field NAME=VALUE`"));
        };
        context.nest(name, read(text, Format::Json).unwrap_or_else(|_| Value::from(text)));
    }
    Ok(context)
}
