//! `belljar wait`, `cancel` and `signal`: one process, from the outside.

use belljar_api::v1;
use belljar_codes::Code;
use serde::Serialize;

use super::Done;
use crate::args::{CancelArgs, SignalArgs, WaitArgs};
use crate::context::Context;
use crate::failure::{EXIT_TIMED_OUT, Failure};
use crate::output::{print, print_json, word};
use crate::request;

pub(crate) async fn wait(context: &Context, args: &WaitArgs) -> Result<Done, Failure> {
    let request = v1::WaitProcessRequest {
        process_id: args.process.clone(),
        timeout_secs: request::duration("--timeout", args.timeout.as_deref())?,
    };
    let process = context
        .with_client(async |mut client| Ok(client.processes.wait_process(request).await?))
        .await
        .map_err(|failure: Failure| failure.watching(&args.process))?
        .into_inner();
    show(&process, args.json)?;
    Ok(match process.exit_code {
        Some(code) => Done::from_exit_code(code),
        None if is_over(&process) => Done::Status(crate::failure::EXIT_FAILURE),
        None => Done::Status(EXIT_TIMED_OUT),
    })
}

pub(crate) async fn cancel(context: &Context, args: &CancelArgs) -> Result<Done, Failure> {
    let request = v1::CancelProcessRequest {
        process_id: args.process.clone(),
        grace_secs: request::duration("--grace", args.grace.as_deref())?,
    };
    let process = context
        .with_client(async |mut client| Ok(client.processes.cancel_process(request).await?))
        .await?
        .into_inner();
    show(&process, args.json)?;
    Ok(Done::Success)
}

#[derive(Serialize)]
struct Signalled<'a> {
    process_id: &'a str,
    signal: i32,
}

pub(crate) async fn signal(context: &Context, args: &SignalArgs) -> Result<Done, Failure> {
    let signal = signal_number(&args.signal)?;
    let request = v1::SignalProcessRequest { process_id: args.process.clone(), signal };
    context
        .with_client(async |mut client| Ok(client.processes.signal_process(request).await?))
        .await?;
    if args.json {
        print_json(&Signalled { process_id: &args.process, signal })?;
    }
    Ok(Done::Success)
}

/// A process that was lost has ended without an exit status.
fn is_over(process: &v1::Process) -> bool {
    !matches!(process.status(), v1::ProcessStatus::Starting | v1::ProcessStatus::Running)
}

fn show(process: &v1::Process, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(process);
    }
    let code = process.exit_code.map_or_else(String::new, |code| format!(" {code}"));
    print(&format!("{}{code}\n", word(&process.status())))
}

/// In the order of their numbers, from 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn signal_number(text: &str) -> Result<i32, Failure> {
    let word = text.to_ascii_uppercase();
    let name = word.strip_prefix("SIG").unwrap_or(&word);
    let by_name = || SIGNALS.iter().zip(1..).find(|(known, _)| **known == name);
    match text.parse::<i32>() {
        Ok(number @ 1..=64) => Ok(number),
        Ok(_) => Err(()),
        Err(_) => by_name().map(|(_, number)| number).ok_or(()),
    }
    .map_err(|()| {
        Failure::new(
            Code::InvalidArgument,
            format!("signal `{}` is not known", belljar_policy::shown(text)),
        )
        .with_remedy("use a name such as `HUP` or `USR1`, or a number from 1 to 64")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals() {
        let check = |text: &str, expected: Option<i32>| {
            assert_eq!(signal_number(text).ok(), expected, "{text}");
        };
        check("HUP", Some(1));
        check("sigterm", Some(15));
        check("USR2", Some(12));
        check("SYS", Some(31));
        check("9", Some(9));
        check("64", Some(64));
        check("0", None);
        check("65", None);
        check("-1", None);
        check("NONE", None);
        check("", None);
    }
}
