//! Commands about the server: `serve`, `server`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Serve the API: gRPC, gRPC-Web, REST and WebSocket on one port and on a Unix socket
///
/// Other commands find the server of their state directory by its socket, and start one by themselves where none runs;
/// such a server ends by itself. Without a key only this machine is served: the socket, and loopback addresses.
///
/// Prints where it listens once it does. TERM and INT let requests finish and then end it; sandboxes stay.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Listen on this address too, such as 127.0.0.1:7070 or 0.0.0.0:443 (repeatable)
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,

    /// Unix socket to listen on beside server.sock in the state directory
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Certificate chain in PEM, for TLS on the port
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// A file with keys of your own choice, one in each line [env: BELLJAR_SERVE_API_KEY]
    ///
    /// A key is an administrator's, or with a tenant's name behind it that tenant's. They hold as long as this server
    /// runs.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Vec<PathBuf>,

    /// Show ports of sandboxes below this domain, as PORT-ID.DOMAIN [default: localhost]
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,

    /// Send spans of requests to this OTLP collector over gRPC, such as http://127.0.0.1:4317 [env:
    /// OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,

    /// Ask this server for the names that sandboxes look up: 9.9.9.9, tcp://9.9.9.9, tls://9.9.9.9#dns.quad9.net (repeatable)
    /// [env: BELLJAR_DNS_UPSTREAM]
    #[arg(long, value_name = "SERVER")]
    pub(crate) dns_upstream: Vec<String>,

    /// Trust the authorities of this PEM file in what sandboxes reach, in place of the host's [env: BELLJAR_TLS_ROOTS]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_roots: Option<PathBuf>,

    /// Started by another command: ends by itself when idle
    #[arg(long, hide = true)]
    pub(crate) automatic: bool,

    /// Seconds that an automatic server waits for somebody to need it
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) idle: Option<f64>,

    /// Seconds that a client may be silent in the middle of a request
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) patience: Option<f64>,

    /// Print where it listens as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Look at, start or stop the server of this state directory
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    pub(crate) command: ServerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Tell whether a server runs, where, and what it does
    ///
    /// Starts none. The exit status is 125 where none runs.
    Status {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make sure that a server runs, and tell where
    ///
    /// Starts one that ends by itself when nobody needs it, where none runs; `belljar serve` starts one that stays. However
    /// many ask at once, one is started.
    Start {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop the server; sandboxes stay
    ///
    /// Requests that are under way have ten seconds to finish. What is followed breaks off at once: a command goes on
    /// in its sandbox, and `belljar logs` and `wait` find it again. Stopping where none runs is fine.
    Stop {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

impl ServerArgs {
    pub(crate) fn json(&self) -> bool {
        match self.command {
            ServerCommand::Status { json }
            | ServerCommand::Start { json }
            | ServerCommand::Stop { json } => json,
        }
    }
}
