//! Clients that decide about the network of a sandbox: what the doors ask, in the words of the wire.

use std::time::Duration;

use async_trait::async_trait;
use belljar_api::v1;
use belljar_engine::{
    Connecting, Decider, Decision, Greeting, Handled, HandledRequest, Identity, SecretError,
};
use belljar_policy::SecretValue;
use belljar_policy::document::Transport;
use http::{HeaderName, HeaderValue};

use super::{CallError, Callbacks};

/// Doors wait ten seconds, by their own clock; the client is told that it has a little less.
const PATIENCE: Duration = Duration::from_secs(9);

#[async_trait]
impl Decider for Callbacks {
    fn is_there(&self, identity: &Identity) -> bool {
        self.decides(&identity.sandbox).0
    }

    async fn connection(
        &self,
        identity: &Identity,
        asked: &Connecting,
        wait: Duration,
    ) -> Decision {
        match self.connection(&identity.sandbox, connection_call(asked), wait).await {
            Ok(v1::ConnectionVerdict { allow: false, reason, .. }) => {
                Decision::Deny { words: reason }
            }
            Ok(verdict) => Decision::Allow {
                http: verdict.http,
                lasting: verdict.scope == v1::VerdictScope::Sandbox as i32,
                resolver: verdict.resolver.and_then(|resolver| resolver.parse().ok()),
                words: verdict.reason,
            },
            Err(error) => Decision::Unanswered(error.to_string()),
        }
    }

    async fn request(&self, identity: &Identity, request: HandledRequest<'_>) -> Handled {
        match self.request(&identity.sandbox, request_call(&request), PATIENCE).await {
            Ok(v1::RequestVerdict { allow: false, reason, .. }) => Handled::Deny { words: reason },
            Ok(verdict) => headers(&verdict)
                .unwrap_or_else(|| Handled::Unanswered("it set no header that is one".to_owned())),
            Err(error) => Handled::Unanswered(error.to_string()),
        }
    }

    async fn secret(&self, identity: &Identity, name: &str) -> Result<SecretValue, SecretError> {
        let given = self.secret(&identity.sandbox, name, PATIENCE).await;
        let value = given.map_err(|error| match error {
            CallError::Absent => SecretError::NotFound,
            // Words of the client could have the value in them.
            CallError::Failed(_) => SecretError::Failed("the client failed".to_owned()),
            error => SecretError::Failed(error.to_string()),
        })?;
        SecretValue::new(value)
            .map_err(|_| SecretError::Failed("it is empty or longer than 64 KiB".to_owned()))
    }
}

fn connection_call(asked: &Connecting) -> v1::ConnectionCall {
    v1::ConnectionCall {
        transport: match asked.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
        .to_owned(),
        source: asked.source.map(|source| endpoint(Some(source.ip()), source.port())),
        destination: Some(endpoint(asked.address, asked.port)),
        host: asked.host.clone(),
        dns: asked.question.clone().map(|(name, r#type)| v1::DnsQuestion { name, r#type }),
        tls: asked.greeting.as_ref().map(tls),
        rule: asked.rule.clone(),
    }
}

fn request_call(request: &HandledRequest<'_>) -> v1::RequestCall {
    let scheme = if request.secure { "https" } else { "http" };
    let standard = if request.secure { 443 } else { 80 };
    let port = match request.port {
        port if port == standard => String::new(),
        port => format!(":{port}"),
    };
    let host = match request.host.contains(':') {
        true => format!("[{}]", request.host),
        false => request.host.to_owned(),
    };
    let query = request.query.map(|query| format!("?{query}")).unwrap_or_default();
    let text =
        |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
    v1::RequestCall {
        method: request.method.to_owned(),
        url: format!("{scheme}://{host}{port}{}{query}", request.path),
        protocol: if request.http2 { "h2" } else { "http/1.1" }.to_owned(),
        headers: request
            .headers
            .iter()
            .map(|(name, value)| v1::HttpHeader {
                name: name.as_str().to_owned(),
                value: text(value),
            })
            .collect(),
        source: request.source.map(|source| endpoint(Some(source.ip()), source.port())),
        destination: Some(endpoint(request.address, request.port)),
        host: Some(request.host.to_owned())
            .filter(|host| host.parse::<std::net::IpAddr>().is_err()),
        tls: request.secure.then(|| request.greeting.map(tls).unwrap_or_default()),
    }
}

/// What is to be changed; none where a name or value is no header's after all.
fn headers(verdict: &v1::RequestVerdict) -> Option<Handled> {
    let name = |text: &str| HeaderName::try_from(text).ok();
    let value = |text: &str| {
        let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
        HeaderValue::from_bytes(&bytes?).ok()
    };
    let set = verdict.set_headers.iter();
    let set = set.map(|header| Some((name(&header.name)?, value(&header.value)?)));
    let remove = verdict.remove_headers.iter().map(|text| name(text));
    Some(Handled::Send { set: set.collect::<Option<_>>()?, remove: remove.collect::<Option<_>>()? })
}

fn endpoint(address: Option<std::net::IpAddr>, port: u16) -> v1::Endpoint {
    v1::Endpoint {
        ip: address.map(|address| address.to_string()).unwrap_or_default(),
        port: port.into(),
    }
}

fn tls(greeting: &Greeting) -> v1::TlsHello {
    v1::TlsHello { sni: greeting.sni.clone(), alpn: greeting.alpn.clone() }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn requests_are_told_with_the_verified_host() {
        let mut given = HeaderMap::new();
        given.insert("host", HeaderValue::from_static("a lie"));
        given.insert("x-name", HeaderValue::from_bytes(b"Zo\xeb").unwrap());
        let check = |host, port, secure, expected: &str| {
            let call = request_call(&HandledRequest {
                host,
                port,
                secure,
                http2: true,
                method: "GET",
                path: "/a",
                query: Some("b=c"),
                headers: &given,
                source: Some("10.0.0.2:4".parse().unwrap()),
                address: None,
                greeting: None,
            });
            assert_eq!((call.url.as_str(), call.tls.is_some()), (expected, secure));
            assert_eq!(call.headers[1].value, "Zoë");
            call.host
        };
        let named = check("a.example", 443, true, "https://a.example/a?b=c");
        assert_eq!(named.as_deref(), Some("a.example"));
        check("a.example", 443, false, "http://a.example:443/a?b=c");
        assert_eq!(check("::1", 80, false, "http://[::1]/a?b=c"), None);
    }
}
