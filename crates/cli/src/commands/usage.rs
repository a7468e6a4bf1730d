//! What to say when the words make no sense.

use std::ffi::OsString;
use std::process::ExitCode;

use belljar_codes::Code;
use clap::error::{ContextKind, ErrorKind};

use crate::failure::{EXIT_FAILURE, Failure};
use crate::output::{print_failure, say};

/// Prints help, the version or the mistake. Mistakes exit 125, because 2 could be the command's own status.
pub(crate) fn answer(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if is_help {
        // A reader that went away is no failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say(&error.render().to_string());
    } else if wants_json(arguments) {
        print_failure(&failure(error), true);
    } else {
        let _ = error.print();
    }
    ExitCode::from(EXIT_FAILURE)
}

/// Nothing was parsed, so this looks at the words before `--`.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

fn failure(error: &clap::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::ArgumentConflict => Code::ConflictingOptions,
        _ => Code::InvalidArgument,
    };
    let text = error.render().to_string();
    // What is missing, or possible, is in the lines below the first.
    let first: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let message = first.strip_prefix("error: ").unwrap_or(&first);
    let remedy = match error.get(ContextKind::SuggestedArg) {
        Some(suggestion) => format!("did you mean `{suggestion}`?"),
        None => {
            "`belljar --help` lists the commands, `belljar COMMAND --help` their options".to_owned()
        }
    };
    Failure::new(code, message).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    #[test]
    fn mistakes_have_codes() {
        let check = |words: &[&str], code: Code, message: &str| {
            let found = failure(&Cli::try_parse_from(words).unwrap_err());
            assert_eq!((found.code, found.message.as_str()), (code, message));
        };
        check(
            &["belljar", "list", "--jason"],
            Code::InvalidArgument,
            "unexpected argument '--jason' found",
        );
        check(
            &["belljar", "webhooks", "add", "http://localhost/"],
            Code::InvalidArgument,
            "the following required arguments were not provided: --secret-file <FILE>",
        );
        check(
            &["belljar", "destroy", "--all", "x"],
            Code::ConflictingOptions,
            "the argument '--all' cannot be used with '[SANDBOX]...'",
        );
    }

    #[test]
    fn only_own_words_ask_for_json() {
        let words =
            |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
        assert!(wants_json(&words(&["belljar", "run", "--json", "--", "x"])));
        assert!(!wants_json(&words(&["belljar", "run", "--", "x", "--json"])));
    }
}
