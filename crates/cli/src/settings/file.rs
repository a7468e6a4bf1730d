//! The configuration file.

use std::collections::BTreeMap;
use std::path::Path;

use belljar_codes::Code;
use serde::{Deserialize, Deserializer};

use super::Key;
use crate::failure::Failure;

/// What `belljar setup --write-config` writes: everything there is, commented out.
pub(crate) const DEFAULT_FILE: &str = "\
# Configuration of Belljar. Flags and environment variables win over this file.

# Where Belljar keeps its state.
# state_dir = \"/var/lib/belljar\"

# The wall: auto, native, oci, docker.
# backend = \"auto\"

# What to log to standard error, for example \"debug\".
# log = \"warn\"

# What a sandbox starts from: auto, host, rootfs:DIR, image:NAME.
# template = \"auto\"

# Network rules: locked, web, packages, full.
# profile = \"locked\"

# Limits of a new sandbox. A limit that is set here is enforced fully or refused.
# memory = \"512m\"
# cpus = 1
# pids = 256
# disk = \"1g\"

# How long a command may run, and how long an unused sandbox lives.
# timeout = \"60\"
# idle_timeout = \"30m\"

# Servers for the names that sandboxes look up, and authorities to trust, in place of the host's own.
# dns_upstream = \"9.9.9.9, tls://9.9.9.9#dns.quad9.net\"
# tls_roots = \"/etc/ssl/own.pem\"

# The engine of the docker backend (unix://PATH, tcp://HOST:PORT), its runtime, whether to fetch images that it does
# not have, and whether images must say that they are hardened.
# docker_host = \"unix:///var/run/docker.sock\"
# docker_runtime = \"runsc\"
# docker_pull = true
# docker_require_hardened_image = true

# Network rules with a name, for `--profile models`.
# profiles.models.allow = [\"api.example.com\", \"*.cdn.example.com\"]
";

/// A file larger than this is something else.
const MAX_FILE: u64 = 1024 * 1024;

/// A configuration file as it was read. A key that does not exist is an error, so that a slip does not go unnoticed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    state_dir: Option<Text>,
    backend: Option<Text>,
    server: Option<Text>,
    api_key: Option<Text>,
    log: Option<Text>,
    template: Option<Text>,
    profile: Option<Text>,
    memory: Option<Text>,
    cpus: Option<Text>,
    pids: Option<Text>,
    disk: Option<Text>,
    timeout: Option<Text>,
    idle_timeout: Option<Text>,
    dns_upstream: Option<Text>,
    tls_roots: Option<Text>,
    docker_host: Option<Text>,
    docker_runtime: Option<Text>,
    #[serde(default, deserialize_with = "truth")]
    docker_pull: Option<Text>,
    #[serde(default, deserialize_with = "truth")]
    docker_require_hardened_image: Option<Text>,
    /// Network rules with a name of one's own.
    #[serde(default)]
    profiles: BTreeMap<String, OwnProfile>,
}

/// Network rules that a name stands for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnProfile {
    #[serde(default = "allowlist")]
    pub(crate) mode: String,
    #[serde(default)]
    pub(crate) allow: Vec<String>,
}

fn allowlist() -> String {
    "allowlist".to_owned()
}

impl ConfigFile {
    /// Reads `path`; `None` where there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let refuse = |error: &dyn std::error::Error| {
            Failure::new(
                Code::InvalidConfiguration,
                format!("configuration file `{}` cannot be used", path.display()),
            )
            .caused_by(error)
        };
        let text = match read_bounded(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(&error)),
        };
        toml::from_str(&text).map(Some).map_err(|error| {
            refuse(&error).with_remedy("correct the file, or name another one with `--config`")
        })
    }

    pub(super) fn profile(&self, name: &str) -> Option<&OwnProfile> {
        self.profiles.get(name)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&str> {
        let text = match key {
            Key::StateDir => &self.state_dir,
            Key::Backend => &self.backend,
            Key::Server => &self.server,
            Key::ServerSecret => &self.api_key,
            Key::Log => &self.log,
            Key::Template => &self.template,
            Key::Profile => &self.profile,
            Key::Memory => &self.memory,
            Key::Cpus => &self.cpus,
            Key::Pids => &self.pids,
            Key::Disk => &self.disk,
            Key::Timeout => &self.timeout,
            Key::IdleTimeout => &self.idle_timeout,
            Key::DnsUpstream => &self.dns_upstream,
            Key::TlsRoots => &self.tls_roots,
            Key::DockerHost => &self.docker_host,
            Key::DockerRuntime => &self.docker_runtime,
            Key::DockerPull => &self.docker_pull,
            Key::DockerHardened => &self.docker_require_hardened_image,
        };
        text.as_ref().map(|text| text.0.as_str())
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// Text, or a number written without quotes.
#[derive(Debug)]
struct Text(String);

/// `true` or `false`, as text.
fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    Ok(Some(Text(bool::deserialize(deserializer)?.to_string())))
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "text or a number")]
        enum Written {
            Text(String),
            Whole(i64),
            Fraction(f64),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Whole(number) => number.to_string(),
            Written::Fraction(number) => number.to_string(),
        }))
    }
}
