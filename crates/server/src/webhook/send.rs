//! One delivery: a POST to the address that the name has right now, signed, without following anything.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_engine::{Event, Webhook};
use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_rustls::ConfigBuilderExt;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::is_public;
use crate::convert;
use crate::problem::{Problem, Result};

/// From resolving the name to the head of the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refuses an address that could never be delivered to.
pub(crate) fn check(url: &str) -> Result<()> {
    match target(url) {
        Ok(_) => Ok(()),
        Err(reason) => {
            Err(Problem::invalid(format!("the webhook's address cannot be used: {reason}"))
                .with_remedy("use a URL such as `https://example.com/hook`"))
        }
    }
}

/// Where to connect, and how.
struct Target {
    uri: Uri,
    host: String,
    port: u16,
    tls: bool,
}

fn target(url: &str) -> std::result::Result<Target, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let tls = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        _ => return Err("it is neither http nor https".to_owned()),
    };
    let authority = uri.authority().ok_or("it names no host")?;
    if authority.as_str().contains('@') {
        return Err("it carries a name or password".to_owned());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Ok(Target { host, port, tls, uri: uri.clone() })
}

/// Sends deliveries. The host's certificates are read with the first one that needs them.
#[derive(Clone, Default)]
pub(super) struct Sender {
    tls: Arc<OnceLock<std::result::Result<TlsConnector, String>>>,
}

impl Sender {
    /// # Errors
    /// Why it was not delivered, for the webhook's owner to read.
    pub(super) async fn send(
        &self,
        webhook: &Webhook,
        event: &Event,
    ) -> std::result::Result<(), String> {
        let sent = tokio::time::timeout(PATIENCE, self.send_all(webhook, event));
        sent.await.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
    }

    async fn send_all(&self, webhook: &Webhook, event: &Event) -> std::result::Result<(), String> {
        let target = target(&webhook.url)?;
        // A tenant must not be able to reach through us what it could not reach itself. What was checked is what is
        // connected to, so that a name cannot change its mind in between.
        let address = resolve(&target, webhook.tenant.is_some()).await?;
        let stream = TcpStream::connect(address).await.map_err(|error| format!("{error}"))?;
        let request = request(&target, webhook, event)?;
        if !target.tls {
            return post(stream, request).await;
        }
        let name = ServerName::try_from(target.host).map_err(|error| format!("{error}"))?;
        let stream = self.connector()?.connect(name, stream).await;
        post(stream.map_err(|error| format!("TLS: {error}"))?, request).await
    }

    fn connector(&self) -> std::result::Result<TlsConnector, String> {
        self.tls.get_or_init(connector).clone()
    }
}

fn connector() -> std::result::Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_native_roots()
        .map_err(|error| format!("this host's certificates: {error}"))?
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn resolve(target: &Target, public_only: bool) -> std::result::Result<SocketAddr, String> {
    let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
    let found: Vec<_> = found.map_err(|error| format!("{error}"))?.collect();
    if public_only && found.iter().any(|address| !is_public(address.ip())) {
        return Err("its host has an address that is not public".to_owned());
    }
    found.first().copied().ok_or_else(|| "its host has no address".to_owned())
}

fn request(
    target: &Target,
    webhook: &Webhook,
    event: &Event,
) -> std::result::Result<Request<Full<Bytes>>, String> {
    let told = serde_json::to_value(convert::event(event)).map_err(|error| format!("{error}"))?;
    let body = told.to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = target.uri.authority().map(|authority| authority.as_str());
    Request::post(path)
        .header(header::HOST, authority.unwrap_or_default())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("belljar/", env!("CARGO_PKG_VERSION")))
        .header("belljar-event", told["kind"].as_str().unwrap_or_default())
        .header("belljar-delivery", format!("{}-{}", webhook.id, event.seq))
        .header("belljar-timestamp", now.to_string())
        .header("belljar-signature", signature(webhook.secret.expose(), now, body.as_bytes()))
        .body(Full::new(body.into()))
        .map_err(|error| format!("{error}"))
}

/// `v1=` and the HMAC-SHA-256 of timestamp, a dot and the body, in hexadecimal.
fn signature(secret: &str, timestamp: u64, body: &[u8]) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = ring::hmac::Context::with_key(&key);
    context.update(format!("{timestamp}.").as_bytes());
    context.update(body);
    let tag = context.sign();
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1={hex}")
}

/// Only the status of the answer counts; its body is not read.
async fn post(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> std::result::Result<(), String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| format!("{error}"))?;
    let mut answer = std::pin::pin!(async {
        let answer = sender.send_request(request).await.map_err(|error| format!("{error}"))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    });
    // The connection ends with this function, whatever the other side does. If it ends first, the answer has come or
    // never will.
    tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for good in ["https://example.com/hook?x=1", "http://127.0.0.1:9/x", "https://[::1]:8443/"]
        {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "ftp://example.com/",
            "example.com",
            "https://user:pass@example.com/",
            "file:///etc/passwd",
            "https://",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn signatures_can_be_made_by_anybody_who_knows_the_secret() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac secret
        let expected = "v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163";
        assert_eq!(signature("secret", 1_700_000_000, b"{}"), expected);
    }

    #[tokio::test]
    async fn a_tenants_webhook_does_not_reach_this_host() {
        for url in [
            "http://127.0.0.1:1/",
            "http://localhost/",
            "http://169.254.169.254/latest",
            "http://[::1]/",
        ] {
            let target = target(url).unwrap();
            assert!(resolve(&target, true).await.unwrap_err().contains("not public"), "{url}");
            assert!(resolve(&target, false).await.is_ok(), "{url}");
        }
        let public = target("http://1.1.1.1/").unwrap();
        assert!(resolve(&public, true).await.is_ok());
    }
}
