use super::*;
use clap::Parser;

use crate::args::{Cli, Command, CommandArgs};
use crate::settings::Sources;

/// What `belljar run WORDS -- true` means, with nothing set around it.
fn meant(words: &[&str]) -> Result<v1::CreateSandboxRequest, Failure> {
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
    create_request(&settings, args.name.as_deref(), &args.options, args.command.hint())
}

fn refused(words: &[&str]) -> Code {
    meant(words).unwrap_err().code
}

#[test]
fn nothing_said_is_the_locked_default() {
    let request = meant(&[]).unwrap();
    assert_eq!(request.network, Some(v1::Network::default()));
    assert_eq!(request.limits, Some(v1::Limits::default()));
    assert_eq!(request.backend.as_deref(), Some("auto"));
    assert_eq!(request.template.as_deref(), Some("auto"));
    assert_eq!(request.timeout_secs, Some(60.0));
    assert_eq!(request.idle_timeout_secs, Some(1800.0));
    assert!(request.mounts.is_empty() && request.workspace.is_none() && !request.writable);
}

#[test]
fn only_limits_that_were_given_are_sent() {
    let request = meant(&["--memory", "1g", "--cpus=0.5", "--pids=64", "--disk", "2g"]).unwrap();
    let expected = v1::Limits {
        memory_bytes: Some(1 << 30),
        milli_cpus: Some(500),
        pids: Some(64),
        disk_bytes: Some(2 << 30),
    };
    assert_eq!(request.limits, Some(expected));
    // What was not given stays a default.
    assert_eq!(meant(&["--memory", "1g"]).unwrap().limits.unwrap().pids, None);
}

#[test]
fn paths_of_this_host_become_absolute() {
    let here = std::env::current_dir().unwrap();
    let here = here.to_str().unwrap();
    let workspace = |words: &[&str]| meant(words).unwrap().workspace.unwrap();
    let found = workspace(&["--workspace", "project:ro"]);
    assert_eq!(found.path, format!("{here}/project"));
    assert_eq!(found.mode.as_deref(), Some("bind-ro"));
    assert_eq!(workspace(&["--workspace", "."]).mode.as_deref(), Some("bind"));
    let overlay = workspace(&["--workspace", "/srv", "--workspace-mode", "overlay"]);
    assert_eq!((overlay.path.as_str(), overlay.mode.as_deref()), ("/srv", Some("overlay")));
    let request = meant(&["--mount", "data:/data:ro", "--template", "rootfs:root"]).unwrap();
    assert_eq!(request.mounts, [format!("{here}/data:/data:ro")]);
    assert_eq!(request.template, Some(format!("rootfs:{here}/root")));
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
fn the_command_goes_along_as_a_hint() {
    assert_eq!(meant(&[]).unwrap().command_hint, ["true"]);
    let command = |words: &[&str]| {
        let words = ["belljar", "run"].iter().chain(words);
        let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        args.command.hint()
    };
    assert_eq!(command(&["--", "python3", "-c", "1"]), ["python3", "-c", "1"]);
    assert_eq!(command(&["--cmd", "cd x && cargo test"]), ["cd x && cargo test"]);
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
        .filter(|name| {
            ![
                "name",
                "json",
                "explain",
                "help",
                "get-or-create",
                "metadata",
                "idempotency-key",
                "tenant",
            ]
            .contains(name)
        })
        .filter(|name| !for_commands.contains(name))
        .map(|name| format!("--{name}"))
        .collect();
    let all = SandboxArgs {
        policy: Some("p.yaml".into()),
        policy_root: Some(".".into()),
        policy_record: true,
        template: Some("x".into()),
        backend: Some("x".into()),
        runtime: Some("x".into()),
        isolation: Some("vm".into()),
        i_understand_no_isolation: true,
        idle_timeout: Some("1".into()),
        lease: Some("1".into()),
        ensure: vec!["x".into()],
        label: vec!["x".into()],
        profile: Some("x".into()),
        allow_cidr: vec!["x".into()],
        network_ask: Some("x".into()),
        network_callback: vec!["x".into()],
        network_callback_udp: vec![1],
        network: Some("x".into()),
        allow: vec!["x".into()],
        workspace: Some("x".into()),
        workspace_mode: None,
        mount: vec!["x".into()],
        mask: vec!["/x".into()],
        volume: Some("x".into()),
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
        let expected = expected.map(|(path, content)| v1::FileContent {
            path: path.to_owned(),
            content: content.as_bytes().to_vec().into(),
        });
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
    assert_eq!(command.command().unwrap_err().code, Code::ProgramNotFound);
}

#[test]
fn words_that_are_no_text_are_sent_as_bytes() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"\xff".to_vec());
    let command = |cmd, argv| CommandArgs { cmd, argv }.command().unwrap();
    let plain = command(None, vec!["cat".into(), "x".into()]);
    assert_eq!((plain.argv.len(), plain.raw_argv.len()), (2, 0));
    let raw = command(None, vec!["cat".into(), odd.clone()]);
    assert_eq!((raw.argv.len(), raw.raw_argv.len()), (0, 2));
    assert_eq!(raw.raw_argv[1].as_ref(), b"\xff");
    let line = command(Some(odd), Vec::new());
    assert_eq!((line.shell, line.raw_argv.len()), (None, 3));
}

#[test]
fn zero_is_a_time_only_where_it_means_something() {
    assert_eq!(duration("--x", Some("0")).unwrap(), Some(0.0));
    assert_eq!(duration("--x", Some("2m")).unwrap(), Some(120.0));
    assert_eq!(duration("--x", Some("-1")).unwrap_err().code, Code::InvalidLimit);
    assert_eq!(refused(&["--timeout", "0"]), Code::InvalidLimit);
}
