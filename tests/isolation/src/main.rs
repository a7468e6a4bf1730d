//! `belljar-probe <name> [arguments]`: runs one probe and prints its report as one line of JSON.
//!
//! Exit status: 0 when the probe could run, whatever it found; 2 when there is no such probe or an argument is wrong.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::process::ExitCode;

use belljar_isolation::probes;

/// Set to run a probe outside a sandbox all the same, as a user who can break nothing.
const UNSEALED: &str = "BELLJAR_PROBE_UNSEALED";

fn main() -> ExitCode {
    // Arguments are taken as bytes: one probe is given some that are not UTF-8.
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();

    if name == "list" {
        for probe in probes::ALL {
            println!("{:<18} {}", probe.name, probe.about);
        }
        return ExitCode::SUCCESS;
    }
    let Some(probe) = probes::ALL.iter().find(|probe| name == probe.name) else {
        eprintln!("error: no probe is called {name:?}\n\nhint: `belljar-probe list` names them");
        return ExitCode::from(2);
    };
    let permitted = std::env::var_os(UNSEALED).is_some() && !probes::aims_at_init(probe.name);
    if !probes::in_sandbox() && !permitted {
        eprintln!(
            "error: this is no sandbox, and probes do harm\n\nhint: PID 1 must be `belljar-agent`"
        );
        return ExitCode::from(2);
    }
    match (probe.run)(&rest) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {}: {message}", probe.name);
            ExitCode::from(2)
        }
    }
}
