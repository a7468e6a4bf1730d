//! What a new sandbox is to be like: shared by `run`, `create` and `shell`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug, Default)]
pub(crate) struct SandboxArgs {
    /// What the sandbox starts from: auto, host, rootfs:DIR, image:NAME [default: auto]
    ///
    /// `auto` looks at the words of the command, then at the manifests in the workspace.
    #[arg(long, value_name = "TEMPLATE", help_heading = "Sandbox")]
    pub(crate) template: Option<OsString>,

    /// The wall: auto, native, oci, docker, local [env: BELLJAR_BACKEND] [default: auto]
    ///
    /// `auto` takes the strongest that works fast; `belljar probe` shows what that is. It never picks `local`, which is a
    /// plain process of this host.
    #[arg(long, value_name = "BACKEND", help_heading = "Sandbox")]
    pub(crate) backend: Option<OsString>,

    /// What runs in the backend: runsc, runc, crun or kata [default: the best that works]
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    pub(crate) runtime: Option<String>,

    /// Refuse backends that are weaker than this class
    #[arg(long, value_name = "CLASS", help_heading = "Sandbox", value_parser = ["namespace", "kernel", "vm"])]
    pub(crate) isolation: Option<String>,

    /// Accept `--backend local`, which has no isolation at all
    #[arg(long, help_heading = "Sandbox")]
    pub(crate) i_understand_no_isolation: bool,

    /// End the sandbox when nobody used it for this long [default: 30m]
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    pub(crate) idle_timeout: Option<String>,

    /// End the sandbox after this long, used or not
    #[arg(long, value_name = "TIME", help_heading = "Sandbox")]
    pub(crate) lease: Option<String>,

    /// Run a shell line once in a new sandbox, before anything else (repeatable)
    #[arg(long, value_name = "CMD", help_heading = "Sandbox")]
    pub(crate) ensure: Vec<String>,

    /// Attach a label to a new sandbox (repeatable)
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Sandbox")]
    pub(crate) label: Vec<String>,

    /// What the sandbox runs under: a document, a directory with one, or NAME[@VERSION] of one that the server keeps
    ///
    /// Its limits, directories and network become the sandbox's; other options may ask for less, never for more.
    /// `belljar policy show` tells what counts.
    #[arg(long, value_name = "POLICY", help_heading = "Policy", conflicts_with = "policy_record")]
    pub(crate) policy: Option<OsString>,

    /// With a directory as policy: where documents of directories begin
    #[arg(long, value_name = "DIR", help_heading = "Policy", requires = "policy")]
    pub(crate) policy_root: Option<PathBuf>,

    /// Deny nothing and put everything on record, for `belljar policy learn`
    #[arg(long, help_heading = "Policy")]
    pub(crate) policy_record: bool,

    /// Named network rules: locked, web, packages, full, or one of a configuration file [default: locked]
    #[arg(long, value_name = "PROFILE", help_heading = "Network")]
    pub(crate) profile: Option<String>,

    /// How much network there is: none, allowlist, full [default: none]
    #[arg(long, value_name = "MODE", help_heading = "Network")]
    pub(crate) network: Option<String>,

    /// Allow a host, with `--network allowlist` (repeatable)
    ///
    /// `example.com` is that host; `*.example.com` is any depth below it, not the host itself. A port and a path may
    /// follow.
    #[arg(long, value_name = "HOST", help_heading = "Network")]
    pub(crate) allow: Vec<String>,

    /// Allow addresses that are not public: 10.0.0.0/8, fd00::/8, 192.168.1.5 (repeatable)
    ///
    /// With `--network allowlist` a connection still needs an allowed name. Addresses of this host count only where each is
    /// named by itself.
    #[arg(long, value_name = "CIDR", help_heading = "Network")]
    pub(crate) allow_cidr: Vec<String>,

    /// Let what nothing allows wait for `belljar approvals`, at most so long
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60", help_heading = "Network")]
    pub(crate) network_ask: Option<String>,

    /// Let a program of yours decide: about connections, requests, or both (with a comma)
    ///
    /// `connections`: names and connections that no rule allows are decided by a client that is connected (an SDK's
    /// `on_connection`). `requests`: each HTTP request is shown to one (`on_request`) before it leaves, and what is not HTTP
    /// does not leave. While none is connected the answer is no.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = "Network", value_parser = ["connections", "requests"])]
    pub(crate) network_callback: Vec<String>,

    /// Let the program decide about datagrams to this port, too (repeatable)
    #[arg(long, value_name = "PORT", help_heading = "Network", requires = "network_callback")]
    pub(crate) network_callback_udp: Vec<u16>,

    /// Show a host directory at /workspace
    ///
    /// With `:ro` at the end nothing can be changed in it.
    #[arg(long, short, value_name = "DIR[:ro]", help_heading = "Files")]
    pub(crate) workspace: Option<OsString>,

    /// How the workspace is shown: bind, overlay [default: bind]
    ///
    /// With `overlay` changes stay in a layer of the sandbox until `belljar apply` or `belljar discard`.
    #[arg(long, value_name = "MODE", help_heading = "Files", requires = "workspace")]
    pub(crate) workspace_mode: Option<String>,

    /// Show another host directory (repeatable)
    #[arg(long, value_name = "SRC:DST[:ro]", help_heading = "Files")]
    pub(crate) mount: Vec<OsString>,

    /// Hide a file or directory below a mount or the workspace (repeatable)
    ///
    /// It appears empty and cannot be written, renamed or removed from inside. The path is the one inside the sandbox, such
    /// as `/data/secrets`, and has to be there when the sandbox is created.
    #[arg(long, value_name = "PATH", help_heading = "Files")]
    pub(crate) mask: Vec<PathBuf>,

    /// Show the tenant's storage of that name, which outlives sandboxes [default target: /storage]
    #[arg(long, value_name = "NAME[:DST]", help_heading = "Files")]
    pub(crate) volume: Option<String>,

    /// Make the whole root a copy-on-write layer, for package installs
    #[arg(long, help_heading = "Files")]
    pub(crate) writable: bool,

    /// Memory [default: 512m]
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_hyphen_values = true)]
    pub(crate) memory: Option<String>,

    /// CPUs, also parts of one [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "Limits", allow_hyphen_values = true)]
    pub(crate) cpus: Option<String>,

    /// Processes and threads [default: 256]
    #[arg(long, value_name = "NUMBER", help_heading = "Limits", allow_hyphen_values = true)]
    pub(crate) pids: Option<String>,

    /// Disk for everything the sandbox writes [default: 1g]
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_hyphen_values = true)]
    pub(crate) disk: Option<String>,

    /// Accept a weaker mechanism for a limit that this host cannot fully enforce, and say so
    #[arg(long, help_heading = "Limits")]
    pub(crate) best_effort: bool,

    /// Who commands run as: user, root, nobody, UID, UID:GID [default: user]
    #[arg(long, short, value_name = "USER", help_heading = "Process")]
    pub(crate) user: Option<String>,

    /// Directory inside the sandbox in which commands start
    #[arg(long, value_name = "DIR", help_heading = "Process")]
    pub(crate) workdir: Option<PathBuf>,

    /// Set an environment variable; NAME alone takes its value from here (repeatable)
    #[arg(long, short, value_name = "NAME[=VALUE]", help_heading = "Process")]
    pub(crate) env: Vec<String>,

    /// Only these programs are reachable by name, such as python3,cat
    ///
    /// Another name leaves an audit event and exits 126.
    #[arg(long, value_name = "NAMES", help_heading = "Process")]
    pub(crate) programs: Vec<String>,
}
