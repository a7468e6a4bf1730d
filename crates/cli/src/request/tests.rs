use super::*;
use clap::Parser;

use crate::args::{Cli, Command};
use crate::settings::Sources;

/// What `belljar run WORDS -- true` means, with nothing set around it.
fn meant(words: &[&str]) -> Result<CreateRequest, Failure> {
    let words = ["belljar", "run"].iter().chain(words).chain(&["--", "true"]);
    let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("`run` was parsed as another command");
    };
    let sources = Sources {
        variables: BTreeMap::new(),
        system_file: "/nonexistent/config.toml".into(),
        config_flag: None,
        is_root: true,
    };
    let settings = Settings::resolve(&sources, args.flags())?;
    create_request(&settings, args.name.as_deref(), &args.options, args.command.text())
}

fn refused(words: &[&str]) -> Code {
    meant(words).unwrap_err().code
}

#[test]
fn nothing_said_is_the_locked_default() {
    let request = meant(&[]).unwrap();
    assert_eq!(request.network, NetworkPolicy::default());
    assert_eq!(request.limits, Limits::default());
    assert_eq!(request.backend, BackendChoice::Auto);
    assert_eq!(request.timeout, Some(Duration::from_secs(60)));
    assert_eq!(request.idle_timeout, Some(Duration::from_secs(1800)));
    assert!(request.mounts.is_empty() && request.workspace.is_none() && !request.writable);
}

#[test]
fn limits_that_were_given_count_as_asked() {
    let request = meant(&["--memory", "1g", "--cpus=0.5", "--pids=64", "--disk", "2g"]).unwrap();
    assert_eq!(request.limits.memory_bytes, Asked::by_caller(1 << 30));
    assert_eq!(request.limits.cpu_millis, Asked::by_caller(500));
    assert_eq!(request.limits.pids, Asked::by_caller(64));
    assert_eq!(request.limits.disk_bytes, Asked::by_caller(2 << 30));
    // What was not given stays a default.
    assert!(!meant(&["--memory", "1g"]).unwrap().limits.pids.asked);
}

#[test]
fn bad_words_are_refused_with_their_code() {
    assert_eq!(refused(&["--memory", "-1"]), Code::InvalidLimit);
    assert_eq!(refused(&["--memory", "99999999t"]), Code::InvalidLimit);
    assert_eq!(refused(&["--cpus", "0"]), Code::InvalidLimit);
    assert_eq!(refused(&["--timeout", "-5"]), Code::InvalidLimit);
    assert_eq!(refused(&["--lease", "never"]), Code::InvalidLimit);
    assert_eq!(refused(&["--template", "nonesuch"]), Code::TemplateNotFound);
    assert_eq!(refused(&["--name", "a\nb"]), Code::InvalidName);
    assert_eq!(refused(&["--allow", "a.com"]), Code::ConflictingOptions);
    assert_eq!(refused(&["--network", "allowlist"]), Code::InvalidNetworkRule);
    assert_eq!(refused(&["--mount", "/data"]), Code::InvalidArgument);
    assert_eq!(refused(&["--mount", "/data:/proc"]), Code::MountTargetInvalid);
    assert_eq!(refused(&["--user", "alice"]), Code::UserInvalid);
    assert_eq!(refused(&["--env", "1=2"]), Code::InvalidArgument);
    assert_eq!(refused(&["--programs", "/bin/sh"]), Code::InvalidArgument);
    assert_eq!(refused(&["--label", "x"]), Code::InvalidArgument);
    assert_eq!(refused(&["--workspace", ".", "--workspace-mode", "copy"]), Code::InvalidArgument);
}

#[test]
fn the_command_gives_a_hint_only_where_it_tells_something() {
    assert_eq!(meant(&[]).unwrap().family_hint, None);
    let command = |words: &[&str]| {
        let words = ["belljar", "run"].iter().chain(words);
        let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        family(&TemplateSpec::Auto, args.command.text()).map(|(family, _)| family)
    };
    assert_eq!(command(&["--", "python3", "-c", "1"]), Some(Family::Python));
    assert_eq!(command(&["--cmd", "cd x && cargo test"]), Some(Family::Rust));
    assert_eq!(command(&["--cmd", "make"]), None);
}

#[test]
fn options_for_a_sandbox_that_exists_are_refused_by_name() {
    let Command::Run(args) = Cli::try_parse_from([
        "belljar",
        "run",
        "-s",
        "x",
        "--network",
        "full",
        "--memory",
        "1g",
        "--",
        "true",
    ])
    .unwrap()
    .command
    else {
        panic!()
    };
    let failure = refuse_options(&args.options, "x").unwrap_err();
    assert_eq!(failure.code, Code::ConflictingOptions);
    assert!(failure.message.contains("`--network`, `--memory`"), "{}", failure.message);
}

#[test]
fn every_option_of_a_new_sandbox_is_refused_for_an_old_one() {
    use clap::CommandFactory;
    // These belong to the command rather than to the sandbox, or need another one that is refused.
    let for_commands = ["user", "workdir", "env", "workspace-mode"];
    let command = Cli::command();
    let create = command.find_subcommand("create").unwrap();
    let known: Vec<String> = create
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .filter(|name| !["name", "json", "explain", "help"].contains(name))
        .filter(|name| !for_commands.contains(name))
        .map(|name| format!("--{name}"))
        .collect();
    let all = SandboxArgs {
        template: Some("x".into()),
        backend: Some("x".into()),
        isolation: Some("vm".into()),
        i_understand_no_isolation: true,
        idle_timeout: Some("1".into()),
        lease: Some("1".into()),
        ensure: vec!["x".into()],
        label: vec!["x".into()],
        profile: Some("x".into()),
        network: Some("x".into()),
        allow: vec!["x".into()],
        workspace: Some("x".into()),
        workspace_mode: None,
        mount: vec!["x".into()],
        writable: true,
        memory: Some("1".into()),
        cpus: Some("1".into()),
        pids: Some("1".into()),
        disk: Some("1".into()),
        best_effort: true,
        user: None,
        workdir: None,
        env: Vec::new(),
        programs: vec!["x".into()],
    };
    let given = all.given();
    for name in known {
        assert!(given.contains(&name.as_str()), "{name} is ignored for a sandbox that exists");
    }
}

#[test]
fn files_to_write_split_at_the_first_equals_sign() {
    let check = |text: &str, expected: Option<(&str, &str)>| {
        let found = file_to_write(OsStr::new(text)).ok();
        let expected = expected.map(|(path, content)| (Path::new(path), content.as_bytes()));
        assert_eq!(found, expected, "{text}");
    };
    check("a.txt=x=y", Some(("a.txt", "x=y")));
    check("a.txt=", Some(("a.txt", "")));
    check("=x", None);
    check("a.txt", None);
}

#[test]
fn an_empty_program_name_is_no_program() {
    let command = CommandArgs { cmd: None, argv: vec!["".into()] };
    assert_eq!(command.program().unwrap_err().code, Code::ProgramNotFound);
}
