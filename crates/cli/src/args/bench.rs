//! `bench`: measurements that anyone can repeat, peers beside ours in one run.

use clap::{Args, Subcommand};

/// Measure this host, with peers beside Belljar in one run
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Create, run `true`, destroy; then a command in a sandbox that exists; then the rate of two at once
    ///
    /// Rounds are interleaved: each peer does one after the other, so that noise of the host meets all alike. Peers
    /// that are not installed, or need root, are named and left out.
    Start(BenchStartArgs),
    /// What the server costs: a sandbox's life and a command over gRPC and REST, many followers, many connections
    ///
    /// Starts a server of its own on a state directory of its own, and measures it from here.
    Api(BenchApiArgs),
    /// Memory of many idle sandboxes, and whether creating the last is as fast as the first
    Idle(BenchIdleArgs),
    /// How long code in a sandbox waits for a function of the host
    ///
    /// Python in a sandbox calls a function of a connected client, then a program of the host.
    Tools(BenchToolsArgs),
    /// What the doors cost: throughput, latency, memory per connection, creation
    ///
    /// A client asks an origin straight and from a sandbox, in turns. The origin, the client and a server of its own are in
    /// network namespaces made for it, which takes root; the host's own network has no part in it.
    Egress(BenchEgressArgs),
    /// What it costs that a program of yours decides about connections
    ///
    /// Python in a sandbox makes connections: allowed by a rule, then decided one by one by a connected client.
    Decisions(BenchDecisionsArgs),
}

#[derive(Args, Debug)]
pub(crate) struct BenchStartArgs {
    /// Rounds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) count: u32,

    /// The wall: auto, native, oci, docker [default: auto]
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,

    /// What runs in the backend
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Option<String>,

    /// Leave the peers out
    #[arg(long)]
    pub(crate) no_peers: bool,

    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchIdleArgs {
    /// Sandboxes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=4000))]
    pub(crate) count: u32,

    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchToolsArgs {
    /// Calls
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) count: u32,

    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchDecisionsArgs {
    /// Connections
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) count: u32,

    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchApiArgs {
    /// Rounds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) count: u32,

    /// Readers of one noisy log at once
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(crate) followers: u32,

    /// Connections that stay open and do nothing
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) connections: u32,

    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchEgressArgs {
    /// Words sent there and back
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) count: u32,

    /// The size of a transfer, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) megabytes: u32,

    /// Connections that are open at once
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(2..=4000))]
    pub(crate) connections: u32,

    /// Sandboxes that are made, of each kind
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub(crate) sandboxes: u32,

    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl BenchArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            BenchCommand::Start(args) => args.json,
            BenchCommand::Api(args) => args.json,
            BenchCommand::Idle(args) => args.json,
            BenchCommand::Tools(args) => args.json,
            BenchCommand::Egress(args) => args.json,
            BenchCommand::Decisions(args) => args.json,
        }
    }
}
