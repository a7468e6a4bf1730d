//! Where a server is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_codes::Code;
use belljar_socket::Socket;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use crate::failure::{Failure, causes};

/// A connection that takes longer will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Between signs of life on a connection to another machine.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Two megabytes may be under way, so that one stream can use a fast connection.
const WINDOW: u32 = 2 * 1024 * 1024;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket of this machine.
    Unix(PathBuf),
    /// `http://…` or `https://…`.
    Url(String),
}

impl Address {
    /// Reads `http://HOST[:PORT]`, `https://HOST[:PORT]`, `unix:PATH`, or an absolute path.
    ///
    /// # Errors
    /// Where it is none of these.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let refuse = || {
            Failure::new(Code::InvalidArgument, format!("`{text}` is no address of a server"))
                .with_remedy("write `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            // `unix:///run/x` is often written for `unix:/run/x`.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err(refuse());
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let is_url = text.starts_with("http://") || text.starts_with("https://");
        match Endpoint::from_shared(text.to_owned()) {
            Ok(endpoint)
                if is_url && endpoint.uri().host().is_some_and(|host| !host.is_empty()) =>
            {
                Ok(Self::Url(text.to_owned()))
            }
            _ => Err(refuse()),
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// Where nothing answers there.
    pub async fn connect(&self) -> Result<Channel, Failure> {
        match self {
            Self::Unix(path) => {
                connect_unix(path, None).await.map_err(|error| self.unreachable(&error))
            }
            Self::Url(url) => {
                let endpoint = endpoint(url.clone()).map_err(|error| self.unreachable(&error))?;
                endpoint.connect().await.map_err(|error| self.unreachable(&error))
            }
        }
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> Failure {
        let mut failure = Failure::new(
            Code::ServerUnreachable,
            format!("there is no server at `{self}`, or it does not answer"),
        )
        .with_remedy("check the address, and that `belljar serve` runs there");
        // The library's own words for "transport error" tell nothing.
        failure.causes = causes(error);
        failure.causes.dedup();
        if failure.causes.is_empty() {
            failure.causes.push(error.to_string());
        }
        // The words of rustls: somebody answers, who is not known to be the server.
        if failure.causes.iter().any(|cause| cause.contains("invalid peer certificate")) {
            failure.message = format!("the certificate of the server at `{self}` is not accepted");
            failure.remedy = Some(NOT_TRUSTED.to_owned());
        }
        failure
    }
}

const NOT_TRUSTED: &str = "name the file of the authority that issued it in SSL_CERT_FILE; one that is its own \
                           authority must be no authority for others (`basicConstraints=CA:FALSE`)";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Url(url) => f.write_str(url),
        }
    }
}

fn endpoint(url: String) -> Result<Endpoint, tonic::transport::Error> {
    let tls = url.starts_with("https://");
    let endpoint = Endpoint::from_shared(url)?
        .user_agent(USER_AGENT)?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    if tls {
        // The certificates that this machine trusts.
        return endpoint.tls_config(ClientTlsConfig::new().with_enabled_roots());
    }
    Ok(endpoint)
}

const USER_AGENT: &str = concat!("belljar/", env!("CARGO_PKG_VERSION"));

/// Connects to a socket, however long its path.
pub(crate) async fn connect_socket(path: &Path) -> std::io::Result<Socket> {
    let (_directory, near) = belljar_socket::near(path)?;
    UnixStream::connect(near).await?.into_std().and_then(Socket::new)
}

/// Connects to a socket of this machine; `first` is a connection that exists already.
pub(crate) async fn connect_unix(
    path: &Path,
    mut first: Option<Socket>,
) -> Result<Channel, tonic::transport::Error> {
    let path = path.to_path_buf();
    let connector = tower::service_fn(move |_| {
        let (path, first) = (path.clone(), first.take());
        async move {
            match first {
                Some(stream) => Ok(stream),
                None => connect_socket(&path).await,
            }
            .map(TokioIo::new)
        }
    });
    // The name stands in for a host, which a socket has not.
    Endpoint::from_static("http://belljar.localhost")
        .user_agent(USER_AGENT)?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .connect_with_connector(connector)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_accepted_is_told_apart() {
        let address = Address::parse("https://localhost:1").unwrap();
        let told = |words: &'static str| {
            address.unreachable(&std::io::Error::other(std::io::Error::other(words)))
        };
        let refused = told("invalid peer certificate: UnknownIssuer");
        assert_eq!(
            refused.message,
            "the certificate of the server at `https://localhost:1` is not accepted"
        );
        assert!(refused.remedy.unwrap().contains("SSL_CERT_FILE"));
        assert!(told("connection refused").message.contains("does not answer"));
    }

    #[test]
    fn addresses() {
        let check = |text: &str, expected: Option<Address>| {
            assert_eq!(Address::parse(text).ok(), expected, "{text}");
        };
        let unix = |path: &str| Some(Address::Unix(path.into()));
        let url = |text: &str| Some(Address::Url(text.into()));
        check("unix:/run/belljar.sock", unix("/run/belljar.sock"));
        check("unix:///run/belljar.sock", unix("/run/belljar.sock"));
        check("unix:relative.sock", unix("relative.sock"));
        check("/run/belljar.sock", unix("/run/belljar.sock"));
        check("http://127.0.0.1:7070", url("http://127.0.0.1:7070"));
        check("https://sandboxes.example", url("https://sandboxes.example"));
        check("unix:", None);
        check("ftp://x", None);
        check("http://", None);
        check("https:// x", None);
        check("host:80", None);
        check("", None);
    }
}
