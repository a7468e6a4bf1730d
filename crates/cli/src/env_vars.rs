//! Every environment variable that Belljar reads, in one place.
//!
//! Flags win over these, these win over configuration files.

/// Directory for Belljar's state: the store, the sandboxes' files, logs. Default: `/var/lib/belljar` for root,
/// otherwise `$XDG_STATE_HOME/belljar` or `~/.local/state/belljar`.
pub(crate) const STATE_DIR: &str = "BELLJAR_STATE_DIR";

/// The backend to use: `auto`, or the name of one. Same as `--backend`.
pub(crate) const BACKEND: &str = "BELLJAR_BACKEND";

/// Directories in which a server looks for the runtimes of `oci` before those of `PATH`, separated by colons.
pub(crate) const RUNTIME_PATH: &str = "BELLJAR_RUNTIME_PATH";

/// The server to talk to: a URL, `unix:PATH`, or `embedded`. Same as `--server`.
pub(crate) const SERVER: &str = "BELLJAR_SERVER";

/// Key for that server. Never shown. Same as `--api-key`.
pub(crate) const API_KEY: &str = "BELLJAR_API_KEY";

/// An administrator's key of the operator's own choice, for `belljar serve`. Never shown.
pub(crate) const SERVE_API_KEY: &str = "BELLJAR_SERVE_API_KEY";

/// File with the 32 bytes that seal the secrets of the state directory. Default: `secrets.key` in the state directory,
/// made when the first secret is kept.
pub(crate) const SECRETS_KEY_FILE: &str = "BELLJAR_SECRETS_KEY_FILE";

/// What to log to standard error, as `tracing` filters are written: `debug`, `belljar_engine=trace`. Default: nothing.
pub(crate) const LOG: &str = "BELLJAR_LOG";

/// Servers that are asked for the names that sandboxes look up, in place of the host's own. Same as `serve --dns-upstream`.
pub(crate) const DNS_UPSTREAM: &str = "BELLJAR_DNS_UPSTREAM";

/// Certificates of authorities in PEM that are trusted for what sandboxes reach, in place of the host's own. Same as
/// `serve --tls-roots`.
pub(crate) const TLS_ROOTS: &str = "BELLJAR_TLS_ROOTS";

/// The engine of the docker backend: `unix://PATH`, or `tcp://HOST:PORT` for one elsewhere. Default: `DOCKER_HOST`, then the
/// usual sockets of Docker and of Podman.
pub(crate) const DOCKER_HOST: &str = "BELLJAR_DOCKER_HOST";

/// The runtime that the engine of the docker backend uses: `runc`, `runsc`, `kata`. Default: the engine's own.
pub(crate) const DOCKER_RUNTIME: &str = "BELLJAR_DOCKER_RUNTIME";

/// Any value but `0` and `false`: the engine of the docker backend fetches images that it does not have.
pub(crate) const DOCKER_PULL: &str = "BELLJAR_DOCKER_PULL";

/// Any value but `0` and `false`: images must have the label `belljar.hardened=true`, or the sandbox a list of programs.
pub(crate) const DOCKER_REQUIRE_HARDENED_IMAGE: &str = "BELLJAR_DOCKER_REQUIRE_HARDENED_IMAGE";

/// Configuration file to read in place of `~/.config/belljar/config.toml`. Same as `--config`.
pub(crate) const CONFIG: &str = "BELLJAR_CONFIG";

// --- not ours, but read ---

/// The engine that Docker's own programs speak to.
pub(crate) const OTHER_DOCKER_HOST: &str = "DOCKER_HOST";

/// Home directory of the user: where configuration and state are, and which directories are never mounted.
pub(crate) const HOME: &str = "HOME";

/// Base of the user's configuration files.
pub(crate) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";

/// Base of the user's state.
pub(crate) const XDG_STATE_HOME: &str = "XDG_STATE_HOME";

/// The OTLP collector that a server sends spans of requests to. Same as `serve --otlp-endpoint`.
pub(crate) const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A file with the certificate (PEM) that a collector's must come from, in place of what the machine trusts.
pub(crate) const OTLP_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// Any value switches colours off.
pub(crate) const NO_COLOR: &str = "NO_COLOR";

/// The kind of terminal, passed on to interactive sessions.
pub(crate) const TERM: &str = "TERM";
