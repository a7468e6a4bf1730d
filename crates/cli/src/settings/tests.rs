use super::*;
use std::fs;

/// A private set of sources in a temporary directory.
struct Place {
    directory: tempfile::TempDir,
    sources: Sources,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sources = Sources {
            variables: [("HOME".into(), directory.path().into())].into(),
            system_file: directory.path().join("system.toml"),
            config_flag: None,
            is_root: false,
        };
        Self { directory, sources }
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.variables.insert(name.into(), value.into());
        self
    }

    fn user_path(&self) -> PathBuf {
        self.directory.path().join(".config/belljar/config.toml")
    }

    fn user_file(self, text: &str) -> Self {
        fs::create_dir_all(self.user_path().parent().unwrap()).unwrap();
        fs::write(self.user_path(), text).unwrap();
        self
    }

    fn system_file(self, text: &str) -> Self {
        fs::write(&self.sources.system_file, text).unwrap();
        self
    }

    fn settings(&self, flags: &[(Key, &str)]) -> Settings {
        let flags = flags.iter().map(|(key, value)| (*key, OsString::from(value))).collect();
        Settings::resolve(&self.sources, flags).unwrap()
    }

    fn failure(&self) -> Failure {
        Settings::resolve(&self.sources, Vec::new()).unwrap_err()
    }
}

fn check(settings: &Settings, key: Key, value: Option<&str>, origin: Origin) {
    let expected = Setting { key, value: value.map(OsString::from), origin };
    assert_eq!(*settings.get(key), expected);
}

#[test]
fn flags_win_over_environment_over_user_file_over_system_file_over_default() {
    let place = Place::new();
    check(&place.settings(&[]), Key::Backend, Some("auto"), Origin::Default);

    let place = place.system_file("backend = 'system'");
    let system = place.sources.system_file.clone();
    check(&place.settings(&[]), Key::Backend, Some("system"), Origin::SystemFile(system));

    let place = place.user_file("backend = 'user'");
    let user = place.user_path();
    check(&place.settings(&[]), Key::Backend, Some("user"), Origin::UserFile(user));

    let place = place.variable("BELLJAR_BACKEND", "environment");
    let origin = Origin::Environment("BELLJAR_BACKEND");
    check(&place.settings(&[]), Key::Backend, Some("environment"), origin);

    let settings = place.settings(&[(Key::Backend, "flag")]);
    check(&settings, Key::Backend, Some("flag"), Origin::Flag("--backend"));
}

#[test]
fn files_are_merged_key_by_key() {
    let place =
        Place::new().system_file("memory = '1g'\npids = 64").user_file("memory = '2g'\ncpus = 0.5");
    let settings = place.settings(&[]);
    check(&settings, Key::Memory, Some("2g"), Origin::UserFile(place.user_path()));
    check(&settings, Key::Cpus, Some("0.5"), Origin::UserFile(place.user_path()));
    check(&settings, Key::Pids, Some("64"), Origin::SystemFile(place.sources.system_file.clone()));
    check(&settings, Key::Disk, Some("1g"), Origin::Default);
    check(&settings, Key::Server, None, Origin::Default);
}

#[test]
fn an_empty_variable_is_no_value() {
    let place = Place::new().variable("BELLJAR_BACKEND", "").variable("BELLJAR_SERVER", "");
    let settings = place.settings(&[]);
    check(&settings, Key::Backend, Some("auto"), Origin::Default);
    check(&settings, Key::Server, None, Origin::Default);
}

#[test]
fn the_state_directory_depends_on_the_user() {
    let mut place = Place::new();
    let home = place.directory.path().to_path_buf();
    assert_eq!(place.settings(&[]).state_dir().unwrap(), home.join(".local/state/belljar"));

    place = place.variable("XDG_STATE_HOME", "relative/is/ignored");
    assert_eq!(place.settings(&[]).state_dir().unwrap(), home.join(".local/state/belljar"));
    place = place.variable("XDG_STATE_HOME", "/state");
    assert_eq!(place.settings(&[]).state_dir().unwrap(), Path::new("/state/belljar"));

    place.sources.is_root = true;
    assert_eq!(place.settings(&[]).state_dir().unwrap(), Path::new("/var/lib/belljar"));
    let settings = place.settings(&[(Key::StateDir, "/elsewhere")]);
    assert_eq!(settings.state_dir().unwrap(), Path::new("/elsewhere"));

    place.sources.is_root = false;
    place.sources.variables.clear();
    let failure = place.settings(&[]).state_dir().unwrap_err();
    assert_eq!(failure.code, Code::InvalidConfiguration);
}

#[test]
fn another_file_can_be_named_but_must_exist() {
    let place = Place::new().user_file("pids = 100");
    let other = place.directory.path().join("other.toml");
    let mut place = place.variable("BELLJAR_CONFIG", other.to_str().unwrap());
    assert_eq!(place.failure().code, Code::InvalidConfiguration);
    fs::write(&other, "pids = 200").unwrap();
    check(&place.settings(&[]), Key::Pids, Some("200"), Origin::UserFile(other));

    let flagged = place.directory.path().join("flagged.toml");
    fs::write(&flagged, "pids = 300").unwrap();
    place.sources.config_flag = Some(flagged.clone());
    check(&place.settings(&[]), Key::Pids, Some("300"), Origin::UserFile(flagged));
}

#[test]
fn slips_in_a_file_are_errors_that_name_it() {
    for text in ["memmory = '1g'", "memory = [1]", "memory", "memory = true"] {
        let place = Place::new().user_file(text);
        let failure = place.failure();
        assert_eq!(failure.code, Code::InvalidConfiguration, "{text}");
        assert!(failure.message.contains("config.toml"), "{}", failure.message);
    }
}

#[test]
fn a_bad_value_is_blamed_on_its_origin() {
    let place = Place::new().user_file("memory = '-1'");
    let parse = |settings: &Settings| {
        settings.get(Key::Memory).parse_text(belljar_policy::limits::parse_memory).unwrap_err()
    };
    let failure = parse(&place.settings(&[]));
    assert_eq!(failure.code, Code::InvalidConfiguration);
    assert!(failure.message.contains("config.toml"), "{}", failure.message);
    let failure = parse(&place.settings(&[(Key::Memory, "-1")]));
    assert_eq!(failure.code, Code::InvalidLimit);
}

#[test]
fn a_server_is_found_wherever_it_comes_from() {
    let by_variable = Place::new().variable("BELLJAR_SERVER", "https://x").settings(&[]);
    let by_file = Place::new().user_file("server = 'https://x'").settings(&[]);
    let by_flag = Place::new().settings(&[(Key::Server, "https://x")]);
    for settings in [by_variable, by_file, by_flag] {
        assert_eq!(settings.get(Key::Server).value.as_deref(), Some("https://x".as_ref()));
    }
}

#[test]
fn the_default_file_says_what_the_defaults_are() {
    let uncommented: String = DEFAULT_FILE
        .lines()
        .filter_map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")))
        .map(|line| format!("{line}\n"))
        .collect();
    let place = Place::new().user_file(&uncommented);
    let settings = place.settings(&[]);
    for key in Key::ALL {
        if let Some(default) = key.fixed_default() {
            assert_eq!(settings.get(*key).value, Some(default.into()), "{}", key.name());
        }
    }
    // And as it is written it changes nothing.
    let untouched = Place::new().user_file(DEFAULT_FILE).settings(&[]);
    assert!(untouched.iter().all(|setting| setting.origin == Origin::Default));
}
