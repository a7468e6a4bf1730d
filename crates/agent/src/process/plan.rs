//! From a request to start something to what the kernel wants: strings, paths to try, a directory, a user.

use std::collections::BTreeMap;
use std::ffi::CString;

use belljar_protocol::v1::{self, User};
use belljar_sys::workload::{Planned, Program};

use crate::failure::{Problem, Result, invalid};
use crate::setup::Setup;

/// A start that has been checked; nothing has happened yet.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) planned: Planned,
    /// What was asked for, for messages.
    pub(crate) name: Vec<u8>,
}

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

const SHELL: &[u8] = b"/bin/sh";

impl Plan {
    pub(crate) fn new(setup: &Setup, start: &v1::Start) -> Result<Self> {
        let environment = environment(setup, start);
        let (arguments, candidates) = match &start.program {
            Some(v1::start::Program::ShellLine(line)) => {
                (vec![b"sh".to_vec(), b"-c".to_vec(), line.clone()], vec![SHELL.to_vec()])
            }
            Some(v1::start::Program::Argv(argv)) => {
                let name = argv.args.first().filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| invalid("no program is named"))?;
                if !setup.allows_program(name) {
                    return Err(Problem::new("program-denied", "").at("exec").about(name));
                }
                let path = environment.get("PATH").map_or(DEFAULT_PATH, String::as_str);
                (argv.args.clone(), candidates(name, path))
            }
            None => return Err(invalid("no program is named")),
        };
        let user = start.user.as_ref().unwrap_or(&setup.user);
        let (credentials, capabilities) = setup.credentials(user)?;
        let name = match candidates.as_slice() {
            [only] => only.clone(),
            _ => arguments.first().cloned().unwrap_or_default(),
        };
        let planned = Planned {
            program: Program::new(
                strings(arguments)?,
                strings(environment_strings(&environment)?)?,
                strings(candidates)?,
            ),
            working_directory: string(working_directory(setup, start))?,
            credentials,
            capabilities,
        };
        Ok(Self { planned, name })
    }
}

/// The paths that `execvp` would try: the name itself if it has a slash, else one per directory of `PATH`.
fn candidates(name: &[u8], path: &str) -> Vec<Vec<u8>> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    path.split(':')
        .map(|directory| {
            // An empty element is the working directory.
            let directory = if directory.is_empty() { "." } else { directory };
            [directory.as_bytes(), b"/", name].concat()
        })
        .collect()
}

fn working_directory(setup: &Setup, start: &v1::Start) -> Vec<u8> {
    let configured = match setup.working_directory.as_slice() {
        [] => b"/".as_slice(),
        path => path,
    };
    match start.working_directory.as_slice() {
        [] => configured.to_vec(),
        absolute @ [b'/', ..] => absolute.to_vec(),
        relative => [configured, b"/", relative].concat(),
    }
}

/// From weakest to strongest: what follows from the configured user, the configuration, what follows from a user given
/// for this start, this start's own.
fn environment(setup: &Setup, start: &v1::Start) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    add_user(&mut environment, &setup.user);
    if start.terminal.is_some() {
        environment.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    add(&mut environment, &setup.environment);
    if let Some(user) = &start.user {
        add_user(&mut environment, user);
    }
    add(&mut environment, &start.environment);
    environment
}

fn add(environment: &mut BTreeMap<String, String>, more: &BTreeMap<String, String>) {
    for (key, value) in more {
        environment.insert(key.clone(), value.clone());
    }
}

fn add_user(environment: &mut BTreeMap<String, String>, user: &User) {
    let home = String::from_utf8_lossy(&user.home).into_owned();
    for (key, value) in [("HOME", &home), ("USER", &user.name), ("LOGNAME", &user.name)] {
        if !value.is_empty() {
            environment.insert(key.to_owned(), value.clone());
        }
    }
}

fn environment_strings(environment: &BTreeMap<String, String>) -> Result<Vec<Vec<u8>>> {
    environment
        .iter()
        .map(|(key, value)| {
            if key.is_empty() || key.as_bytes().contains(&b'=') {
                return Err(invalid("an environment name is empty or has an equals sign"));
            }
            Ok(format!("{key}={value}").into_bytes())
        })
        .collect()
}

fn strings(all: Vec<Vec<u8>>) -> Result<Vec<CString>> {
    all.into_iter().map(string).collect()
}

fn string(bytes: Vec<u8>) -> Result<CString> {
    CString::new(bytes).map_err(|_| invalid("a string has a NUL byte in it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_protocol::v1::{Argv, Configure, Start, Terminal, start::Program};
    use belljar_sys::workload::Limit;

    fn setup() -> Setup {
        let configure = Configure {
            user: Some(User {
                uid: 1000,
                gid: 1000,
                name: "user".into(),
                home: b"/home/user".to_vec(),
                groups: vec![],
            }),
            environment: [("A", "1"), ("HOME", "/h")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            working_directory: b"/workspace".to_vec(),
            ..Configure::default()
        };
        Setup::new(configure, Limit::current(7).unwrap(), None).unwrap().0
    }

    fn argv(arguments: &[&[u8]]) -> Start {
        let args = arguments.iter().map(|argument| argument.to_vec()).collect();
        Start { program: Some(Program::Argv(Argv { args })), ..Start::default() }
    }

    #[test]
    fn searches_as_execvp_does() {
        for (name, path, expected) in [
            ("ls", "/a:/b", &["/a/ls", "/b/ls"][..]),
            ("ls", ":/b:", &["./ls", "/b/ls", "./ls"]),
            ("./ls", "/a", &["./ls"]),
            ("/bin/ls", "/a", &["/bin/ls"]),
        ] {
            let found = candidates(name.as_bytes(), path);
            assert_eq!(found, expected.iter().map(|path| path.as_bytes()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn relative_directories_start_at_the_configured_one() {
        for (given, expected) in
            [("", "/workspace"), ("/x", "/x"), ("sub/dir", "/workspace/sub/dir")]
        {
            let start = Start { working_directory: given.into(), ..argv(&[b"ls"]) };
            let plan = Plan::new(&setup(), &start).unwrap();
            assert_eq!(plan.planned.working_directory.to_str().unwrap(), expected);
        }
    }

    #[test]
    fn the_environment_has_layers() {
        let start = Start {
            environment: [("B".to_owned(), "2".to_owned())].into(),
            terminal: Some(Terminal::default()),
            ..argv(&[b"ls"])
        };
        let all = environment(&setup(), &start);
        let pairs: Vec<_> = all.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            pairs,
            ["A=1", "B=2", "HOME=/h", "LOGNAME=user", "TERM=xterm-256color", "USER=user"]
        );
        let root = User { name: "root".into(), home: b"/root".to_vec(), ..User::default() };
        let all = environment(&setup(), &Start { user: Some(root), ..argv(&[b"ls"]) });
        assert_eq!((all["HOME"].as_str(), all["USER"].as_str()), ("/root", "root"));
    }

    #[test]
    fn refuses_what_no_program_can_be_given() {
        let mut odd = argv(&[b"ls"]);
        odd.environment.insert("A=B".into(), String::new());
        for start in [
            Start::default(),
            argv(&[]),
            argv(&[b""]),
            argv(&[b"ls", b"a\0b"]),
            Start { working_directory: b"/\0".to_vec(), ..argv(&[b"ls"]) },
            odd,
        ] {
            assert!(Plan::new(&setup(), &start).is_err(), "{start:?}");
        }
    }
}
