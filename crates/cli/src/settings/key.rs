//! The settings there are.

use crate::env_vars;

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    StateDir,
    Backend,
    Server,
    ServerSecret,
    Log,
    Template,
    Profile,
    Memory,
    Cpus,
    Pids,
    Disk,
    Timeout,
    IdleTimeout,
    DnsUpstream,
    TlsRoots,
    DockerHost,
    DockerRuntime,
    DockerPull,
    DockerHardened,
}

impl Key {
    pub(crate) const ALL: &'static [Self] = &[
        Self::StateDir,
        Self::Backend,
        Self::Server,
        Self::ServerSecret,
        Self::Log,
        Self::Template,
        Self::Profile,
        Self::Memory,
        Self::Cpus,
        Self::Pids,
        Self::Disk,
        Self::Timeout,
        Self::IdleTimeout,
        Self::DnsUpstream,
        Self::TlsRoots,
        Self::DockerHost,
        Self::DockerRuntime,
        Self::DockerPull,
        Self::DockerHardened,
    ];

    /// As in configuration files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::StateDir => "state_dir",
            Self::Backend => "backend",
            Self::Server => "server",
            Self::ServerSecret => "api_key",
            Self::Log => "log",
            Self::Template => "template",
            Self::Profile => "profile",
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Timeout => "timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::DnsUpstream => "dns_upstream",
            Self::TlsRoots => "tls_roots",
            Self::DockerHost => "docker_host",
            Self::DockerRuntime => "docker_runtime",
            Self::DockerPull => "docker_pull",
            Self::DockerHardened => "docker_require_hardened_image",
        }
    }

    /// The flag of the same meaning.
    pub(crate) const fn flag(self) -> &'static str {
        match self {
            Self::StateDir => "--state-dir",
            Self::Backend => "--backend",
            Self::Server => "--server",
            Self::ServerSecret => "--api-key",
            Self::Log => "--log",
            Self::Template => "--template",
            Self::Profile => "--profile",
            Self::Memory => "--memory",
            Self::Cpus => "--cpus",
            Self::Pids => "--pids",
            Self::Disk => "--disk",
            Self::Timeout => "--timeout",
            Self::IdleTimeout => "--idle-timeout",
            Self::DnsUpstream => "--dns-upstream",
            Self::TlsRoots => "--tls-roots",
            // No command has a flag for these.
            Self::DockerHost => "--docker-host",
            Self::DockerRuntime => "--docker-runtime",
            Self::DockerPull => "--docker-pull",
            Self::DockerHardened => "--docker-require-hardened-image",
        }
    }

    /// The environment variable of the same meaning.
    pub(crate) const fn variable(self) -> Option<&'static str> {
        match self {
            Self::StateDir => Some(env_vars::STATE_DIR),
            Self::Backend => Some(env_vars::BACKEND),
            Self::Server => Some(env_vars::SERVER),
            Self::ServerSecret => Some(env_vars::API_KEY),
            Self::Log => Some(env_vars::LOG),
            Self::DnsUpstream => Some(env_vars::DNS_UPSTREAM),
            Self::TlsRoots => Some(env_vars::TLS_ROOTS),
            Self::DockerHost => Some(env_vars::DOCKER_HOST),
            Self::DockerRuntime => Some(env_vars::DOCKER_RUNTIME),
            Self::DockerPull => Some(env_vars::DOCKER_PULL),
            Self::DockerHardened => Some(env_vars::DOCKER_REQUIRE_HARDENED_IMAGE),
            _ => None,
        }
    }

    /// What holds when nobody says anything. The state directory's default depends on the user.
    pub(crate) const fn fixed_default(self) -> Option<&'static str> {
        match self {
            Self::Backend | Self::Template => Some("auto"),
            Self::Memory => Some("512m"),
            Self::Cpus => Some("1"),
            Self::Pids => Some("256"),
            Self::Disk => Some("1g"),
            Self::Timeout => Some("60"),
            Self::IdleTimeout => Some("30m"),
            // No profile is the locked one, but an absent one does not contradict `--network`.
            Self::Profile | Self::StateDir | Self::Server | Self::ServerSecret | Self::Log
            // The host's own.
            | Self::DnsUpstream | Self::TlsRoots
            // The usual sockets, and what is there.
            | Self::DockerHost | Self::DockerRuntime | Self::DockerPull | Self::DockerHardened => None,
        }
    }

    /// Whether the value is never shown.
    pub(crate) const fn is_secret(self) -> bool {
        matches!(self, Self::ServerSecret)
    }
}
