//! `belljar serve`: the server of a state directory.

mod log;
mod wait;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::Engine;
use belljar_server::{
    Claim, Options, OwnKeys, Patience, Status, Telemetry, Tls, serve as serve_engine,
};

use super::Done;
use crate::args::ServeArgs;
use crate::context::Context;
use crate::env_vars::{self, OTLP_CERTIFICATE, OTLP_ENDPOINT};
use crate::failure::Failure;
use crate::output::{json_line, note, print, print_json_line, say};

pub(crate) async fn serve(context: &Context, args: ServeArgs) -> Result<Done, Failure> {
    if args.automatic {
        leave_session();
    }
    let state_dir = context.settings.state_dir()?;
    let telemetry = telemetry(&args)?;
    let log_dir = args.automatic.then_some(state_dir.as_path());
    log::start(&context.settings, log_dir, telemetry.as_ref())?;
    let options = options(&args)?;
    let claim = claim(&state_dir, args.automatic).await?;
    let mut engine_options = context.engine_options()?;
    engine_options.attend = true;
    let upstreams = (!args.dns_upstream.is_empty()).then(|| args.dns_upstream.join(","));
    engine_options.egress = context.egress(upstreams.as_deref(), args.tls_roots.as_deref())?;
    let engine = Engine::open(engine_options).await?;
    let limits = without_keys(&engine, &options).await?;
    let ready = |status: &Status| announce(context, &args, &state_dir, status, limits);
    let served = serve_engine(claim, engine, options, ready).await;
    if let Some(telemetry) = telemetry {
        telemetry.close().await;
    }
    served?;
    Ok(Done::Success)
}

/// Nothing is sent anywhere unless somebody says where to.
fn telemetry(args: &ServeArgs) -> Result<Option<Telemetry>, Failure> {
    let given = args.otlp_endpoint.clone().or_else(|| std::env::var(OTLP_ENDPOINT).ok());
    let endpoint = given.filter(|text| !text.is_empty());
    let Some(endpoint) = endpoint else { return Ok(None) };
    let authority = std::env::var_os(OTLP_CERTIFICATE).filter(|path| !path.is_empty());
    let authority = authority.map(|path| {
        std::fs::read(&path).map_err(|error| {
            let shown = belljar_policy::shown(&path.to_string_lossy());
            Failure::new(Code::InvalidConfiguration, format!("`{shown}` cannot be read"))
                .caused_by(&error)
                .with_remedy(format!("name a file with a certificate in {OTLP_CERTIFICATE}"))
        })
    });
    Ok(Some(Telemetry::to(&endpoint, authority.transpose()?.as_deref())?))
}

/// Whoever started us may end, be interrupted, or lose its terminal.
fn leave_session() {
    // It fails only for who has a session of its own already.
    let _ = rustix::process::setsid();
}

/// An automatic server waits for the one before it, which may still be finishing requests.
async fn claim(state_dir: &Path, automatic: bool) -> Result<Claim, Failure> {
    match Claim::take(state_dir) {
        Err(problem) if automatic && problem.code == Code::ServerRunning => {
            wait::for_the_one_before(state_dir).await?;
            Ok(Claim::take(state_dir)?)
        }
        result => Ok(result?),
    }
}

fn options(args: &ServeArgs) -> Result<Options, Failure> {
    let mut listen = Vec::new();
    for text in &args.listen {
        listen.extend(address(text)?);
    }
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            Some(Tls { certificate: certificate.clone(), key: key.clone() })
        }
        _ => None,
    };
    let mut options = Options {
        listen,
        socket: args.socket.clone(),
        tls,
        automatic: args.automatic,
        own_keys: own_keys(args)?,
        domain: args.domain.as_deref().map(domain).transpose()?,
        ..Options::default()
    };
    if let Some(idle) = args.idle {
        options.idle = seconds(idle)?;
    }
    if let Some(patience) = args.patience {
        let patience = seconds(patience)?;
        options.patience = Patience { head: patience, body: patience };
    }
    Ok(options)
}

fn domain(text: &str) -> Result<String, Failure> {
    let plain = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    if name.len() > 190 || !name.split('.').all(plain) {
        return Err(Failure::new(Code::InvalidArgument, format!("`{text}` is no domain"))
            .with_remedy("write a name such as `sandboxes.example.com`"));
    }
    Ok(name)
}

fn seconds(value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value).map_err(|error| {
        Failure::new(Code::InvalidArgument, format!("`{value}` is no time")).caused_by(&error)
    })
}

/// Keys that the operator chose: from files, and from the environment.
fn own_keys(args: &ServeArgs) -> Result<OwnKeys, Failure> {
    let mut keys = OwnKeys::default();
    for path in &args.api_key_file {
        keys.add_file(path)?;
    }
    if let Ok(text) = std::env::var(env_vars::SERVE_API_KEY) {
        keys.add(&text, env_vars::SERVE_API_KEY)?;
    }
    Ok(keys)
}

fn address(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let refuse = || {
        Failure::new(Code::InvalidArgument, format!("`--listen {text}` is no address"))
            .with_remedy("write `ADDRESS:PORT`, such as `127.0.0.1:7070`")
    };
    match text.to_socket_addrs() {
        Ok(found) => match found.collect::<Vec<_>>() {
            found if found.is_empty() => Err(refuse()),
            found => Ok(found),
        },
        Err(error) => Err(refuse().caused_by(&error)),
    }
}

/// Tells who waits that clients can connect now. A reader that went away does not end a server.
fn announce(
    context: &Context,
    args: &ServeArgs,
    state_dir: &Path,
    status: &Status,
    limits: Option<&str>,
) {
    let server = v1::Server {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        addresses: status.addresses.clone(),
        state_dir: state_dir.to_string_lossy().into_owned(),
        automatic: status.automatic,
        tls: status.tls,
        ..v1::Server::default()
    };
    let told = if args.json {
        print_json_line(&server)
    } else {
        print(&server.addresses.iter().map(|address| format!("{address}\n")).collect::<String>())
    };
    if let Err(failure) = told {
        say(&format!("{}\n", json_line(&failure.message).unwrap_or_default()));
    }
    if args.automatic {
        log::close_stdout();
    } else if let Some(limits) = limits {
        note(context.quiet, limits);
    }
}

/// Who is served where no key opens anything, in words. The server's gate decides it.
async fn without_keys(engine: &Engine, options: &Options) -> Result<Option<&'static str>, Failure> {
    let keys = engine.keys();
    if !options.own_keys.is_empty() || keys.any().await? {
        return Ok(None);
    }
    Ok(Some(if keys.ever().await? {
        "every API key has expired or was revoked, so only the Unix socket is served; \
         `belljar keys create` makes a key"
    } else {
        "there is no API key, so only this machine is served: the socket, and loopback addresses"
    }))
}
