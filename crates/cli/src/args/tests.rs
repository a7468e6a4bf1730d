use super::*;
use clap::CommandFactory;
use std::ffi::OsString;

fn run_args(words: &[&str]) -> RunArgs {
    let words = ["belljar", "run"].iter().chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Run(args) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_types_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_overview_names_every_command() {
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let line = format!("\n  {:<13}", command.get_name());
        assert!(TOP_HELP.contains(&line), "`{}` is missing", command.get_name());
    }
    let listed = TOP_HELP.lines().filter(|line| line.starts_with("  ")).count();
    assert_eq!(listed, Cli::command().get_subcommands().filter(|c| !c.is_hide_set()).count());
}

#[test]
fn the_command_begins_at_the_first_word_or_after_the_dashes() {
    let check = |words: &[&str], expected: &[&str]| {
        let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
        assert_eq!(run_args(words).command.argv, expected, "{words:?}");
    };
    check(&["--", "python3", "-c", "x"], &["python3", "-c", "x"]);
    check(&["--json", "--", "cat", "--json", "--"], &["cat", "--json", "--"]);
    check(&["python3", "-c", "x", "--json"], &["python3", "-c", "x", "--json"]);
    check(&["--timeout", "5", "true"], &["true"]);
    assert!(!run_args(&["cat", "--json"]).json);
}

#[test]
fn exec_takes_options_before_and_after_the_sandbox() {
    let check = |words: &[&str], json: bool, argv: &[&str]| {
        let words = ["belljar", "exec"].iter().chain(words);
        let Command::Exec(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        assert_eq!((args.sandbox.as_str(), args.json, args.command.argv), ("box", json, argv));
    };
    check(&["box", "--", "ls", "-l"], false, &["ls", "-l"]);
    check(&["--json", "box", "ls", "-l"], true, &["ls", "-l"]);
    check(&["box", "--json", "--", "ls"], true, &["ls"]);
    check(&["box", "ls", "--json"], false, &["ls", "--json"]);
    check(&["box", "--cmd", "ls"], false, &[]);
}

#[test]
fn a_mistyped_option_is_not_taken_for_the_command() {
    assert!(Cli::try_parse_from(["belljar", "run", "--netwrok", "none", "--", "true"]).is_err());
}

#[test]
fn a_command_is_needed_in_exactly_one_form() {
    for words in [&["run"][..], &["run", "--cmd", "x", "--", "y"], &["run", "--"], &["exec", "x"]] {
        let words = ["belljar"].iter().chain(words);
        assert!(Cli::try_parse_from(words).is_err());
    }
}

#[test]
fn negative_numbers_reach_the_check_that_explains_them() {
    let args = run_args(&["--memory", "-1", "--timeout", "-5", "--", "true"]);
    assert_eq!(args.options.memory.as_deref(), Some("-1"));
    assert_eq!(args.timeout.as_deref(), Some("-5"));
}

#[test]
fn words_that_are_no_text_are_kept() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"\xff\xfe".to_vec());
    let words: Vec<OsString> =
        vec!["belljar".into(), "run".into(), "--".into(), "cat".into(), odd.clone()];
    let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
    assert_eq!(args.command.argv[1], odd);
}

/// Help is what people see first: a change to it is a change to review.
#[test]
fn help_reads_as_recorded() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut short = command.render_help().to_string();
    let mut long = String::new();
    for subcommand in command.get_subcommands() {
        let heading = format!("\n==== belljar {} ====\n\n", subcommand.get_name());
        let mut subcommand = subcommand.clone().term_width(100);
        short.push_str(&(heading.clone() + &subcommand.render_help().to_string()));
        long.push_str(&(heading + &subcommand.render_long_help().to_string()));
    }
    insta::assert_snapshot!("help-short", short);
    insta::assert_snapshot!("help-long", long);
}
